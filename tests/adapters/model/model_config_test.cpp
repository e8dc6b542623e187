// Goal: a config.json means here what it means to Transformers.
// Method: texts with one point changed at a time; expected values from Transformers' own rules.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "adapters/model/model.hpp"
#include "tests/adapters/model/config_fault.hpp"

namespace weir {
namespace {

nlohmann::json config_of(const char* family) {
  return {{"model_type", family},     {"hidden_size", 64},        {"num_hidden_layers", 2},
          {"num_attention_heads", 8}, {"num_key_value_heads", 2}, {"head_dim", 16},
          {"intermediate_size", 96},  {"vocab_size", 100},        {"torch_dtype", "bfloat16"}};
}

ModelConfig parsed(const nlohmann::json& json) {
  const auto config = parse_model_config(json.dump());
  REQUIRE(config.has_value());
  return *config;
}

}  // namespace

TEST_CASE("sizes are taken as they stand", "[model]") {
  ModelConfig expected;
  expected.family = "qwen3";
  expected.hidden_size = 64;
  expected.num_hidden_layers = 2;
  expected.num_attention_heads = 8;
  expected.num_key_value_heads = 2;
  expected.head_dim = 16;
  expected.intermediate_size = 96;
  expected.vocab_size = 100;
  expected.qk_norm = true;
  expected.type = ElementType::bf16;
  REQUIRE(parsed(config_of("qwen3")) == expected);
}

TEST_CASE("what is not said is what Transformers takes for granted", "[model]") {
  const auto without = [](const char* family, std::int64_t heads) {
    auto json = config_of(family);
    json["num_attention_heads"] = heads;
    json.erase("num_key_value_heads");
    json.erase("head_dim");
    json.erase("torch_dtype");
    return parsed(json);
  };
  REQUIRE(without("llama", 8).num_key_value_heads == 8);
  REQUIRE(without("llama", 8).head_dim == 8);
  REQUIRE(without("llama", 8).type == ElementType::f32);
  REQUIRE_FALSE(without("llama", 8).tie_word_embeddings);
  REQUIRE(without("qwen2", 64).num_key_value_heads == 32);
  REQUIRE(without("qwen2", 64).head_dim == 1);
  REQUIRE(without("qwen3", 64).num_key_value_heads == 32);
  REQUIRE(without("qwen3", 64).head_dim == 128);
  auto json = config_of("qwen3");
  json["num_key_value_heads"] = nullptr;
  REQUIRE(parsed(json).num_key_value_heads == 8);
}

TEST_CASE("biases are where each family has them", "[model]") {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(family);
    auto json = config_of(family);
    const bool qwen2 = json["model_type"] == "qwen2";
    REQUIRE(parsed(json).qkv_bias == qwen2);
    REQUIRE_FALSE(parsed(json).output_bias);
    REQUIRE_FALSE(parsed(json).mlp_bias);
    json["attention_bias"] = true;
    json["mlp_bias"] = true;
    REQUIRE(parsed(json).qkv_bias);
    REQUIRE(parsed(json).output_bias == !qwen2);
    REQUIRE(parsed(json).mlp_bias == (json["model_type"] == "llama"));
    REQUIRE(parsed(json).qk_norm == (json["model_type"] == "qwen3"));
  }
}

TEST_CASE("the type is read under its old and its new key", "[model]") {
  auto json = config_of("llama");
  REQUIRE(parsed(json).type == ElementType::bf16);
  for (const auto& [name, type] :
       {std::pair("float32", ElementType::f32), std::pair("float16", ElementType::f16),
        std::pair("bfloat16", ElementType::bf16), std::pair("float8_e4m3fn", ElementType::f8_e4m3),
        std::pair("float8_e5m2", ElementType::f8_e5m2)}) {
    json["dtype"] = name;
    REQUIRE(parsed(json).type == type);
  }
  json["dtype"] = "int4";
  REQUIRE(fault_of(json) ==
          "config.json: dtype is \"int4\"; it should be one of float32, float16, bfloat16, "
          "float8_e4m3fn, float8_e5m2");
}

TEST_CASE("a model that no engine's rules know has no family and no fault", "[model]") {
  REQUIRE(parsed(nlohmann::json::object()) == ModelConfig{});
  REQUIRE(parsed({{"model_type", "bert"}, {"hidden_size", "many"}}) == ModelConfig{});
  auto multi_modal = config_of("llama");
  multi_modal["text_config"] = config_of("llama");
  REQUIRE(parsed(multi_modal) == ModelConfig{});
  auto quantized = config_of("llama");
  quantized["quantization_config"] = {{"quant_method", "fp8"}};
  REQUIRE(parsed(quantized) == ModelConfig{});
}

TEST_CASE("a config says how codes are scaled, where it says what is known", "[model]") {
  const auto codes = [](const nlohmann::json& quantization) {
    auto json = config_of("llama");
    json["quantization_config"] = quantization;
    const ModelConfig config = parsed(json);
    REQUIRE(config.family.empty());
    return config.codes;
  };
  nlohmann::json blocks = {{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}};
  Encoding expected{.kind = Encoding::Kind::scaled,
                    .scales_suffix = "_scale_inv",
                    .block = {128, 64},
                    .power_of_two = false};
  REQUIRE(codes(blocks) == expected);
  blocks["scale_fmt"] = "ue8m0";
  expected.power_of_two = true;
  REQUIRE(codes(blocks) == expected);
  const nlohmann::json weights = {{"num_bits", 8}, {"strategy", "channel"}, {"symmetric", true}};
  const nlohmann::json channels = {{"quant_method", "compressed-tensors"},
                                   {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  REQUIRE(codes(channels) ==
          Encoding{.kind = Encoding::Kind::scaled, .scales_suffix = "_scale", .block = {1, 0}});
  for (const nlohmann::json& unknown :
       {nlohmann::json("fp8"), nlohmann::json::object(),
        nlohmann::json{{"quant_method", "fp8"}, {"weight_block_size", {128}}},
        nlohmann::json{{"quant_method", "fp8"}, {"weight_block_size", {128, -1}}},
        nlohmann::json{{"quant_method", "compressed-tensors"}, {"config_groups", {1, 2}}}}) {
    CAPTURE(unknown.dump());
    REQUIRE_FALSE(codes(unknown));
  }
  const nlohmann::json others = {{"num_bits", 4}, {"strategy", "group"}, {"symmetric", false}};
  for (const auto& [key, value] : others.items()) {
    CAPTURE(key);
    nlohmann::json other = channels;
    other["config_groups"]["group_0"]["weights"][key] = value;
    REQUIRE_FALSE(codes(other));
  }
}

TEST_CASE("a faulty config is told by its key", "[model]") {
  const auto changed = [](const char* key, const nlohmann::json& value) {
    auto json = config_of("llama");
    json[key] = value;
    return fault_of(json);
  };
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size"}) {
    auto json = config_of("llama");
    json.erase(key);
    REQUIRE(fault_of(json) == "config.json: " + std::string(key) + " is missing");
    REQUIRE(changed(key, "8") == "config.json: " + std::string(key) + " should be a whole number");
  }
  REQUIRE(changed("hidden_size", 1.5) == "config.json: hidden_size should be a whole number");
  REQUIRE(changed("hidden_size", 18446744073709551615U) ==
          "config.json: hidden_size should be a whole number");
  REQUIRE(changed("hidden_size", -1) ==
          "config.json: hidden_size is -1; it should be from 1 to 1048576");
  REQUIRE(changed("vocab_size", 0) ==
          "config.json: vocab_size is 0; it should be from 1 to 16777216");
  REQUIRE(changed("num_hidden_layers", 4097) ==
          "config.json: num_hidden_layers is 4097; it should be from 1 to 4096");
  REQUIRE(changed("num_attention_heads", 0) ==
          "config.json: num_attention_heads is 0; it should be from 1 to 4096");
  REQUIRE(changed("head_dim", 0) == "config.json: head_dim is 0; it should be from 1 to 4096");
  REQUIRE(changed("intermediate_size", 4194305) ==
          "config.json: intermediate_size is 4194305; it should be from 1 to 4194304");
  REQUIRE(changed("num_key_value_heads", 3) ==
          "config.json: num_attention_heads (8) does not divide by num_key_value_heads (3)");
  REQUIRE(changed("tie_word_embeddings", 1) ==
          "config.json: tie_word_embeddings should be true or false");
  REQUIRE(changed("torch_dtype", 16) == "config.json: torch_dtype should be a text");
  REQUIRE(changed("model_type", 16) == "config.json: model_type should be a text");
  auto uneven = config_of("llama");
  uneven.erase("head_dim");
  uneven["hidden_size"] = 65;
  REQUIRE(fault_of(uneven) ==
          "config.json: hidden_size does not divide by num_attention_heads; give head_dim");
  REQUIRE(fault_of(nlohmann::json::array()) == "config.json is not a JSON object");
  REQUIRE(parse_model_config("{").error().text == "config.json is not JSON in UTF-8");
}

}  // namespace weir
