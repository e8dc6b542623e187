// Megatron-Core's MLPs: [gate; up] of plain ones, of experts and of shared experts.

#include <string>
#include <vector>

#include "adapters/layouts/internal/megatron.hpp"
#include "runtime/assert.hpp"

namespace weir::megatron {
namespace {

/// [gate; up] of those rows of an MLP, or blocks of `interleave` rows of either in turn.
std::vector<RowRun> fc1_runs(const std::string& mlp, const std::string& kind, IndexRange kept,
                             std::int64_t interleave) {
  const std::string gate = mlp + "gate_proj." + kind;
  const std::string up = mlp + "up_proj." + kind;
  if (interleave == 0) return {{.tensor = gate, .rows = kept}, {.tensor = up, .rows = kept}};
  WEIR_ASSERT(kept.count % interleave == 0);
  std::vector<RowRun> runs;
  for (std::int64_t first = kept.first; first < kept.end(); first += interleave) {
    runs.push_back({.tensor = gate, .rows = {.first = first, .count = interleave}});
    runs.push_back({.tensor = up, .rows = {.first = first, .count = interleave}});
  }
  return runs;
}

/// "linear_fc1.weight" and "linear_fc2.weight" of one expert, under those names.
void add_expert(RankBuilder& builder, const Rank& rank, const std::string& fc1,
                const std::string& fc2, const std::string& expert) {
  const IndexRange kept = rank.expert_tensor.of(rank.config.experts.intermediate_size);
  if (!fc1.empty()) builder.stack(fc1, fc1_runs(expert, "weight", kept, rank.glu_interleave));
  if (!fc2.empty()) builder.columns(fc2, expert + "down_proj.weight", kept);
}

}  // namespace

void add_mlp(RankBuilder& builder, const Rank& rank, const Layer& layer) {
  const IndexRange kept = rank.tensor.of(rank.config.intermediate_size);
  const std::string mlp = layer.canonical + "mlp.";
  const auto fc1 = [&](const std::string& kind) {
    builder.stack(layer.local + "mlp.linear_fc1." + kind, fc1_runs(mlp, kind, kept, 0));
  };
  builder.whole(layer.local + "mlp.linear_fc1.layer_norm_weight",
                layer.canonical + "post_attention_layernorm.weight");
  fc1("weight");
  if (rank.config.mlp_bias) fc1("bias");
  builder.columns(layer.local + "mlp.linear_fc2.weight", mlp + "down_proj.weight", kept);
  if (rank.config.mlp_bias) {
    builder.whole(layer.local + "mlp.linear_fc2.bias", mlp + "down_proj.bias");
  }
}

void add_experts(RankBuilder& builder, const Rank& rank, const Layer& layer) {
  const ExpertsConfig& experts = rank.config.experts;
  const DecoderNames names = names_of(rank.config);
  const std::string mlp = layer.local + "mlp.";
  builder.whole(layer.local + "pre_mlp_layernorm.weight",
                layer.canonical + "post_attention_layernorm.weight");
  builder.whole(mlp + "router.weight", layer.canonical + std::string(names.router) + "weight");
  if (experts.score_bias) {
    builder.whole(mlp + "router.expert_bias", layer.canonical + std::string(names.score_bias));
    builder.keep_last_in_f32();
  }
  // Local expert i is global expert `own.first` + i: a local number says nothing by itself.
  const IndexRange own = rank.expert.of(experts.count);
  const auto canonical = [&](std::int64_t local) {
    return layer.canonical + "mlp.experts." + std::to_string(own.first + local) + ".";
  };
  if (rank.sequential_experts) {
    for (std::int64_t i = 0; i < own.count; ++i) {
      const std::string local = mlp + "experts.local_experts." + std::to_string(i) + ".";
      add_expert(builder, rank, local + "linear_fc1.weight", local + "linear_fc2.weight",
                 canonical(i));
    }
  } else {
    for (std::int64_t i = 0; i < own.count; ++i) {
      const std::string fc1 = mlp + "experts.linear_fc1.weight" + std::to_string(i);
      add_expert(builder, rank, fc1, "", canonical(i));
    }
    for (std::int64_t i = 0; i < own.count; ++i) {
      const std::string fc2 = mlp + "experts.linear_fc2.weight" + std::to_string(i);
      add_expert(builder, rank, "", fc2, canonical(i));
    }
  }
  if (experts.shared_intermediate_size == 0) return;
  const std::string shared = layer.canonical + std::string(names.shared_experts);
  const IndexRange kept = rank.tensor.of(experts.shared_intermediate_size);
  builder.stack(mlp + "shared_experts.linear_fc1.weight", fc1_runs(shared, "weight", kept, 0));
  builder.columns(mlp + "shared_experts.linear_fc2.weight", shared + "down_proj.weight", kept);
}

}  // namespace weir::megatron
