#include "adapters/model/model.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/model/internal/families.hpp"

namespace weir {
namespace {

constexpr const char* embedding_name = "model.embed_tokens.weight";
constexpr const char* head_name = "lm_head.weight";

struct Bound {
  const char* key;
  std::int64_t value;
  std::int64_t max;
};

/// Collects tensors under Hugging Face's names.
class TensorList {
 public:
  explicit TensorList(ElementType type) : type_(type) {}

  void add(std::string name, Dims shape) {
    tensors_.push_back({std::move(name), type_, shape, TensorKind::parameter});
  }

  void add_linear(const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
    add(name + ".weight", {rows, columns});
    if (bias) add(name + ".bias", {rows});
  }

  std::vector<Tensor> sorted() && {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
    return std::move(tensors_);
  }

 private:
  ElementType type_;
  std::vector<Tensor> tensors_;
};

void add_layer(TensorList& list, const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::string attention = prefix + "self_attn.";
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t query_rows = config.num_attention_heads * config.head_dim;
  const std::int64_t kv_rows = config.num_key_value_heads * config.head_dim;
  list.add(prefix + "input_layernorm.weight", {hidden});
  list.add_linear(attention + "q_proj", query_rows, hidden, config.qkv_bias);
  list.add_linear(attention + "k_proj", kv_rows, hidden, config.qkv_bias);
  list.add_linear(attention + "v_proj", kv_rows, hidden, config.qkv_bias);
  list.add_linear(attention + "o_proj", hidden, query_rows, config.output_bias);
  if (config.qk_norm) {
    list.add(attention + "q_norm.weight", {config.head_dim});
    list.add(attention + "k_norm.weight", {config.head_dim});
  }
  list.add(prefix + "post_attention_layernorm.weight", {hidden});
  list.add_linear(prefix + "mlp.gate_proj", config.intermediate_size, hidden, config.mlp_bias);
  list.add_linear(prefix + "mlp.up_proj", config.intermediate_size, hidden, config.mlp_bias);
  list.add_linear(prefix + "mlp.down_proj", hidden, config.intermediate_size, config.mlp_bias);
}

}  // namespace

Result<void> check_sizes(const ModelConfig& config) {
  // The largest projection has at most 2^12 * 2^12 * 2^20 elements of 8 bytes = 2^47 bytes, a layer
  // fewer than 8 of them, so all 2^12 layers stay under 2^62; the embeddings add 2 * 2^47.
  const std::array<Bound, 7> bounds = {{
      {"hidden_size", config.hidden_size, std::int64_t{1} << 20},
      {"num_hidden_layers", config.num_hidden_layers, std::int64_t{1} << 12},
      {"num_attention_heads", config.num_attention_heads, std::int64_t{1} << 12},
      {"num_key_value_heads", config.num_key_value_heads, std::int64_t{1} << 12},
      {"head_dim", config.head_dim, std::int64_t{1} << 12},
      {"intermediate_size", config.intermediate_size, std::int64_t{1} << 22},
      {"vocab_size", config.vocab_size, std::int64_t{1} << 24},
  }};
  for (const Bound& bound : bounds) {
    if (bound.value >= 1 && bound.value <= bound.max) continue;
    return failure(ErrorCode::invalid, std::string(bound.key) + " is " +
                                           std::to_string(bound.value) +
                                           "; it should be from 1 to " + std::to_string(bound.max));
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return failure(ErrorCode::invalid, "num_attention_heads (" +
                                           std::to_string(config.num_attention_heads) +
                                           ") does not divide by num_key_value_heads (" +
                                           std::to_string(config.num_key_value_heads) + ")");
  }
  return {};
}

Result<Model> model_of(const ModelConfig& config) {
  if (config.family != "llama" && config.family != "qwen2" && config.family != "qwen3") {
    return failure(ErrorCode::invalid, "no rules for a model of the family \"" + config.family +
                                           "\"; known are llama, qwen2 and qwen3");
  }
  if (auto checked = check_sizes(config); !checked) return failure(checked);
  TensorList list(config.type);
  list.add(embedding_name, {config.vocab_size, config.hidden_size});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    add_layer(list, config, layer);
  }
  list.add("model.norm.weight", {config.hidden_size});
  Model model;
  model.config = config;
  if (config.tie_word_embeddings) {
    model.aliases.push_back({head_name, embedding_name});
  } else {
    list.add(head_name, {config.vocab_size, config.hidden_size});
  }
  model.tensors = std::move(list).sorted();
  return model;
}

}  // namespace weir
