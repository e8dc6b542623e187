#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "adapters/files/file_system.hpp"
#include "adapters/files/strict_json.hpp"
#include "adapters/model/internal/families.hpp"
#include "adapters/model/model.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

/// What Transformers takes for granted where a family's config.json is silent.
struct FamilyDefaults {
  std::string_view family;
  std::optional<std::int64_t> num_key_value_heads;  ///< Nothing: as many as query heads.
  std::optional<std::int64_t> head_dim;             ///< Nothing: hidden_size over heads.
};

constexpr std::array<FamilyDefaults, 3> defaults_of_families = {{
    {"llama", std::nullopt, std::nullopt},
    {"qwen2", 32, std::nullopt},
    {"qwen3", 32, 128},
}};

/// Whether that key is there and not null.
bool has(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null();
}

class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  /// Nothing where the key is absent or null. A fault is kept for later.
  std::optional<std::int64_t> number(const char* key) {
    if (!has(config_, key)) return std::nullopt;
    const Json& value = config_.at(key);
    // A number over 2^63 is of its own kind, and would be negative as the type asked for here.
    const bool fits = !value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX;
    if (value.is_number_integer() && fits) return value.get<std::int64_t>();
    fail(std::string(key) + " should be a whole number");
    return std::nullopt;
  }

  std::int64_t required(const char* key) {
    if (!has(config_, key)) fail(std::string(key) + " is missing");
    return number(key).value_or(0);
  }

  bool flag(const char* key) {
    if (!has(config_, key)) return false;
    const Json& value = config_.at(key);
    if (!value.is_boolean()) fail(std::string(key) + " should be true or false");
    return value.is_boolean() && value.get<bool>();
  }

  std::string text(const char* key) {
    if (!has(config_, key)) return {};
    const Json& value = config_.at(key);
    if (!value.is_string()) fail(std::string(key) + " should be a text");
    return value.is_string() ? value.get<std::string>() : std::string();
  }

  void fail(std::string text) {
    if (fault_.empty()) fault_ = "config.json: " + std::move(text);
  }

  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  const Json& config_;
  std::string fault_;
};

/// PyTorch's names, as Transformers writes them.
ElementType read_type(const Json& config, ConfigReader& reader) {
  const char* key = has(config, "dtype") ? "dtype" : "torch_dtype";
  const std::string name = reader.text(key);
  if (name.empty() || name == "float32") return ElementType::f32;
  if (name == "float16") return ElementType::f16;
  if (name == "bfloat16") return ElementType::bf16;
  if (name == "float8_e4m3fn") return ElementType::f8_e4m3;
  if (name == "float8_e5m2") return ElementType::f8_e5m2;
  reader.fail(std::string(key) + " is " + quoted_name(name) +
              "; it should be one of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2");
  return ElementType::f32;
}

/// Whether the rules of the family hold: a quantized model has further tensors, and one with a
/// text model inside has other names.
bool is_plain(const Json& config) {
  return !has(config, "quantization_config") && !has(config, "text_config");
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text) {
  const Result<Json> parsed = parse_strict_json(text);
  if (!parsed) return failure(parsed.error().code, "config.json " + parsed.error().text);
  const Json& json = *parsed;
  if (!json.is_object()) return failure(ErrorCode::invalid, "config.json is not a JSON object");

  ConfigReader reader(json);
  ModelConfig config;
  config.family = reader.text("model_type");
  const auto defaults =
      std::find_if(defaults_of_families.begin(), defaults_of_families.end(),
                   [&](const FamilyDefaults& known) { return known.family == config.family; });
  if (!reader.fault().empty()) return failure(ErrorCode::invalid, reader.fault());
  if (defaults == defaults_of_families.end() || !is_plain(json)) return ModelConfig{};

  config.hidden_size = reader.required("hidden_size");
  config.num_hidden_layers = reader.required("num_hidden_layers");
  config.num_attention_heads = reader.required("num_attention_heads");
  config.intermediate_size = reader.required("intermediate_size");
  config.vocab_size = reader.required("vocab_size");
  const bool kv_null = json.contains("num_key_value_heads") && !has(json, "num_key_value_heads");
  const std::int64_t kv_default =
      kv_null ? config.num_attention_heads
              : defaults->num_key_value_heads.value_or(config.num_attention_heads);
  config.num_key_value_heads = reader.number("num_key_value_heads").value_or(kv_default);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings");
  const bool attention_bias = reader.flag("attention_bias");
  config.qkv_bias = config.family == "qwen2" || attention_bias;
  config.output_bias = config.family != "qwen2" && attention_bias;
  config.mlp_bias = config.family == "llama" && reader.flag("mlp_bias");
  config.qk_norm = config.family == "qwen3";
  config.type = read_type(json, reader);
  if (const auto head_dim = reader.number("head_dim")) {
    config.head_dim = *head_dim;
  } else if (defaults->head_dim) {
    config.head_dim = *defaults->head_dim;
  } else if (config.num_attention_heads > 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      reader.fail("hidden_size does not divide by num_attention_heads; give head_dim");
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (!reader.fault().empty()) return failure(ErrorCode::invalid, reader.fault());
  if (auto checked = check_sizes(config); !checked) {
    return failure(ErrorCode::invalid, "config.json: " + checked.error().text);
  }
  return config;
}

}  // namespace weir
