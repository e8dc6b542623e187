// Attention of engines that generate: merged [Q; K; V] with replicated KV heads, and latent
// attention.

#include <string>
#include <utility>

#include "adapters/layouts/internal/serving.hpp"

namespace weir::serving {
namespace {

IndexRange rows_of(IndexRange heads, std::int64_t head_rows) {
  return {.first = heads.first * head_rows, .count = heads.count * head_rows};
}

/// Ranks beyond the number of KV heads share them: neighbours hold the same one.
IndexRange key_value_heads(const Rank& rank) {
  const std::int64_t heads = rank.config.num_key_value_heads;
  const Part& part = rank.attention;
  if (part.count >= heads) return {.first = part.index / (part.count / heads), .count = 1};
  return part.of(heads);
}

/// Behind a layer's name.
std::string_view local_attention(const Rank& rank) {
  if (has_joint_experts(rank.config)) return rank.names.joint_attention;
  if (rank.config.delta_net.full_attention_interval > 0) return rank.names.hybrid_attention;
  return names_of(rank.config).attention;
}

}  // namespace

std::optional<std::string> head_objection(const ModelConfig& config, std::int64_t tp,
                                          const char* what) {
  if (auto text = indivisible(config.num_attention_heads, tp, "query heads", what)) return text;
  if (config.latent.kv_lora_rank > 0) return std::nullopt;
  if (config.delta_net.full_attention_interval > 0) {
    const std::int64_t linear = config.delta_net.key_heads;
    if (auto text = indivisible(linear, tp, "heads of linear attention", what)) return text;
  }
  const std::int64_t heads = config.num_key_value_heads;
  if (tp < heads) return indivisible(heads, tp, "key-value heads", what);
  if (tp % heads == 0) return std::nullopt;
  return what + ("=" + std::to_string(tp)) + " is no multiple of " + std::to_string(heads) +
         " key-value heads";
}

void add_attention(RankBuilder& builder, const Rank& rank, const std::string& local,
                   const std::string& layer) {
  const ModelConfig& config = rank.config;
  const DecoderNames names = names_of(config);
  const std::string here = local + std::string(local_attention(rank));
  const std::string there = layer + std::string(names.attention);
  const IndexRange heads = rank.attention.of(config.num_attention_heads);
  const IndexRange query = rows_of(heads, query_rows(config) / config.num_attention_heads);
  const IndexRange key_value = rows_of(key_value_heads(rank), config.head_dim);
  const std::string fused =
      here + (names.fused_qkv.empty() ? "qkv_proj" : std::string(names.fused_qkv)) + ".";
  const auto merged = [&](const std::string& kind) {
    builder.stack(fused + kind,
                  {run_of(builder.index(), layer, Projection::query, kind, query),
                   run_of(builder.index(), layer, Projection::key, kind, key_value),
                   run_of(builder.index(), layer, Projection::value, kind, key_value)});
  };
  const auto whole = [&](std::string_view module, const char* kind) {
    const std::string name = std::string(module) + kind;
    builder.whole(here + name, there + name);
  };
  if (has_joint_experts(config)) {
    builder.stack(here + "sinks", {{.tensor = builder.of(there + "sinks"), .rows = heads}});
  }
  const std::string output = std::string(names.output) + ".weight";
  merged("weight");
  if (config.qkv_bias) merged("bias");
  builder.columns(here + output, there + output, rows_of(heads, config.head_dim));
  if (config.output_bias) whole(names.output, ".bias");
  if (config.qk_norm) {
    whole(names.query_norm, ".weight");
    whole(names.key_norm, ".weight");
  }
}

/// What goes down to a narrow rank is on every rank; what comes up from it is cut by heads.
void add_latent_attention(RankBuilder& builder, const Rank& rank, const std::string& local,
                          const std::string& layer) {
  const ModelConfig& config = rank.config;
  const LatentConfig& latent = config.latent;
  const IndexRange heads = rank.attention.of(config.num_attention_heads);
  const std::string here = local + "self_attn.";
  const std::string there = layer + "self_attn.";
  const auto whole = [&](const char* name) { builder.whole(here + name, there + name); };
  const auto heads_of = [&](const char* name, std::int64_t head_rows) {
    builder.stack(here + name,
                  {{.tensor = builder.of(there + name), .rows = rows_of(heads, head_rows)}});
  };
  if (latent.q_lora_rank == 0) {
    whole("kv_a_proj_with_mqa.weight");
    heads_of("q_proj.weight", config.head_dim);
  } else {
    const std::int64_t kv_rows = latent.kv_lora_rank + latent.qk_rope_head_dim;
    builder.stack(
        here + std::string(rank.names.latent_down) + ".weight",
        {{.tensor = builder.of(there + "q_a_proj.weight"), .rows = {.count = latent.q_lora_rank}},
         {.tensor = builder.of(there + "kv_a_proj_with_mqa.weight"), .rows = {.count = kv_rows}}});
    whole("q_a_layernorm.weight");
    heads_of("q_b_proj.weight", config.head_dim);
  }
  whole("kv_a_layernorm.weight");
  heads_of("kv_b_proj.weight", latent.qk_nope_head_dim + latent.v_head_dim);
  builder.derived(here + std::string(rank.names.absorbed_key), here + "kv_b_proj.weight");
  builder.derived(here + std::string(rank.names.absorbed_value), here + "kv_b_proj.weight");
  builder.columns(here + "o_proj.weight", there + "o_proj.weight",
                  rows_of(heads, latent.v_head_dim));
}

/// The input projections hold group after group, each a key head with its value heads, so that
/// equal parts of them are whole groups. The convolution holds all of q, then of k, then of v.
void add_delta_net(RankBuilder& builder, const Rank& rank, const std::string& local,
                   const std::string& layer) {
  const DeltaNetConfig& net = rank.config.delta_net;
  const std::int64_t keys = net.key_heads * net.key_head_dim;
  const std::int64_t values = net.value_heads * net.value_head_dim;
  const std::string here = local + "linear_attn.";
  const std::string there = layer + "linear_attn.";
  const auto part = [&](const char* name, std::int64_t rows) {
    builder.stack(here + name,
                  {{.tensor = builder.of(there + name), .rows = rank.attention.of(rows)}});
  };
  const auto from = [&](std::int64_t first, std::int64_t rows) {
    const IndexRange kept = rank.attention.of(rows);
    return RowRun{.tensor = builder.of(there + "conv1d.weight"),
                  .rows = {.first = first + kept.first, .count = kept.count}};
  };
  part("dt_bias", net.value_heads);
  part("A_log", net.value_heads);
  builder.keep_last_in_f32();
  builder.stack(here + "conv1d.weight", {from(0, keys), from(keys, keys), from(2 * keys, values)});
  part("in_proj_qkvz.weight", 2 * keys + 2 * values);
  part("in_proj_ba.weight", 2 * net.value_heads);
  builder.whole(here + "norm.weight", there + "norm.weight");
  builder.columns(here + "out_proj.weight", there + "out_proj.weight", rank.attention.of(values));
}

}  // namespace weir::serving
