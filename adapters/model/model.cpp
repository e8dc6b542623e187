#include "adapters/model/model.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/model/decoder_names.hpp"
#include "adapters/model/internal/families.hpp"

namespace weir {
namespace {

constexpr std::array<std::string_view, 11> families = {
    "llama",   "qwen2",       "qwen3",          "qwen3_moe",  "glm4_moe", "deepseek_v3",
    "kimi_k2", "bailing_moe", "bailing_moe_v2", "qwen3_next", "gpt_oss"};

std::string known_text() {
  std::string text;
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (i > 0) text += i + 1 == families.size() ? " and " : ", ";
    text += families[i];
  }
  return text;
}

}  // namespace

std::span<const std::string_view> known_families() noexcept {
  return families;
}

std::vector<std::int64_t> stored_shape(const ModelConfig& config, const Tensor& tensor) {
  const auto extents = tensor.shape.values();
  std::vector<std::int64_t> shape(extents.begin(), extents.end());
  const bool interleaved =
      has_joint_experts(config) && tensor.name.find("experts.gate_up_proj") != std::string::npos;
  if (interleaved && shape.size() > 1) {
    const std::int64_t alternating = shape.back();
    shape.pop_back();
    shape.back() *= alternating;
  }
  return shape;
}

Result<Model> model_of(const ModelConfig& config) {
  if (std::ranges::find(families, config.family) == families.end()) {
    return failure(ErrorCode::invalid, "no rules for a model of the family \"" + config.family +
                                           "\"; known are " + known_text());
  }
  if (auto checked = check_sizes(config); !checked) return failure(checked);
  const std::string embedding(names_of(config).embedding);
  const std::string head(head_name);
  const bool tied = config.tie_word_embeddings;
  Model model;
  model.config = config;
  model.tensors = decoder_tensors(config);
  const auto add = [&](const std::string& name) {
    model.tensors.push_back(
        {name, config.type, {config.vocab_size, config.hidden_size}, TensorKind::parameter});
  };
  add(embedding);
  if (tied) {
    model.aliases.push_back({head, embedding});
  } else {
    add(head);
  }
  // Checkpoints repeat both in each layer of MTP.
  for (std::int64_t layer = 0; layer < config.mtp_layers; ++layer) {
    const std::string prefix = layer_name(config.num_hidden_layers + layer);
    model.aliases.push_back({prefix + "embed_tokens.weight", embedding});
    model.aliases.push_back({prefix + "shared_head.head.weight", tied ? embedding : head});
  }
  std::ranges::sort(model.tensors, {}, &Tensor::name);
  return model;
}

}  // namespace weir
