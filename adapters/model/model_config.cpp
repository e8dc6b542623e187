#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "adapters/files/file_system.hpp"
#include "adapters/files/strict_json.hpp"
#include "adapters/model/internal/config_reader.hpp"
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

constexpr std::array<FamilyDefaults, 11> defaults_of_families = {{
    {"llama", std::nullopt, std::nullopt},
    {"qwen2", 32, std::nullopt},
    {"qwen3", 32, 128},
    {"qwen3_moe", 4, std::nullopt},
    {"glm4_moe", 8, std::nullopt},
    {"deepseek_v3", std::nullopt, std::nullopt},
    {"kimi_k2", std::nullopt, std::nullopt},
    {"bailing_moe", std::nullopt, std::nullopt},
    {"bailing_moe_v2", std::nullopt, std::nullopt},
    {"qwen3_next", 2, 256},
    {"gpt_oss", 8, 64},
}};

/// PyTorch's names, as Transformers writes them.
ElementType read_type(ConfigReader& reader) {
  const char* key = reader.has("dtype") ? "dtype" : "torch_dtype";
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

/// A scale for each block of weights, as "fp8" has them, or for each output channel, as
/// compressed-tensors does; nothing for anything else.
std::optional<Encoding> codes_of(const Json& json) {
  const auto found = json.find("quantization_config");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  const Json method = found->value("quant_method", Json());
  if (method == "fp8") {
    const Json block = found->value("weight_block_size", Json());
    const auto is_extent = [](const Json& extent) {
      return extent.is_number_unsigned() && extent > 0 && extent <= 1 << 16;
    };
    if (!block.is_array() || block.size() != 2 || !std::ranges::all_of(block, is_extent)) {
      return std::nullopt;
    }
    return Encoding{.kind = Encoding::Kind::scaled,
                    .scales_suffix = "_scale_inv",
                    .block = {block[0].get<std::int64_t>(), block[1].get<std::int64_t>()},
                    .power_of_two = found->value("scale_fmt", Json()) == "ue8m0"};
  }
  const Json groups = found->value("config_groups", Json());
  if (method != "compressed-tensors" || !groups.is_object() || groups.size() != 1) {
    return std::nullopt;
  }
  const Json& group = *groups.begin();
  const Json weights = group.is_object() ? group.value("weights", Json()) : Json();
  const bool channels = weights.is_object() && weights.value("num_bits", Json()) == 8 &&
                        weights.value("strategy", Json()) == "channel" &&
                        weights.value("symmetric", Json()) == true;
  if (!channels) return std::nullopt;
  return Encoding{.kind = Encoding::Kind::scaled, .scales_suffix = "_scale", .block = {1, 0}};
}

/// Whether the rules of the family hold: a quantized model has further tensors, and one with a
/// text model inside has other names.
bool is_plain(const ConfigReader& reader) {
  return !reader.has("quantization_config") && !reader.has("text_config");
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
  if (defaults == defaults_of_families.end() || !is_plain(reader)) {
    ModelConfig unknown;
    unknown.codes = codes_of(json);
    return unknown;
  }

  config.hidden_size = reader.required("hidden_size");
  config.num_hidden_layers = reader.required("num_hidden_layers");
  config.num_attention_heads = reader.required("num_attention_heads");
  config.intermediate_size = reader.required("intermediate_size");
  config.vocab_size = reader.required("vocab_size");
  const bool kv_null = reader.states("num_key_value_heads") && !reader.has("num_key_value_heads");
  const std::int64_t kv_default =
      kv_null ? config.num_attention_heads
              : defaults->num_key_value_heads.value_or(config.num_attention_heads);
  config.num_key_value_heads = reader.number("num_key_value_heads").value_or(kv_default);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings");
  config.type = read_type(reader);
  read_family(reader, config);
  if (config.latent.kv_lora_rank > 0) {
    // Queries and keys of a head are a part without positions and one with them; and every query
    // head has keys of its own, whatever num_key_value_heads says.
    // Bounded, so that the sum can't overflow: what is too large is refused below.
    constexpr std::int64_t enough = std::int64_t{1} << 20;
    config.head_dim = std::min(config.latent.qk_nope_head_dim, enough) +
                      std::min(config.latent.qk_rope_head_dim, enough);
    config.num_key_value_heads = config.num_attention_heads;
  } else if (const auto head_dim = reader.number("head_dim")) {
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
