#pragma once
// What the parser of configurations and the maker of tensor lists agree on.

#include <span>
#include <string_view>

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Every `model_type` whose tensors are known.
std::span<const std::string_view> known_families() noexcept;

/// That every size is at least one and within plausible bounds, that the query heads divide by the
/// KV heads, and that what the family needs is there. Then no tensor's bytes, nor those of all
/// together, exceed 2^63, and there are at most some millions of tensors. Errors: `invalid`.
Result<void> check_sizes(const ModelConfig& config);

/// The tensors of a config that passes `check_sizes`, save embedding and head, in no order.
std::vector<Tensor> decoder_tensors(const ModelConfig& config);

}  // namespace weir
