#pragma once
// What the parser of configurations and the maker of tensor lists agree on.

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// That every size is at least one and within plausible bounds, and that the query heads divide by
/// the KV heads. Then no tensor's bytes, nor those of all together, exceed 2^63. Errors: `invalid`.
Result<void> check_sizes(const ModelConfig& config);

}  // namespace weir
