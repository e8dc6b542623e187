#pragma once
// A rank's layout once more, with weights as codes and scales beside them.

#include <cstdint>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The number in `quantized` of each tensor of `model`, from which it was made.
std::vector<std::uint32_t> numbers_in(const Model& quantized, const Model& model);

/// `layout`, which is of a model, for the model `quantized` that was made of it. Each local tensor
/// whose pieces are encoded gets codes' type, and behind it stands one of its scales: of its name
/// with the scales' suffix and its shape in blocks, as engines keep them.
/// Errors (`invalid`), by local tensor: blocks that are cut by a rank's border, or lie elsewhere in
/// local blocks than in whole ones; codes and other weights in one local tensor; rows that are not
/// behind one another.
Result<RankLayout> quantized_layout(const Model& quantized,
                                    const std::vector<std::uint32_t>& numbers, RankLayout layout);

}  // namespace weir
