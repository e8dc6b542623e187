#pragma once
// What a model is, before anyone cuts it up: its canonical tensors, and the shape facts that
// engines' layout rules need.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The facts of a Hugging Face `config.json` that layouts depend on, under Hugging Face's names.
/// `family` is empty for a model that no engine's rules know; such a model can still be laid out
/// as `hf` and `fsdp2`, which need its tensors only.
struct ModelConfig {
  std::string family;  ///< `model_type`: "llama", "qwen2", "qwen3"; empty for any other.
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     ///< Biases on q, k and v (Qwen2; Llama and Qwen3 `attention_bias`).
  bool output_bias = false;  ///< Bias on o_proj (Llama and Qwen3 `attention_bias`).
  bool mlp_bias = false;     ///< Biases on gate, up and down (Llama `mlp_bias`).
  bool qk_norm = false;      ///< RMS norm weights on q and k heads (Qwen3).
  ElementType type = ElementType::bf16;  ///< `torch_dtype` or `dtype`.

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// A model: its facts, and all its canonical tensors, sorted by name. With tied embeddings
/// `lm_head.weight` is an alias and not among the tensors.
struct Model {
  ModelConfig config;
  std::vector<Tensor> tensors;
  std::vector<Alias> aliases;

  friend bool operator==(const Model&, const Model&) = default;
};

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
