#pragma once
// Experts as Transformers 5 keeps them: all of a layer in two tensors of three dimensions.

#include <array>
#include <cstdint>
#include <string_view>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"
#include "adapters/model/model.hpp"

namespace weir {

/// `experts=each`, as checkpoints have them, or `experts=packed`.
inline constexpr std::array<std::string_view, 2> packing_words = {"each", "packed"};
inline constexpr std::array packing_choices = {
    EngineChoice{.name = "experts", .words = packing_words}};

/// Error (`invalid`): experts are to be packed, and the model has none or has them packed already.
Result<void> check_packing(const Model& model, const LayoutSpec& spec);

/// Whether a tensor is one expert's: "model.layers.3.mlp.experts.17.up_proj.weight".
bool is_of_expert(std::string_view name);

/// Those experts of every layer: `experts.gate_up_proj` [expert, gate and up rows, hidden] and
/// `experts.down_proj` [expert, hidden, columns].
void add_packed_experts(RankBuilder& builder, const ModelConfig& config, IndexRange experts);

}  // namespace weir
