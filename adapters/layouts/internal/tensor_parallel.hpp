#pragma once
// Which degrees of tensor parallelism fit a model, and how to say so.

#include <cstdint>
#include <optional>
#include <string>

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Why `tp` does not fit, as in "tp=3 does not divide 16 query heads"; nothing where it fits.
using TpObjection = std::optional<std::string> (*)(const ModelConfig& config, std::int64_t tp);

/// Error (`invalid`): the objection, and every `tp` that an engine with that rule could use.
/// `tp` never exceeds the number of query heads.
Result<void> check_tp(const ModelConfig& config, std::int64_t tp, TpObjection objection);

/// The objection that `tp` does not divide that many `things` ("query heads"), or nothing.
std::optional<std::string> indivisible(std::int64_t count, std::int64_t tp, const char* things);

}  // namespace weir
