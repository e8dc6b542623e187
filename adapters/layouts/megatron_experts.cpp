// Megatron-Core's MLPs: [gate; up] of plain ones, of experts and of shared experts.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/layouts/internal/megatron.hpp"
#include "runtime/assert.hpp"

namespace weir::megatron {
namespace {

/// [gate; up] of those rows of an MLP, or blocks of `interleave` rows of either in turn.
std::vector<RowRun> fc1_runs(std::uint32_t gate, std::uint32_t up, IndexRange kept,
                             std::int64_t interleave = 0) {
  if (interleave == 0) return {{.tensor = gate, .rows = kept}, {.tensor = up, .rows = kept}};
  WEIR_ASSERT(kept.count % interleave == 0);
  std::vector<RowRun> runs;
  for (std::int64_t first = kept.first; first < kept.end(); first += interleave) {
    runs.push_back({.tensor = gate, .rows = {.first = first, .count = interleave}});
    runs.push_back({.tensor = up, .rows = {.first = first, .count = interleave}});
  }
  return runs;
}

/// One of an expert's tensors, of `layer`, as `name`.
struct ExpertTensor {
  std::string name;
  std::string layer;
  std::int64_t expert = 0;
  bool down = false;  ///< "linear_fc2", or else "linear_fc1".
  bool bias = false;
};

/// Of experts that the checkpoint has in one tensor. Weights are turned over; and gate and up,
/// which alternate there, are apart here, or in blocks as in any other expert.
void add_joint(RankBuilder& builder, const Rank& rank, const ExpertTensor& tensor) {
  const std::int64_t hidden = rank.config.hidden_size;
  const std::int64_t rows = rank.config.experts.intermediate_size;
  const std::string there = tensor.layer + "mlp.experts.";
  if (tensor.down) {
    if (tensor.bias) {
      builder.boxes(
          tensor.name, there + "down_proj_bias", {hidden},
          {{.box = {.start = {tensor.expert, 0}, .extent = {1, hidden}}, .stride = {hidden, 1}}});
    } else {
      builder.boxes(tensor.name, there + "down_proj", {hidden, rows},
                    {{.box = {.start = {tensor.expert, 0, 0}, .extent = {1, rows, hidden}},
                      .stride = {rows * hidden, 1, rows}}});
    }
    return;
  }
  const std::int64_t block = rank.glu_interleave == 0 ? rows : rank.glu_interleave;
  std::vector<LocalBox> boxes;
  for (std::int64_t first = 0; first < rows; first += block) {
    if (tensor.bias) {
      boxes.push_back({.box = {.start = {tensor.expert, first, 0}, .extent = {1, block, 2}},
                       .offset = 2 * first,
                       .stride = {2 * rows, 1, block}});
    } else {
      boxes.push_back(
          {.box = {.start = {tensor.expert, 0, first, 0}, .extent = {1, hidden, block, 2}},
           .offset = 2 * first * hidden,
           .stride = {2 * rows * hidden, 1, hidden, block * hidden}});
    }
  }
  std::vector<std::int64_t> shape = {2 * rows};
  if (!tensor.bias) shape.push_back(hidden);
  builder.boxes(tensor.name, there + (tensor.bias ? "gate_up_proj_bias" : "gate_up_proj"),
                std::move(shape), boxes);
}

void add_expert(RankBuilder& builder, const Rank& rank, const ExpertTensor& tensor) {
  if (has_joint_experts(rank.config)) return add_joint(builder, rank, tensor);
  const IndexRange kept = rank.expert_tensor.of(rank.config.experts.intermediate_size);
  const GatedMlp& expert =
      builder.index().experts(tensor.layer)[static_cast<std::size_t>(tensor.expert)];
  if (tensor.down) {
    builder.columns(tensor.name, expert.down, kept);
  } else {
    builder.stack(tensor.name, fc1_runs(expert.gate, expert.up, kept, rank.glu_interleave));
  }
}

/// All experts of the rank, whose names begin with `local`. Local expert i is global expert
/// `own.first` + i: a local number says nothing by itself.
void add_routed(RankBuilder& builder, const Rank& rank, const std::string& local,
                const std::string& layer) {
  const IndexRange own = rank.expert.of(rank.config.experts.count);
  const int kinds = has_joint_experts(rank.config) ? 2 : 1;
  const auto add = [&](std::string name, std::int64_t i, bool down, bool bias) {
    add_expert(builder, rank,
               {.name = std::move(name),
                .layer = layer,
                .expert = own.first + i,
                .down = down,
                .bias = bias});
  };
  const auto name_of = [](bool down, bool bias) {
    return std::string(down ? "linear_fc2." : "linear_fc1.") + (bias ? "bias" : "weight");
  };
  for (std::int64_t i = 0; rank.sequential_experts && i < own.count; ++i) {
    const std::string expert = local + "local_experts." + std::to_string(i) + ".";
    for (const bool down : {false, true}) {
      for (int kind = 0; kind < kinds; ++kind) {
        add(expert + name_of(down, kind > 0), i, down, kind > 0);
      }
    }
  }
  if (rank.sequential_experts) return;
  for (const bool down : {false, true}) {
    for (int kind = 0; kind < kinds; ++kind) {
      for (std::int64_t i = 0; i < own.count; ++i) {
        add(local + name_of(down, kind > 0) + std::to_string(i), i, down, kind > 0);
      }
    }
  }
}

}  // namespace

void add_mlp(RankBuilder& builder, const Rank& rank, const Layer& layer) {
  const IndexRange kept = rank.tensor.of(rank.config.intermediate_size);
  const std::string mlp = layer.canonical + "mlp.";
  const auto fc1 = [&](const std::string& kind) {
    builder.stack(
        layer.local + "mlp.linear_fc1." + kind,
        fc1_runs(builder.of(mlp + "gate_proj." + kind), builder.of(mlp + "up_proj." + kind), kept));
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
  if (has_joint_experts(rank.config)) {
    builder.whole(mlp + "router.bias", layer.canonical + std::string(names.router) + "bias");
  }
  add_routed(builder, rank, mlp + "experts.", layer.canonical);
  if (experts.shared_intermediate_size == 0) return;
  const GatedMlp shared = builder.index().mlp(layer.canonical + std::string(names.shared_experts));
  const IndexRange kept = rank.tensor.of(experts.shared_intermediate_size);
  if (!names.shared_gate.empty()) {
    builder.whole(mlp + "shared_experts.gate_weight",
                  layer.canonical + std::string(names.shared_gate));
  }
  builder.stack(mlp + "shared_experts.linear_fc1.weight", fc1_runs(shared.gate, shared.up, kept));
  builder.columns(mlp + "shared_experts.linear_fc2.weight", shared.down, kept);
}

}  // namespace weir::megatron
