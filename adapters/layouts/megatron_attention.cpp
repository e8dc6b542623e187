// Megatron-Core's attention: fused and interleaved QKV, and multi-head latent attention.

#include <algorithm>
#include <string>
#include <vector>

#include "adapters/layouts/internal/megatron.hpp"

namespace weir::megatron {
namespace {

/// The rows of fused QKV that the rank keeps: group g has its query heads, the gates of them if
/// there are any, its key head and its value head, and the cut between two ranks may fall inside a
/// head. In the checkpoint each gate is behind its own query head. `kind` is "weight" or "bias",
/// which have the same rows.
std::vector<RowRun> qkv_runs(const TensorIndex& index, const Rank& rank, const std::string& layer,
                             const std::string& kind) {
  const ModelConfig& config = rank.config;
  const std::int64_t head = config.head_dim;
  const std::int64_t groups = config.num_key_value_heads;
  const std::int64_t group_queries = query_rows(config) / groups;
  const std::int64_t group_rows = fused_rows(config) / groups;
  const IndexRange kept = rank.tensor.of(fused_rows(config));
  std::vector<RowRun> runs;
  std::int64_t at = kept.first / group_rows * group_rows;
  const auto add = [&](Projection projection, IndexRange rows) {
    const std::int64_t first = std::max(at, kept.first);
    const std::int64_t end = std::min(at + rows.count, kept.end());
    if (first < end) {
      runs.push_back(run_of(index, layer, projection, kind,
                            {.first = rows.first + first - at, .count = end - first}));
    }
    at += rows.count;
  };
  for (std::int64_t group = kept.first / group_rows; at < kept.end(); ++group) {
    const std::int64_t first = group * group_queries;
    if (config.output_gate) {
      for (const std::int64_t gate : {std::int64_t{0}, head}) {
        for (std::int64_t row = gate; row < group_queries; row += 2 * head) {
          add(Projection::query, {.first = first + row, .count = head});
        }
      }
    } else {
      add(Projection::query, {.first = first, .count = group_queries});
    }
    add(Projection::key, {.first = group * head, .count = head});
    add(Projection::value, {.first = group * head, .count = head});
  }
  return runs;
}

}  // namespace

std::int64_t fused_rows(const ModelConfig& config) {
  return query_rows(config) + 2 * key_value_rows(config);
}

void add_attention(RankBuilder& builder, const Rank& rank, const Layer& layer) {
  const ModelConfig& config = rank.config;
  const DecoderNames names = names_of(config);
  const std::string local = layer.local + "self_attention.";
  const std::string attention = layer.canonical + std::string(names.attention);
  const std::string output = attention + std::string(names.output);
  if (has_joint_experts(config)) {
    builder.stack(local + "core_attention.softmax_offset",
                  {{.tensor = builder.of(attention + "sinks"),
                    .rows = rank.tensor.of(config.num_attention_heads)}});
  }
  builder.columns(local + "linear_proj.weight", output + ".weight",
                  rank.tensor.of(config.num_attention_heads * config.head_dim));
  if (config.output_bias) builder.whole(local + "linear_proj.bias", output + ".bias");
  builder.whole(local + "linear_qkv.layer_norm_weight", layer.canonical + "input_layernorm.weight");
  builder.stack(local + "linear_qkv.weight",
                qkv_runs(builder.index(), rank, layer.canonical, "weight"));
  if (config.qkv_bias) {
    builder.stack(local + "linear_qkv.bias",
                  qkv_runs(builder.index(), rank, layer.canonical, "bias"));
  }
  if (config.qk_norm) {
    builder.whole(local + "q_layernorm.weight",
                  attention + std::string(names.query_norm) + ".weight");
    builder.whole(local + "k_layernorm.weight",
                  attention + std::string(names.key_norm) + ".weight");
  }
}

/// What goes down to a narrow rank is on every rank; what comes up from it is cut by heads.
void add_latent_attention(RankBuilder& builder, const Rank& rank, const Layer& layer) {
  const ModelConfig& config = rank.config;
  const LatentConfig& latent = config.latent;
  const std::int64_t heads = config.num_attention_heads;
  const std::string local = layer.local + "self_attention.";
  const std::string attention = layer.canonical + "self_attn.";
  const auto heads_of = [&](const std::string& name, const std::string& tensor,
                            std::int64_t head_rows) {
    builder.stack(local + name + ".weight", {{.tensor = builder.of(attention + tensor + ".weight"),
                                              .rows = rank.tensor.of(heads * head_rows)}});
  };
  const auto whole = [&](const std::string& name, const std::string& tensor) {
    builder.whole(local + name, attention + tensor + ".weight");
  };
  builder.whole(layer.local + "input_layernorm.weight", layer.canonical + "input_layernorm.weight");
  builder.columns(local + "linear_proj.weight", attention + "o_proj.weight",
                  rank.tensor.of(heads * latent.v_head_dim));
  if (latent.q_lora_rank == 0) {
    heads_of("linear_q_proj", "q_proj", config.head_dim);
  } else {
    whole("linear_q_down_proj.weight", "q_a_proj");
    whole("linear_q_up_proj.layer_norm_weight", "q_a_layernorm");
    heads_of("linear_q_up_proj", "q_b_proj", config.head_dim);
  }
  whole("linear_kv_down_proj.weight", "kv_a_proj_with_mqa");
  whole("linear_kv_up_proj.layer_norm_weight", "kv_a_layernorm");
  heads_of("linear_kv_up_proj", "kv_b_proj", latent.qk_nope_head_dim + latent.v_head_dim);
}

}  // namespace weir::megatron
