// vLLM, dense models: tensor parallelism by whole heads, merged [Q; K; V] with replicated KV heads,
// [gate; up], padded vocabulary.

#include <array>
#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"
#include "adapters/layouts/internal/tensor_parallel.hpp"

namespace weir {
namespace {

constexpr std::array options = {EngineOption{.name = "tp"}};

constexpr std::array<std::string_view, 3> families = {"llama", "qwen2", "qwen3"};

/// vLLM's own `DEFAULT_VOCAB_PADDING_SIZE`.
constexpr std::int64_t vocabulary_multiple = 64;

/// The rank's tensor-parallel part of the model's rows, columns and heads.
struct TensorPart {
  const ModelConfig& config;
  std::int64_t tp = 1;
  std::int64_t rank = 0;

  [[nodiscard]] IndexRange of(std::int64_t total) const { return equal_part(total, tp, rank); }

  [[nodiscard]] IndexRange query_heads() const { return of(config.num_attention_heads); }

  /// Ranks beyond the number of KV heads share them: neighbours hold the same one.
  [[nodiscard]] IndexRange key_value_heads() const {
    const std::int64_t heads = config.num_key_value_heads;
    if (tp >= heads) return {.first = rank / (tp / heads), .count = 1};
    return of(heads);
  }
};

std::int64_t padded_vocabulary(const ModelConfig& config) {
  return rounded_up(config.vocab_size, vocabulary_multiple);
}

std::optional<std::string> objection(const ModelConfig& config, std::int64_t tp) {
  const std::int64_t heads = config.num_key_value_heads;
  if (auto text = indivisible(config.num_attention_heads, tp, "query heads")) return text;
  if (tp < heads) {
    if (auto text = indivisible(heads, tp, "key-value heads")) return text;
  } else if (tp % heads != 0) {
    return "tp=" + std::to_string(tp) + " is no multiple of " + std::to_string(heads) +
           " key-value heads";
  }
  if (auto text = indivisible(config.intermediate_size, tp, "rows of the MLP")) return text;
  return indivisible(padded_vocabulary(config), tp, "rows of the padded vocabulary");
}

Result<LayoutSize> size(const LayoutSpec& spec) {
  return layout_size(spec, option(spec, "tp"), 1);
}

void add_attention(RankBuilder& builder, const TensorPart& part, const std::string& layer) {
  const ModelConfig& config = part.config;
  const std::string attention = layer + "self_attn.";
  const auto rows = [&](IndexRange heads) {
    return IndexRange{.first = heads.first * config.head_dim,
                      .count = heads.count * config.head_dim};
  };
  const IndexRange query = rows(part.query_heads());
  const IndexRange key_value = rows(part.key_value_heads());
  const auto merged = [&](const std::string& kind) {
    builder.stack(attention + "qkv_proj." + kind,
                  {{.tensor = attention + "q_proj." + kind, .rows = query},
                   {.tensor = attention + "k_proj." + kind, .rows = key_value},
                   {.tensor = attention + "v_proj." + kind, .rows = key_value}});
  };
  const auto whole = [&](const std::string& name) {
    builder.whole(attention + name, attention + name);
  };
  merged("weight");
  if (config.qkv_bias) merged("bias");
  builder.columns(attention + "o_proj.weight", attention + "o_proj.weight", query);
  if (config.output_bias) whole("o_proj.bias");
  if (config.qk_norm) {
    whole("q_norm.weight");
    whole("k_norm.weight");
  }
}

void add_mlp(RankBuilder& builder, const TensorPart& part, const std::string& layer) {
  const std::string mlp = layer + "mlp.";
  const IndexRange kept = part.of(part.config.intermediate_size);
  const auto merged = [&](const std::string& kind) {
    builder.stack(mlp + "gate_up_proj." + kind,
                  {{.tensor = mlp + "gate_proj." + kind, .rows = kept},
                   {.tensor = mlp + "up_proj." + kind, .rows = kept}});
  };
  merged("weight");
  if (part.config.mlp_bias) merged("bias");
  builder.columns(mlp + "down_proj.weight", mlp + "down_proj.weight", kept);
  if (part.config.mlp_bias) builder.whole(mlp + "down_proj.bias", mlp + "down_proj.bias");
}

Result<RankLayout> lay_out_rank(const Model& model, const LayoutSpec& spec, std::uint32_t rank) {
  const ModelConfig& config = model.config;
  const TensorPart part{.config = config, .tp = option(spec, "tp"), .rank = rank};
  if (auto fits = check_tp(config, part.tp, objection); !fits) return failure(fits);

  const IndexRange vocabulary = part.of(padded_vocabulary(config));
  RankBuilder builder(model, spec.dtype);
  builder.padded_rows("model.embed_tokens.weight", "model.embed_tokens.weight", vocabulary);
  for (std::int64_t index = 0; index < config.num_hidden_layers; ++index) {
    const std::string layer = "model.layers." + std::to_string(index) + ".";
    add_attention(builder, part, layer);
    add_mlp(builder, part, layer);
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      builder.whole(layer + norm, layer + norm);
    }
  }
  builder.whole("model.norm.weight", "model.norm.weight");
  // Tied embeddings are one tensor here: lm_head.weight is an alias, and the model says so.
  if (!config.tie_word_embeddings) {
    builder.padded_rows("lm_head.weight", "lm_head.weight", vocabulary);
  }
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine vllm_engine{.name = "vllm",
                             .options = options,
                             .families = families,
                             .size = size,
                             .lay_out = lay_out_rank};

}  // namespace weir
