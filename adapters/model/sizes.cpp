// Which sizes of a model are plausible, so that nothing that is computed from them overflows.

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "adapters/model/internal/families.hpp"

namespace weir {
namespace {

struct Bound {
  const char* key;
  std::int64_t value;
  std::int64_t max;
  std::int64_t min = 1;
};

Result<void> check_bounds(std::initializer_list<Bound> bounds) {
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.min && bound.value <= bound.max) continue;
    return failure(ErrorCode::invalid, std::string(bound.key) + " is " +
                                           std::to_string(bound.value) + "; it should be from " +
                                           std::to_string(bound.min) + " to " +
                                           std::to_string(bound.max));
  }
  return {};
}

constexpr std::int64_t heads_max = std::int64_t{1} << 12;
constexpr std::int64_t head_dim_max = std::int64_t{1} << 12;
constexpr std::int64_t width_max = std::int64_t{1} << 20;

Result<void> divides(const char* key, std::int64_t value, const char* by, std::int64_t divisor) {
  if (value % divisor == 0) return {};
  return failure(ErrorCode::invalid, std::string(key) + " (" + std::to_string(value) +
                                         ") does not divide by " + by + " (" +
                                         std::to_string(divisor) + ")");
}

/// With 2^20 routed experts at the most (DeepSeek-V3 has 2^14), of 2^18 rows of 2^20 elements of
/// 8 bytes, three matrices are 2^62.6 bytes; and a list of their names fits into memory.
Result<void> check_experts(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  constexpr std::int64_t all_experts_max = std::int64_t{1} << 20;
  auto checked = check_bounds({
      {"the number of experts", experts.count, std::int64_t{1} << 12},
      {"moe_intermediate_size", experts.intermediate_size, std::int64_t{1} << 18},
      {"the width of the shared experts", experts.shared_intermediate_size, width_max, 0},
      {"n_group", experts.groups, std::int64_t{1} << 12},
      {"first_k_dense_replace", experts.first_layer, config.num_hidden_layers, 0},
  });
  if (!checked) return checked;
  const std::int64_t all = experts.count * (config.num_hidden_layers + config.mtp_layers);
  if (all <= all_experts_max) return {};
  return failure(ErrorCode::invalid, "the layers would have " + std::to_string(all) +
                                         " experts together; there should be at most " +
                                         std::to_string(all_experts_max));
}

Result<void> check_latent(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  auto checked = check_bounds({
      {"kv_lora_rank", latent.kv_lora_rank, width_max},
      {"q_lora_rank", latent.q_lora_rank, width_max, 0},
      {"qk_nope_head_dim", latent.qk_nope_head_dim, head_dim_max},
      {"qk_rope_head_dim", latent.qk_rope_head_dim, head_dim_max},
      {"v_head_dim", latent.v_head_dim, head_dim_max},
  });
  if (!checked || config.head_dim == latent.qk_nope_head_dim + latent.qk_rope_head_dim) {
    return checked;
  }
  return failure(ErrorCode::invalid,
                 "head_dim is not the sum of qk_nope_head_dim and qk_rope_head_dim");
}

Result<void> check_delta_net(const ModelConfig& config) {
  const DeltaNetConfig& net = config.delta_net;
  auto checked = check_bounds({
      {"full_attention_interval", net.full_attention_interval, heads_max},
      {"linear_num_key_heads", net.key_heads, heads_max},
      {"linear_num_value_heads", net.value_heads, heads_max},
      {"linear_key_head_dim", net.key_head_dim, head_dim_max},
      {"linear_value_head_dim", net.value_head_dim, head_dim_max},
      {"linear_conv_kernel_dim", net.conv_kernel_dim, head_dim_max},
  });
  if (!checked) return checked;
  return divides("linear_num_value_heads", net.value_heads, "linear_num_key_heads", net.key_heads);
}

/// That a family has what its tensors are made of.
Result<void> check_family(const ModelConfig& config) {
  const auto lacks = [&](const char* what) {
    return failure(ErrorCode::invalid, config.family + " without " + what);
  };
  const std::string& family = config.family;
  const bool latent = family == "deepseek_v3" || family == "kimi_k2";
  if (latent && config.latent.kv_lora_rank == 0) return lacks("kv_lora_rank");
  const bool drafts = latent || family == "glm4_moe";
  if (config.mtp_layers > 0 && !drafts) {
    return failure(ErrorCode::invalid, family +
                                           " with layers of MTP, whose tensors no rule knows: " +
                                           "set num_nextn_predict_layers to 0");
  }
  if (family == "gpt_oss" && config.experts.count == 0) return lacks("experts");
  if (family == "gpt_oss" && config.experts.first_layer != 0) {
    return failure(ErrorCode::invalid, "gpt_oss with layers that have no experts");
  }
  return {};
}

}  // namespace

Result<void> check_sizes(const ModelConfig& config) {
  // The largest projection has at most 2 * 2^12 * 2^12 * 2^20 elements of 8 bytes = 2^48 bytes, a
  // layer fewer than 8 of them, so all 2^12 layers stay under 2^63; the embeddings add 2 * 2^47.
  auto checked = check_bounds({
      {"hidden_size", config.hidden_size, width_max},
      {"num_hidden_layers", config.num_hidden_layers, std::int64_t{1} << 12},
      {"num_attention_heads", config.num_attention_heads, heads_max},
      {"num_key_value_heads", config.num_key_value_heads, heads_max},
      {"head_dim", config.head_dim, head_dim_max},
      {"intermediate_size", config.intermediate_size, std::int64_t{1} << 22},
      {"vocab_size", config.vocab_size, std::int64_t{1} << 24},
      {"num_nextn_predict_layers", config.mtp_layers, 16, 0},
  });
  if (!checked) return checked;
  if (checked = divides("num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                        config.num_key_value_heads);
      !checked) {
    return checked;
  }
  if (checked = check_family(config); !checked) return checked;
  if (config.experts.count != 0) checked = check_experts(config);
  if (checked && config.latent.kv_lora_rank != 0) checked = check_latent(config);
  if (checked && config.delta_net.full_attention_interval != 0) checked = check_delta_net(config);
  return checked;
}

}  // namespace weir
