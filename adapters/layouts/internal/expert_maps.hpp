#pragma once
// Which expert is in which physical slot, where an engine balances load by placing some twice.

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The maps in a JSON file as SGLang and vLLM have them: `{"physical_to_logical_map": [[0, 1, …],
/// …]}`, a list for each layer, or that list of lists, or one list for all layers. Errors
/// (`invalid`, and those of reading a file) name the file, the layer's place in it and the slot.
Result<std::vector<std::vector<std::int64_t>>> read_expert_maps(const std::string& path);

/// The expert in each physical slot, for every layer of experts in their order, those of MTP (of
/// which `mtp_layers` are kept) last: as `physical=` says or, where that is empty, all experts and
/// then `redundant` further slots from expert 0 on again. One map alone is that of all layers.
/// Errors (`invalid`): another number of maps than there are layers of experts, or layers; a map
/// with another number of slots, of an expert that there is not, or that leaves one out. They name
/// layer and expert.
Result<std::vector<std::vector<std::int64_t>>> physical_maps(const ModelConfig& config,
                                                             const LayoutSpec& spec,
                                                             std::int64_t mtp_layers);

}  // namespace weir
