#pragma once
// What a model is, before anyone cuts it up: its canonical tensors, and the shape facts that
// engines' layout rules need.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Mixture of experts. Every layer from `first_layer` on has `count` routed experts; those before
/// it have a plain MLP.
struct ExpertsConfig {
  std::int64_t count = 0;              ///< 0: a dense model, and nothing else here counts.
  std::int64_t intermediate_size = 0;  ///< Of one routed expert.
  /// Of all shared experts together, which are one MLP; 0 where there are none.
  std::int64_t shared_intermediate_size = 0;
  std::int64_t first_layer = 0;
  /// A buffer of f32 that is added to the router's scores (`e_score_correction_bias`).
  bool score_bias = false;
  std::int64_t groups = 1;  ///< `n_group`: a token's experts are chosen among some groups of them.
  bool router_f32 = false;  ///< Engines that can keep the router's weights in f32 do.

  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

/// Multi-head latent attention: queries and keys pass through narrow projections.
struct LatentConfig {
  std::int64_t kv_lora_rank = 0;  ///< 0: ordinary attention, and nothing else here counts.
  std::int64_t q_lora_rank = 0;   ///< 0: queries are projected at once, by `q_proj`.
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;

  friend bool operator==(const LatentConfig&, const LatentConfig&) = default;
};

/// Gated DeltaNet, the linear attention of all layers but every `full_attention_interval`th.
struct DeltaNetConfig {
  std::int64_t full_attention_interval = 0;  ///< 0: no such layers, and nothing else here counts.
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  ///< A multiple of `key_heads`.
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_kernel_dim = 0;

  friend bool operator==(const DeltaNetConfig&, const DeltaNetConfig&) = default;
};

/// The facts of a Hugging Face `config.json` that layouts depend on, under Hugging Face's names.
/// `family` is empty for a model that no engine's rules know; such a model can still be laid out
/// as `hf` and `fsdp2`, which need its tensors only.
struct ModelConfig {
  std::string family;  ///< `model_type`: "llama", "qwen3", "deepseek_v3", …; empty for any other.
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;           ///< Of queries and keys; with latent attention nope + rope.
  std::int64_t intermediate_size = 0;  ///< Of the MLP in layers without experts.
  std::int64_t vocab_size = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;        ///< Biases on q, k and v (Qwen2; others' `attention_bias`).
  bool output_bias = false;     ///< Bias on o_proj (Llama and Qwen3 `attention_bias`).
  bool mlp_bias = false;        ///< Biases on gate, up and down (Llama `mlp_bias`).
  bool qk_norm = false;         ///< RMS norm weights on q and k heads (Qwen3).
  bool output_gate = false;     ///< `q_proj` holds a gate behind each query head (Qwen3-Next).
  std::int64_t mtp_layers = 0;  ///< Further layers that predict further tokens.
  ExpertsConfig experts = {};
  LatentConfig latent = {};
  DeltaNetConfig delta_net = {};
  ElementType type = ElementType::bf16;  ///< `torch_dtype` or `dtype`.
  /// What `quantization_config` says of a checkpoint's codes of two dimensions, if that is known.
  std::optional<Encoding> codes = {};

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Whether the MLP of that layer is one of experts. Layers of MTP come after all others.
constexpr bool has_experts(const ModelConfig& config, std::int64_t layer) noexcept {
  return config.experts.count > 0 && layer >= config.experts.first_layer;
}

/// Whether that layer's attention is a Gated DeltaNet.
constexpr bool has_delta_net(const ModelConfig& config, std::int64_t layer) noexcept {
  const std::int64_t interval = config.delta_net.full_attention_interval;
  return interval > 0 && (layer + 1) % interval != 0 && layer < config.num_hidden_layers;
}

/// A model: its facts, and all its canonical tensors, sorted by name. With tied embeddings
/// `lm_head.weight` is an alias and not among the tensors; so are the embedding and head that
/// layers of MTP repeat.
struct Model {
  ModelConfig config;
  std::vector<Tensor> tensors;
  std::vector<Alias> aliases;
  std::vector<Encoding> encodings = {};  ///< Those that tensors name.

  friend bool operator==(const Model&, const Model&) = default;
};

/// The shape that a checkpoint's file gives the tensor. It is the canonical one, but where a file
/// interleaves the rows of two projections: gpt-oss's gate and up alternate along the last
/// dimension of its experts, and here are a further dimension, [..., row, gate or up].
std::vector<std::int64_t> stored_shape(const ModelConfig& config, const Tensor& tensor);

/// Reads the text of a `config.json`. Errors (`invalid`) name the key and what it should be:
/// missing or negative numbers, heads that do not divide, implausible sizes (checked so that no
/// product of them overflows).
Result<ModelConfig> parse_model_config(std::string_view json);

/// The canonical tensors and aliases that a config of a known family implies (no file needed).
/// Errors: `invalid` for an unknown family (names the known ones).
Result<Model> model_of(const ModelConfig& config);

/// The inventory of all tensors of the model.
inline Inventory inventory_of(const Model& model) {
  return inventory_of(model.tensors);
}

}  // namespace weir
