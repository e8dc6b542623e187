#pragma once
// Megatron-Core's rules, file by file: what one rank of it is, and what it keeps of a layer.

#include <cstdint>
#include <string>

#include "adapters/layouts/internal/rank_builder.hpp"
#include "adapters/layouts/internal/tensor_parallel.hpp"

namespace weir::megatron {

/// A rank's part of a model, which must outlive it.
struct Rank {
  const ModelConfig& config;
  Part tensor;         ///< Of heads, rows of MLPs and shared experts, and vocabulary.
  Part expert;         ///< Of the experts.
  Part expert_tensor;  ///< Of the rows of each expert.
  /// Gate and up of experts alternate in blocks of so many rows; 0: all of gate, then all of up.
  std::int64_t glu_interleave = 0;
  bool sequential_experts = false;  ///< A module for each expert, instead of one for all.
};

/// Names of a layer: the engine's prefix and the canonical one.
struct Layer {
  std::string local;
  std::string canonical;
};

/// Rows of fused query, key and value, with the gates of queries where there are any.
std::int64_t fused_rows(const ModelConfig& config);

/// Attention with the norm before it.
void add_attention(RankBuilder& builder, const Rank& rank, const Layer& layer);
/// The same of latent attention.
void add_latent_attention(RankBuilder& builder, const Rank& rank, const Layer& layer);
/// The same of Gated DeltaNet.
void add_delta_net(RankBuilder& builder, const Rank& rank, const Layer& layer);
/// A plain MLP with the norm before it.
void add_mlp(RankBuilder& builder, const Rank& rank, const Layer& layer);
/// Router, experts and shared experts, with the norm before them.
void add_experts(RankBuilder& builder, const Rank& rank, const Layer& layer);

}  // namespace weir::megatron
