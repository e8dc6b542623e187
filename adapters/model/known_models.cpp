#include "adapters/model/known_models.hpp"

#include <array>

namespace weir {
namespace {

/// What every decoder has.
struct Sizes {
  std::int64_t hidden_size;
  std::int64_t num_hidden_layers;
  std::int64_t num_attention_heads;
  std::int64_t num_key_value_heads;
  std::int64_t head_dim;
  std::int64_t intermediate_size;
  std::int64_t vocab_size;
};

ModelConfig config_of(const char* family, const Sizes& sizes) {
  ModelConfig config;
  config.family = family;
  config.hidden_size = sizes.hidden_size;
  config.num_hidden_layers = sizes.num_hidden_layers;
  config.num_attention_heads = sizes.num_attention_heads;
  config.num_key_value_heads = sizes.num_key_value_heads;
  config.head_dim = sizes.head_dim;
  config.intermediate_size = sizes.intermediate_size;
  config.vocab_size = sizes.vocab_size;
  return config;
}

ModelConfig qwen3(const Sizes& sizes, bool tied) {
  ModelConfig config = config_of("qwen3", sizes);
  config.tie_word_embeddings = tied;
  config.qk_norm = true;
  return config;
}

ModelConfig qwen3_moe(const Sizes& sizes, std::int64_t experts, std::int64_t expert_size) {
  ModelConfig config = config_of("qwen3_moe", sizes);
  config.qk_norm = true;
  config.experts = {.count = experts, .intermediate_size = expert_size};
  return config;
}

/// Key-value heads and the head's width follow from the rest.
ModelConfig latent(const char* family, Sizes sizes, const ExpertsConfig& experts,
                   const LatentConfig& ranks) {
  sizes.num_key_value_heads = sizes.num_attention_heads;
  sizes.head_dim = ranks.qk_nope_head_dim + ranks.qk_rope_head_dim;
  ModelConfig config = config_of(family, sizes);
  config.experts = experts;
  config.latent = ranks;
  return config;
}

constexpr LatentConfig deepseek_ranks = {.kv_lora_rank = 512,
                                         .q_lora_rank = 1536,
                                         .qk_nope_head_dim = 128,
                                         .qk_rope_head_dim = 64,
                                         .v_head_dim = 128};

ModelConfig glm_4_5() {
  ModelConfig config = config_of("glm4_moe", {5120, 92, 96, 8, 128, 12288, 151552});
  config.qkv_bias = true;
  config.qk_norm = true;
  config.experts = {.count = 160,
                    .intermediate_size = 1536,
                    .shared_intermediate_size = 1536,
                    .first_layer = 3,
                    .score_bias = true,
                    .router_f32 = true};
  return config;
}

ModelConfig ling_1t() {
  ModelConfig config = config_of("bailing_moe_v2", {8192, 80, 64, 8, 128, 18432, 157184});
  config.qk_norm = true;
  config.experts = {.count = 256,
                    .intermediate_size = 2048,
                    .shared_intermediate_size = 2048,
                    .first_layer = 4,
                    .score_bias = true,
                    .groups = 8,
                    .router_f32 = true};
  return config;
}

ModelConfig qwen3_next() {
  ModelConfig config = config_of("qwen3_next", {2048, 48, 16, 2, 256, 5120, 151936});
  config.qk_norm = true;
  config.output_gate = true;
  config.experts = {.count = 512, .intermediate_size = 512, .shared_intermediate_size = 512};
  config.delta_net = {.full_attention_interval = 4,
                      .key_heads = 16,
                      .value_heads = 32,
                      .key_head_dim = 128,
                      .value_head_dim = 128,
                      .conv_kernel_dim = 4};
  return config;
}

ModelConfig gpt_oss(std::int64_t layers, std::int64_t experts) {
  ModelConfig config = config_of("gpt_oss", {2880, layers, 64, 8, 64, 2880, 201088});
  config.qkv_bias = true;
  config.output_bias = true;
  config.experts = {.count = experts, .intermediate_size = 2880};
  return config;
}

ModelConfig deepseek_v3() {
  return latent("deepseek_v3", {7168, 61, 128, 0, 0, 18432, 129280},
                {.count = 256,
                 .intermediate_size = 2048,
                 .shared_intermediate_size = 2048,
                 .first_layer = 3,
                 .score_bias = true,
                 .groups = 8},
                deepseek_ranks);
}

ModelConfig kimi_k2() {
  return latent("kimi_k2", {7168, 61, 64, 0, 0, 18432, 163840},
                {.count = 384,
                 .intermediate_size = 2048,
                 .shared_intermediate_size = 2048,
                 .first_layer = 1,
                 .score_bias = true},
                deepseek_ranks);
}

ModelConfig tiny_deepseek_v3() {
  return latent("deepseek_v3", {64, 3, 4, 0, 0, 96, 1000},
                {.count = 8,
                 .intermediate_size = 48,
                 .shared_intermediate_size = 48,
                 .first_layer = 1,
                 .score_bias = true},
                {.kv_lora_rank = 32,
                 .q_lora_rank = 24,
                 .qk_nope_head_dim = 16,
                 .qk_rope_head_dim = 8,
                 .v_head_dim = 16});
}

struct KnownModel {
  std::string_view name;
  ModelConfig (*config)();
};

/// Sorted by name. Those called "tiny" are no published models: each has every kind of tensor that
/// its family has, in a size that is quick to move.
constexpr std::array<KnownModel, 16> known_models = {{
    {"deepseek-v3", deepseek_v3},
    {"glm-4.5", glm_4_5},
    {"gpt-oss-120b", [] { return gpt_oss(36, 128); }},
    {"gpt-oss-20b", [] { return gpt_oss(24, 32); }},
    {"kimi-k2", kimi_k2},
    {"ling-1t", ling_1t},
    {"llama-3-70b",
     [] {
       return config_of("llama", {8192, 80, 64, 8, 128, 28672, 128256});
     }},
    {"llama-3-8b",
     [] {
       return config_of("llama", {4096, 32, 32, 8, 128, 14336, 128256});
     }},
    {"qwen3-0.6b",
     [] {
       return qwen3({1024, 28, 16, 8, 128, 3072, 151936}, true);
     }},
    {"qwen3-235b-a22b",
     [] {
       return qwen3_moe({4096, 94, 64, 4, 128, 12288, 151936}, 128, 1536);
     }},
    {"qwen3-30b-a3b",
     [] {
       return qwen3_moe({2048, 48, 32, 4, 128, 6144, 151936}, 128, 768);
     }},
    {"qwen3-8b",
     [] {
       return qwen3({4096, 36, 32, 8, 128, 12288, 151936}, false);
     }},
    {"qwen3-next-80b-a3b", qwen3_next},
    {"tiny-deepseek-v3", tiny_deepseek_v3},
    {"tiny-qwen3",
     [] {
       return qwen3({64, 4, 8, 2, 16, 160, 1000}, true);
     }},
    {"tiny-qwen3-moe",
     [] {
       return qwen3_moe({64, 4, 8, 2, 16, 160, 1000}, 8, 48);
     }},
}};

}  // namespace

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (const KnownModel& known : known_models) names.emplace_back(known.name);
  return names;
}

Result<ModelConfig> named_config(std::string_view name) {
  std::string names;
  for (const KnownModel& known : known_models) {
    if (known.name == name) return known.config();
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return failure(ErrorCode::not_found,
                 "no model named \"" + std::string(name) + "\"; known are " + names);
}

Result<Model> named_model(std::string_view name) {
  const Result<ModelConfig> config = named_config(name);
  if (!config) return failure(config);
  return model_of(*config);
}

}  // namespace weir
