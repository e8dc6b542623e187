#pragma once
// Small decoder models for tests, listed here tensor by tensor so that they do not rest on
// `model_of`, which is itself under test.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "adapters/model/model.hpp"

namespace weir::oracle {

inline Model decoder_model(const ModelConfig& config) {
  Model model;
  model.config = config;
  const auto add = [&](std::string name, Dims shape) {
    model.tensors.push_back({std::move(name), config.type, shape, TensorKind::parameter});
  };
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q = config.num_attention_heads * config.head_dim;
  const std::int64_t kv = config.num_key_value_heads * config.head_dim;
  const std::int64_t ffn = config.intermediate_size;
  add("model.embed_tokens.weight", {config.vocab_size, hidden});
  add("model.norm.weight", {hidden});
  if (config.tie_word_embeddings) {
    model.aliases.push_back({"lm_head.weight", "model.embed_tokens.weight"});
  } else {
    add("lm_head.weight", {config.vocab_size, hidden});
  }
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto add_linear = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                                bool bias) {
      add(layer + name + ".weight", {rows, columns});
      if (bias) add(layer + name + ".bias", {rows});
    };
    add(layer + "input_layernorm.weight", {hidden});
    add(layer + "post_attention_layernorm.weight", {hidden});
    add_linear("self_attn.q_proj", q, hidden, config.qkv_bias);
    add_linear("self_attn.k_proj", kv, hidden, config.qkv_bias);
    add_linear("self_attn.v_proj", kv, hidden, config.qkv_bias);
    add_linear("self_attn.o_proj", hidden, q, config.output_bias);
    if (config.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {config.head_dim});
      add(layer + "self_attn.k_norm.weight", {config.head_dim});
    }
    add_linear("mlp.gate_proj", ffn, hidden, config.mlp_bias);
    add_linear("mlp.up_proj", ffn, hidden, config.mlp_bias);
    add_linear("mlp.down_proj", hidden, ffn, config.mlp_bias);
  }
  std::sort(model.tensors.begin(), model.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return model;
}

}  // namespace weir::oracle
