#pragma once
// Models small enough to be worked by hand, and local tensors written so that a person can read
// which canonical row lies where.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"

namespace weir {

/// One layer, MLP width 8 and a vocabulary of 64. With `head_dim` 1 a row is a head.
inline ModelConfig llama_config(std::int64_t query_heads, std::int64_t key_value_heads,
                                std::int64_t head_dim = 1) {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = 2;
  config.num_hidden_layers = 1;
  config.num_attention_heads = query_heads;
  config.num_key_value_heads = key_value_heads;
  config.head_dim = head_dim;
  config.intermediate_size = 8;
  config.vocab_size = 64;
  return config;
}

/// Two layers of latent attention, of which the first is dense; four heads of 3 + 2 for queries and
/// keys, 4 for values.
inline ModelConfig latent_config(std::int64_t experts, std::int64_t q_lora_rank = 3) {
  ModelConfig config = llama_config(4, 4, 5);
  config.family = "deepseek_v3";
  config.num_hidden_layers = 2;
  config.experts = {.count = experts,
                    .intermediate_size = 4,
                    .shared_intermediate_size = 4,
                    .first_layer = 1,
                    .score_bias = true,
                    .groups = 2};
  config.latent = {.kv_lora_rank = 6,
                   .q_lora_rank = q_lora_rank,
                   .qk_nope_head_dim = 3,
                   .qk_rope_head_dim = 2,
                   .v_head_dim = 4};
  return config;
}

/// With the tensors that the library gives a model of that config.
inline Model model_with(const ModelConfig& config) {
  const auto model = model_of(config);
  INFO((model ? "" : model.error().text));
  REQUIRE(model.has_value());
  return *model;
}

/// Every canonical tensor that the config implies.
inline Model small_model(const ModelConfig& config) {
  Model model{.config = config, .tensors = {}, .aliases = {}};
  const auto add = [&](const std::string& name, Dims shape) {
    model.tensors.push_back({.name = name, .type = config.type, .shape = shape});
  };
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  };
  const std::int64_t h = config.hidden_size;
  const std::int64_t q = config.num_attention_heads * config.head_dim;
  const std::int64_t kv = config.num_key_value_heads * config.head_dim;
  const std::int64_t f = config.intermediate_size;
  add("model.embed_tokens.weight", {config.vocab_size, h});
  for (std::int64_t index = 0; index < config.num_hidden_layers; ++index) {
    const std::string layer = "model.layers." + std::to_string(index) + ".";
    linear(layer + "self_attn.q_proj", q, h, config.qkv_bias);
    linear(layer + "self_attn.k_proj", kv, h, config.qkv_bias);
    linear(layer + "self_attn.v_proj", kv, h, config.qkv_bias);
    linear(layer + "self_attn.o_proj", h, q, config.output_bias);
    if (config.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {config.head_dim});
      add(layer + "self_attn.k_norm.weight", {config.head_dim});
    }
    linear(layer + "mlp.gate_proj", f, h, config.mlp_bias);
    linear(layer + "mlp.up_proj", f, h, config.mlp_bias);
    linear(layer + "mlp.down_proj", h, f, config.mlp_bias);
    add(layer + "input_layernorm.weight", {h});
    add(layer + "post_attention_layernorm.weight", {h});
  }
  add("model.norm.weight", {h});
  if (config.tie_word_embeddings) {
    model.aliases = {{.name = "lm_head.weight", .of = "model.embed_tokens.weight"}};
  } else {
    add("lm_head.weight", {config.vocab_size, h});
  }
  std::ranges::sort(model.tensors, {}, &Tensor::name);
  return model;
}

inline LayoutSpec spec_of(std::string_view text) {
  const auto spec = parse_layout(text);
  INFO((spec ? "" : spec.error().text));
  REQUIRE(spec.has_value());
  return *spec;
}

inline RankLayout rank_of(const Model& model, std::string_view spec, std::uint32_t rank) {
  const auto layout = lay_out(model, spec_of(spec), rank);
  INFO(std::string(spec) << ": " << (layout ? "" : layout.error().text));
  REQUIRE(layout.has_value());
  return *layout;
}

inline const LocalTensor* find(const RankLayout& layout, std::string_view name) {
  const auto found = std::ranges::find(layout.tensors, name, &LocalTensor::name);
  return found == layout.tensors.end() ? nullptr : &*found;
}

/// "q" for "model.layers.0.self_attn.q_proj.weight": enough to tell a fused tensor's parts apart.
inline std::string short_name(const std::string& canonical) {
  for (const char* part : {"q", "k", "v", "gate", "up", "embed", "lm_head"}) {
    const std::string name(part);
    if (canonical.find("." + name + "_") != std::string::npos || canonical.starts_with(name)) {
      return name;
    }
  }
  return canonical;
}

/// The pieces of a local tensor in the order in which they lie there: "q 0:4, k 0:1, zero 2".
/// Requires that pieces are dense runs of whole rows, one after another from row 0 on.
inline std::string row_runs(const Model& model, const RankLayout& layout, std::string_view name) {
  const LocalTensor* local = find(layout, name);
  REQUIRE(local != nullptr);
  std::string text;
  std::int64_t row = 0;
  for (const LocalPiece& piece : local->pieces) {
    const Tensor& tensor = model.tensors[piece.tensor];
    const Dims dense = dense_strides(tensor.shape, 1);
    REQUIRE(piece.stride == dense);
    REQUIRE(piece.offset == row * dense[0]);
    for (int dim = 1; dim < tensor.shape.rank(); ++dim) {
      REQUIRE(piece.box.extent[dim] == tensor.shape[dim]);
      REQUIRE(local->shape[static_cast<std::size_t>(dim)] == tensor.shape[dim]);
    }
    const std::int64_t first = piece.box.start[0];
    row += piece.box.extent[0];
    text += (text.empty() ? "" : ", ") + short_name(tensor.name) + " " + std::to_string(first) +
            ":" + std::to_string(first + piece.box.extent[0]);
  }
  const std::int64_t zero = local->shape[0] - row;
  if (zero != 0) text += (text.empty() ? "zero " : ", zero ") + std::to_string(zero);
  return text;
}

/// "name 4x2" of every local tensor, in order.
inline std::vector<std::string> names_and_shapes(const RankLayout& layout) {
  std::vector<std::string> lines;
  for (const LocalTensor& local : layout.tensors) {
    lines.push_back(local.name + " " + text_of(Dims(std::span(local.shape))));
  }
  return lines;
}

}  // namespace weir
