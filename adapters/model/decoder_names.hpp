#pragma once
// What each family calls the parts that all decoders have, so that rules can speak of the parts.

#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/model/model.hpp"

namespace weir {

/// Hugging Face's names. Those of modules end in a dot and begin behind "model.layers.0.".
struct DecoderNames {
  std::string_view embedding = "model.embed_tokens.weight";
  std::string_view attention = "self_attn.";
  /// Where it is not empty, one projection behind `attention` holds all query rows, then all key
  /// rows, then all value rows; else they are q_proj, k_proj and v_proj.
  std::string_view fused_qkv;
  std::string_view output = "o_proj";      ///< Behind `attention`.
  std::string_view query_norm = "q_norm";  ///< Behind `attention`.
  std::string_view key_norm = "k_norm";    ///< Behind `attention`.
  std::string_view router = "mlp.gate.";
  std::string_view score_bias = "mlp.gate.e_score_correction_bias";
  std::string_view shared_experts = "mlp.shared_experts.";
  std::string_view shared_gate;  ///< Of shared experts, where there is one.
};

/// The names of the family of that config, which must be a known one.
DecoderNames names_of(const ModelConfig& config);

/// Whether a layer has all of its experts in four tensors (gpt-oss): `gate_up_proj` [expert, input,
/// row, gate or up], `down_proj` [expert, row, output], and a bias of each.
bool has_joint_experts(const ModelConfig& config) noexcept;

inline constexpr std::string_view final_norm_name = "model.norm.weight";
inline constexpr std::string_view head_name = "lm_head.weight";

/// "model.layers.7.".
std::string layer_name(std::int64_t layer);

/// The three inputs of attention, in the order in which a fused projection holds them.
enum class Projection : std::uint8_t { query, key, value };

/// Where rows of a projection begin in the canonical tensor that holds them.
struct ProjectionRows {
  std::string tensor;
  std::int64_t first = 0;
};

/// The rows of a layer's projection. `kind` is "weight" or "bias".
ProjectionRows projection_rows(const ModelConfig& config, const std::string& layer,
                               Projection projection, std::string_view kind);

/// Rows that queries take: one head behind another, each with its gate where there is one.
std::int64_t query_rows(const ModelConfig& config) noexcept;
/// Rows that keys take, and as many that values take.
std::int64_t key_value_rows(const ModelConfig& config) noexcept;

}  // namespace weir
