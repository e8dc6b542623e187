#pragma once
// Random models for property tests: small, uneven, of every family. The same seed gives the same
// models with every standard library.

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include "adapters/model/model.hpp"

namespace weir::oracle {

/// The seed of a property test: `WEIR_SEED`, or always the same.
inline std::uint64_t seed_from_environment() {
  const char* text = std::getenv("WEIR_SEED");
  return text == nullptr ? 20'260'801 : std::strtoull(text, nullptr, 10);
}

/// Small random numbers from one seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  /// From `low` to `high`, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

/// Experts whose number and width often suit `ranks`, but need not.
inline ExpertsConfig random_experts(Dice& dice, std::int64_t ranks, std::int64_t layers) {
  ExpertsConfig experts;
  experts.count = dice.one_in(2) ? ranks * dice.between(1, ranks > 4 ? 1 : 2) : dice.between(1, 7);
  experts.intermediate_size = dice.one_in(8) ? dice.between(1, 12) : ranks * dice.between(1, 3);
  experts.first_layer = dice.between(0, layers);
  experts.score_bias = dice.one_in(2);
  experts.groups = dice.between(1, 2);
  experts.router_f32 = dice.one_in(3);
  if (dice.one_in(2)) {
    experts.shared_intermediate_size =
        dice.one_in(3) ? dice.between(1, 12) : experts.intermediate_size * dice.between(1, 2);
  }
  return experts;
}

inline LatentConfig random_latent(Dice& dice) {
  return {.kv_lora_rank = dice.between(1, 5),
          .q_lora_rank = dice.one_in(3) ? 0 : dice.between(1, 5),
          .qk_nope_head_dim = dice.between(1, 3),
          .qk_rope_head_dim = dice.between(1, 3),
          .v_head_dim = dice.between(1, 4)};
}

/// Gives a decoder experts, latent attention or layers of MTP, as some family has them.
inline void choose_family(Dice& dice, std::int64_t tp, ModelConfig& config) {
  const char* const families[] = {"llama",       "qwen2",          "qwen3",   "qwen3_moe",
                                  "glm4_moe",    "deepseek_v3",    "kimi_k2", "qwen3_next",
                                  "bailing_moe", "bailing_moe_v2", "gpt_oss"};
  config.family = families[dice.between(0, 10)];
  if (config.family != "llama" && !dice.one_in(10)) config.output_bias = config.mlp_bias = false;
  if (config.family == "llama" || config.family == "qwen2" || config.family == "qwen3") return;
  config.num_hidden_layers = dice.between(1, 4);
  config.mlp_bias = false;
  if (config.family == "gpt_oss") {
    const ExpertsConfig experts = random_experts(dice, tp, 0);
    config.experts = {.count = experts.count, .intermediate_size = experts.intermediate_size};
    config.qk_norm = false;
    if (!dice.one_in(10)) config.qkv_bias = config.output_bias = true;
    return;
  }
  if (!dice.one_in(10)) config.experts = random_experts(dice, tp, config.num_hidden_layers);
  if (config.family == "deepseek_v3" || config.family == "kimi_k2") {
    config.latent = random_latent(dice);
    config.qkv_bias = config.output_bias = config.qk_norm = false;
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = config.latent.qk_nope_head_dim + config.latent.qk_rope_head_dim;
    if (dice.one_in(3)) config.mtp_layers = dice.between(1, 2);
  }
  if (config.family == "qwen3_next") {
    if (!dice.one_in(6)) config.qkv_bias = false;
    config.output_gate = true;
    const std::int64_t keys = dice.one_in(8) ? dice.between(1, 4) : tp;
    config.delta_net = {.full_attention_interval = dice.between(1, 4),
                        .key_heads = keys,
                        .value_heads = keys * dice.between(1, 3),
                        .key_head_dim = dice.between(1, 3),
                        .value_head_dim = dice.between(1, 3),
                        .conv_kernel_dim = dice.between(1, 4)};
  }
  if (config.family == "glm4_moe" && dice.one_in(3)) config.mtp_layers = 1;
}

/// A decoder whose numbers suit `tp`, save one time in ten.
inline ModelConfig random_config(Dice& dice, std::int64_t tp) {
  const bool suits = !dice.one_in(10);
  ModelConfig config;
  config.hidden_size = dice.one_in(4) ? tp : dice.between(1, 6);
  config.num_hidden_layers = dice.between(1, 6);
  // Groups that divide tp, are divided by it, or (megatron minds less) neither.
  config.num_key_value_heads = dice.between(1, 6);
  if (suits && dice.one_in(2)) config.num_key_value_heads = std::gcd(tp, dice.between(1, 12));
  const std::int64_t step = suits ? std::lcm(tp, config.num_key_value_heads) : 1;
  config.num_attention_heads = step * dice.between(1, step > 8 ? 1 : 3);
  if (dice.one_in(2)) config.num_attention_heads *= config.num_key_value_heads;
  config.head_dim = dice.between(1, 5);
  // The fused rows are divided by tp if the doubled groups' rows are.
  const std::int64_t kv = 2 * config.num_key_value_heads;
  if (suits && dice.one_in(2)) config.head_dim = tp / std::gcd(tp, kv) * dice.between(1, 2);
  config.intermediate_size = suits ? tp * dice.between(1, 4) : dice.between(1, 30);
  config.vocab_size = dice.between(1, 150);
  config.tie_word_embeddings = dice.one_in(3);
  // None, those of q, k and v, those of all of attention, or all; rarely any.
  const std::int64_t biases = dice.one_in(2) ? 0 : dice.between(1, 3);
  config.qkv_bias = biases > 0;
  config.output_bias = biases > 1;
  config.mlp_bias = biases > 2;
  if (dice.one_in(10)) config.output_bias = !config.output_bias;
  config.qk_norm = dice.one_in(2);
  config.type = dice.one_in(3) ? ElementType::f32 : ElementType::bf16;
  choose_family(dice, tp, config);
  return config;
}

/// Tensors of any rank, type and kind, as no engine has them.
inline Model random_tensors(Dice& dice) {
  Model model;
  const std::int64_t count = dice.between(1, 6);
  for (std::int64_t i = 0; i < count; ++i) {
    Dims shape = Dims::filled(static_cast<int>(dice.between(0, rank_max)), 0);
    for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = dice.between(1, dim == 0 ? 20 : 5);
    model.tensors.push_back({"tensor." + std::to_string(i),
                             static_cast<ElementType>(dice.between(0, element_type_count - 1)),
                             shape, dice.one_in(4) ? TensorKind::buffer : TensorKind::parameter});
  }
  return model;
}

}  // namespace weir::oracle
