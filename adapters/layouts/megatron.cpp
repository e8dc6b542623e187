// Megatron-Core with Transformer Engine, dense models: tensor, pipeline and virtual pipeline
// parallelism, fused and interleaved QKV, [gate; up], padded vocabulary.

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"
#include "adapters/layouts/internal/tensor_parallel.hpp"

namespace weir {
namespace {

constexpr std::array options = {EngineOption{.name = "tp"}, EngineOption{.name = "pp"},
                                EngineOption{.name = "vpp"}, EngineOption{.name = "dp"},
                                EngineOption{.name = "vocab_multiple", .fallback = 128}};

constexpr std::array<std::string_view, 3> families = {"llama", "qwen2", "qwen3"};

/// What the functions below need to know: the rank's tensor-parallel part of which model.
struct TensorPart {
  const ModelConfig& config;
  std::int64_t tp = 1;
  std::int64_t rank = 0;

  [[nodiscard]] IndexRange of(std::int64_t total) const { return equal_part(total, tp, rank); }
};

/// The decoder layers of one model chunk.
struct Chunk {
  IndexRange layers;
  bool first = false;
  bool last = false;
};

std::int64_t fused_rows(const ModelConfig& config) {
  return (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim;
}

std::optional<std::string> objection(const ModelConfig& config, std::int64_t tp) {
  if (auto text = indivisible(config.num_attention_heads, tp, "query heads")) return text;
  if (auto text = indivisible(fused_rows(config), tp, "rows of fused QKV")) return text;
  return indivisible(config.intermediate_size, tp, "rows of the MLP");
}

Result<LayoutSize> size(const LayoutSpec& spec) {
  const std::int64_t pp = option(spec, "pp");
  const std::int64_t vpp = option(spec, "vpp");
  if (vpp > 1 && pp == 1) {
    return failure(ErrorCode::invalid, "vpp=" + std::to_string(vpp) +
                                           " cuts pipeline stages, and there is one stage only: "
                                           "give pp=2 or more, or leave vpp out");
  }
  if (!spec.layers.empty() && std::ssize(spec.layers) != pp * vpp) {
    return failure(ErrorCode::invalid, "layers= has " + std::to_string(spec.layers.size()) +
                                           " numbers: give pp x vpp = " + std::to_string(pp * vpp));
  }
  return layout_size(spec, option(spec, "tp") * pp, option(spec, "dp"));
}

Result<void> check_layers(const ModelConfig& config, const LayoutSpec& spec) {
  const std::int64_t layers = config.num_hidden_layers;
  const std::int64_t chunks = option(spec, "pp") * option(spec, "vpp");
  if (spec.layers.empty()) {
    if (layers % chunks == 0) return {};
    return failure(ErrorCode::invalid, "pp x vpp = " + std::to_string(chunks) +
                                           " does not divide " + std::to_string(layers) +
                                           " layers: choose others, or give layers= with " +
                                           std::to_string(chunks) + " numbers that sum to " +
                                           std::to_string(layers) + ", joined by '-'");
  }
  const std::int64_t sum = std::accumulate(spec.layers.begin(), spec.layers.end(), std::int64_t{0});
  if (sum == layers) return {};
  return failure(ErrorCode::invalid, "layers= sums to " + std::to_string(sum) +
                                         ": make it sum to the model's " + std::to_string(layers) +
                                         " layers");
}

/// Layers are dealt out to chunks in the order (vp 0, pp 0), (vp 0, pp 1), …, (vp 1, pp 0), ….
Chunk chunk_of(const ModelConfig& config, const LayoutSpec& spec, std::int64_t index) {
  const std::int64_t chunks = option(spec, "pp") * option(spec, "vpp");
  Chunk chunk{.layers = {}, .first = index == 0, .last = index == chunks - 1};
  if (spec.layers.empty()) {
    chunk.layers = equal_part(config.num_hidden_layers, chunks, index);
  } else {
    const auto own = spec.layers.begin() + index;
    chunk.layers = {.first = std::accumulate(spec.layers.begin(), own, std::int64_t{0}),
                    .count = *own};
  }
  return chunk;
}

/// The rows of fused QKV that the part keeps: the heads of group g are its query heads, its key
/// head and its value head, and the cut between two ranks may fall inside a head.
/// `kind` is "weight" or "bias", which have the same rows.
std::vector<RowRun> qkv_runs(const TensorPart& part, const std::string& attention,
                             const std::string& kind) {
  const std::int64_t head = part.config.head_dim;
  const std::int64_t query_rows =
      part.config.num_attention_heads / part.config.num_key_value_heads * head;
  const std::int64_t group_rows = query_rows + 2 * head;
  const IndexRange kept = part.of(fused_rows(part.config));
  std::vector<RowRun> runs;
  std::int64_t at = kept.first / group_rows * group_rows;
  const auto add = [&](const char* projection, IndexRange rows) {
    const std::int64_t first = std::max(at, kept.first);
    const std::int64_t end = std::min(at + rows.count, kept.end());
    if (first < end) {
      runs.push_back({.tensor = attention + projection + "." + kind,
                      .rows = {.first = rows.first + first - at, .count = end - first}});
    }
    at += rows.count;
  };
  for (std::int64_t group = kept.first / group_rows; at < kept.end(); ++group) {
    add("q_proj", {.first = group * query_rows, .count = query_rows});
    add("k_proj", {.first = group * head, .count = head});
    add("v_proj", {.first = group * head, .count = head});
  }
  return runs;
}

void add_attention(RankBuilder& builder, const TensorPart& part, const std::string& local,
                   const std::string& canonical) {
  const ModelConfig& config = part.config;
  const std::string attention = canonical + "self_attn.";
  builder.columns(local + "self_attention.linear_proj.weight", attention + "o_proj.weight",
                  part.of(config.num_attention_heads * config.head_dim));
  if (config.output_bias) {
    builder.whole(local + "self_attention.linear_proj.bias", attention + "o_proj.bias");
  }
  builder.whole(local + "self_attention.linear_qkv.layer_norm_weight",
                canonical + "input_layernorm.weight");
  builder.stack(local + "self_attention.linear_qkv.weight", qkv_runs(part, attention, "weight"));
  if (config.qkv_bias) {
    builder.stack(local + "self_attention.linear_qkv.bias", qkv_runs(part, attention, "bias"));
  }
  if (config.qk_norm) {
    builder.whole(local + "self_attention.q_layernorm.weight", attention + "q_norm.weight");
    builder.whole(local + "self_attention.k_layernorm.weight", attention + "k_norm.weight");
  }
}

void add_mlp(RankBuilder& builder, const TensorPart& part, const std::string& local,
             const std::string& canonical) {
  const IndexRange kept = part.of(part.config.intermediate_size);
  const auto fc1 = [&](const std::string& kind) {
    builder.stack(local + "mlp.linear_fc1." + kind,
                  {{.tensor = canonical + "mlp.gate_proj." + kind, .rows = kept},
                   {.tensor = canonical + "mlp.up_proj." + kind, .rows = kept}});
  };
  builder.whole(local + "mlp.linear_fc1.layer_norm_weight",
                canonical + "post_attention_layernorm.weight");
  fc1("weight");
  if (part.config.mlp_bias) fc1("bias");
  builder.columns(local + "mlp.linear_fc2.weight", canonical + "mlp.down_proj.weight", kept);
  if (part.config.mlp_bias) {
    builder.whole(local + "mlp.linear_fc2.bias", canonical + "mlp.down_proj.bias");
  }
}

Result<RankLayout> lay_out_rank(const Model& model, const LayoutSpec& spec, std::uint32_t rank) {
  const ModelConfig& config = model.config;
  const std::int64_t tp = option(spec, "tp");
  const std::int64_t pp = option(spec, "pp");
  const std::int64_t vpp = option(spec, "vpp");
  if (auto fits = check_tp(config, tp, objection); !fits) return failure(fits);
  if (auto fits = check_layers(config, spec); !fits) return failure(fits);

  const TensorPart part{.config = config, .tp = tp, .rank = rank % tp};
  const std::int64_t padded = rounded_up(config.vocab_size, option(spec, "vocab_multiple") * tp);
  RankBuilder builder(model, spec.dtype);
  for (std::int64_t vp = 0; vp < vpp; ++vp) {
    const Chunk chunk = chunk_of(config, spec, vp * pp + rank / tp);
    const std::string prefix = vpp > 1 ? "model" + std::to_string(vp) + "." : "";
    if (chunk.first) {
      builder.padded_rows(prefix + "embedding.word_embeddings.weight", "model.embed_tokens.weight",
                          part.of(padded));
    }
    for (std::int64_t layer = 0; layer < chunk.layers.count; ++layer) {
      const std::string local = prefix + "decoder.layers." + std::to_string(layer) + ".";
      const std::string canonical =
          "model.layers." + std::to_string(chunk.layers.first + layer) + ".";
      add_attention(builder, part, local, canonical);
      add_mlp(builder, part, local, canonical);
    }
    if (!chunk.last) continue;
    builder.whole(prefix + "decoder.final_layernorm.weight", "model.norm.weight");
    // With tied embeddings the last stage keeps a copy of its own of the first stage's rows.
    const bool tied = config.tie_word_embeddings;
    if (!tied || pp > 1) {
      builder.padded_rows(prefix + "output_layer.weight",
                          tied ? "model.embed_tokens.weight" : "lm_head.weight", part.of(padded));
    }
  }
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine megatron_engine{.name = "megatron",
                                 .options = options,
                                 .takes_layers = true,
                                 .families = families,
                                 .size = size,
                                 .lay_out = lay_out_rank};

}  // namespace weir
