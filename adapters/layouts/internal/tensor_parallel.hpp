#pragma once
// Equal parts of a model's heads, rows and columns; which degrees of parallelism fit a model, and
// how to say so.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adapters/layouts/internal/rank_builder.hpp"
#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// A rank's place in a group of ranks that cut things into equal parts.
struct Part {
  std::int64_t count = 1;  ///< Ranks of the group.
  std::int64_t index = 0;  ///< This rank's place in it.

  [[nodiscard]] IndexRange of(std::int64_t total) const { return equal_part(total, count, index); }
};

/// Why `tp` does not fit, as in "tp=3 does not divide 16 query heads"; nothing where it fits.
using TpObjection = std::function<std::optional<std::string>(std::int64_t tp)>;

/// Error (`invalid`): the objection, and every `tp` up to `most` that an engine with that rule
/// could use.
Result<void> check_tp(std::int64_t most, std::int64_t tp, const TpObjection& objection);

/// The objection that `tp` does not divide that many `things` ("query heads"), or nothing. `what`
/// names the divisor where it is no `tp` as such.
std::optional<std::string> indivisible(std::int64_t count, std::int64_t tp, const char* things,
                                       const char* what = "tp");

/// The same of the plain MLPs and the shared experts that the model has.
std::optional<std::string> indivisible_mlp(const ModelConfig& config, std::int64_t tp);

/// Error (`invalid`): the option's value does not divide that many `things`, or there are none.
Result<void> check_divides(const char* option, std::int64_t value, std::int64_t count,
                           const char* things);

/// An option about experts, and whether a spec gives it another value than it has by itself.
struct ExpertOption {
  const char* name;
  bool given;
};
/// Error (`invalid`): one is given, for a model that has no experts.
Result<void> check_no_experts(const std::vector<ExpertOption>& options);

/// Error (`invalid`): `layers=` is given, with another number of numbers than there are chunks.
/// `what` names these ("pp x vpp").
Result<void> check_layer_numbers(const LayoutSpec& spec, std::int64_t chunks, const char* what);

/// Error (`invalid`): the decoder layers can't be shared out to so many chunks, as `layers` says
/// or, where that is empty, evenly. `what` names the chunks ("pp x vpp").
Result<void> check_layers(const ModelConfig& config, const std::vector<std::int64_t>& layers,
                          std::int64_t chunks, const char* what);

}  // namespace weir
