// What the decoders that the engines' rules are about must be like, whatever the layout.

#include <iterator>
#include <string>

#include "adapters/oracle/internal/rank_writer.hpp"

namespace weir::oracle::internal {
namespace {

/// Looks up every tensor that the config calls for, and returns how many those are.
std::int64_t require_tensors(const ModelConfig& config, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.intermediate_size;
  const std::int64_t q = config.num_attention_heads * config.head_dim;
  const std::int64_t kv = config.num_key_value_heads * config.head_dim;
  std::int64_t count = 0;
  const auto require_vector = [&](const std::string& name, std::int64_t rows) {
    writer.vector(name, rows);
    ++count;
  };
  const auto require_linear = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                                  bool bias) {
    writer.matrix(name + ".weight", rows, columns);
    ++count;
    if (bias) require_vector(name + ".bias", rows);
  };
  require_linear("model.embed_tokens", config.vocab_size, hidden, false);
  if (!config.tie_word_embeddings) require_linear("lm_head", config.vocab_size, hidden, false);
  require_vector("model.norm.weight", hidden);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    require_vector(layer + "input_layernorm.weight", hidden);
    require_vector(layer + "post_attention_layernorm.weight", hidden);
    require_linear(layer + "self_attn.q_proj", q, hidden, config.qkv_bias);
    require_linear(layer + "self_attn.k_proj", kv, hidden, config.qkv_bias);
    require_linear(layer + "self_attn.v_proj", kv, hidden, config.qkv_bias);
    require_linear(layer + "self_attn.o_proj", hidden, q, config.output_bias);
    if (config.qk_norm) require_vector(layer + "self_attn.q_norm.weight", config.head_dim);
    if (config.qk_norm) require_vector(layer + "self_attn.k_norm.weight", config.head_dim);
    require_linear(layer + "mlp.gate_proj", ffn, hidden, config.mlp_bias);
    require_linear(layer + "mlp.up_proj", ffn, hidden, config.mlp_bias);
    require_linear(layer + "mlp.down_proj", hidden, ffn, config.mlp_bias);
  }
  return count;
}

}  // namespace

bool require_decoder(const Model& model, RankWriter& writer) {
  const ModelConfig& config = model.config;
  const bool known =
      config.family == "llama" || config.family == "qwen2" || config.family == "qwen3";
  return writer.require(known, "the oracle has no rules for model family '" + config.family +
                                   "'; use hf or fsdp2, or a llama, qwen2 or qwen3 model") &&
         writer.require(config.num_key_value_heads >= 1 &&
                            config.num_attention_heads % config.num_key_value_heads == 0,
                        "num_attention_heads must be a multiple of num_key_value_heads") &&
         writer.require(require_tensors(config, writer) == std::ssize(model.tensors),
                        "the model has other tensors than its config.json calls for");
}

}  // namespace weir::oracle::internal
