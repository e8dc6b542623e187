#include "adapters/model/known_models.hpp"

#include <array>

namespace weir {
namespace {

struct KnownModel {
  std::string_view name;
  std::string_view family;
  std::int64_t hidden_size;
  std::int64_t num_hidden_layers;
  std::int64_t num_attention_heads;
  std::int64_t num_key_value_heads;
  std::int64_t head_dim;
  std::int64_t intermediate_size;
  std::int64_t vocab_size;
  bool tie_word_embeddings;
};

/// Sorted by name. "tiny-qwen3" is no published model: it has every kind of tensor that Qwen3 has
/// in a size that is quick to move.
constexpr std::array<KnownModel, 5> known_models = {{
    {"llama-3-70b", "llama", 8192, 80, 64, 8, 128, 28672, 128256, false},
    {"llama-3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, false},
    {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, true},
    {"qwen3-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, false},
    {"tiny-qwen3", "qwen3", 64, 4, 8, 2, 16, 160, 1000, true},
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
    if (known.name == name) {
      ModelConfig config;
      config.family = known.family;
      config.hidden_size = known.hidden_size;
      config.num_hidden_layers = known.num_hidden_layers;
      config.num_attention_heads = known.num_attention_heads;
      config.num_key_value_heads = known.num_key_value_heads;
      config.head_dim = known.head_dim;
      config.intermediate_size = known.intermediate_size;
      config.vocab_size = known.vocab_size;
      config.tie_word_embeddings = known.tie_word_embeddings;
      config.qk_norm = known.family == "qwen3";
      return config;
    }
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
