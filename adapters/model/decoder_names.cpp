#include "adapters/model/decoder_names.hpp"

#include <array>

namespace weir {

DecoderNames names_of(const ModelConfig& config) {
  DecoderNames names;
  if (config.family.starts_with("bailing_moe")) {
    names.embedding = "model.word_embeddings.weight";
    names.attention = "attention.";
    names.fused_qkv = "query_key_value";
    names.output = "dense";
    names.query_norm = "query_layernorm";
    names.key_norm = "key_layernorm";
    names.score_bias = "mlp.gate.expert_bias";
  } else if (config.family == "qwen3_next") {
    names.shared_experts = "mlp.shared_expert.";
    names.shared_gate = "mlp.shared_expert_gate.weight";
  } else if (has_joint_experts(config)) {
    names.router = "mlp.router.";
  }
  return names;
}

bool has_joint_experts(const ModelConfig& config) noexcept {
  return config.family == "gpt_oss";
}

std::string layer_name(std::int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

std::int64_t query_rows(const ModelConfig& config) noexcept {
  return config.num_attention_heads * config.head_dim * (config.output_gate ? 2 : 1);
}

std::int64_t key_value_rows(const ModelConfig& config) noexcept {
  return config.num_key_value_heads * config.head_dim;
}

ProjectionRows projection_rows(const ModelConfig& config, const std::string& layer,
                               Projection projection, std::string_view kind) {
  const DecoderNames names = names_of(config);
  const auto index = static_cast<std::size_t>(projection);
  std::string tensor = layer;
  tensor.append(names.attention);
  if (names.fused_qkv.empty()) {
    constexpr std::array projections = {"q_proj.", "k_proj.", "v_proj."};
    return {tensor.append(projections[index]).append(kind), 0};
  }
  const std::array<std::int64_t, 3> first = {0, query_rows(config),
                                             query_rows(config) + key_value_rows(config)};
  return {tensor.append(names.fused_qkv).append(".").append(kind), first[index]};
}

}  // namespace weir
