// Goal: a config's tensors are those of the Hugging Face checkpoint, by name and shape.
// Method: one-layer models listed by hand; whole known models against their published sizes.
#include "adapters/model/model.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "adapters/model/known_models.hpp"

namespace weir {
namespace {

ModelConfig config_of(const char* family) {
  ModelConfig config;
  config.family = family;
  config.hidden_size = 6;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 5;
  config.intermediate_size = 7;
  config.vocab_size = 11;
  return config;
}

std::map<std::string, Dims> shapes_of(const ModelConfig& config) {
  const auto model = model_of(config);
  REQUIRE(model.has_value());
  std::map<std::string, Dims> shapes;
  for (const Tensor& tensor : model->tensors) {
    REQUIRE(tensor.kind == TensorKind::parameter);
    REQUIRE(tensor.type == config.type);
    REQUIRE((shapes.empty() || shapes.rbegin()->first < tensor.name));
    shapes.emplace(tensor.name, tensor.shape);
  }
  return shapes;
}

const std::map<std::string, Dims> plain_llama = {
    {"lm_head.weight", {11, 6}},
    {"model.embed_tokens.weight", {11, 6}},
    {"model.layers.0.input_layernorm.weight", {6}},
    {"model.layers.0.mlp.down_proj.weight", {6, 7}},
    {"model.layers.0.mlp.gate_proj.weight", {7, 6}},
    {"model.layers.0.mlp.up_proj.weight", {7, 6}},
    {"model.layers.0.post_attention_layernorm.weight", {6}},
    {"model.layers.0.self_attn.k_proj.weight", {10, 6}},
    {"model.layers.0.self_attn.o_proj.weight", {6, 20}},
    {"model.layers.0.self_attn.q_proj.weight", {20, 6}},
    {"model.layers.0.self_attn.v_proj.weight", {10, 6}},
    {"model.norm.weight", {6}}};

std::int64_t elements_of(const Model& model) {
  std::int64_t elements = 0;
  for (const Tensor& tensor : model.tensors) elements += element_count(tensor.shape);
  return elements;
}

}  // namespace

TEST_CASE("a plain model has the plain tensors", "[model]") {
  REQUIRE(shapes_of(config_of("llama")) == plain_llama);
}

TEST_CASE("biases and norms of heads are further tensors", "[model]") {
  ModelConfig config = config_of("llama");
  config.qkv_bias = config.output_bias = config.mlp_bias = config.qk_norm = true;
  auto expected = plain_llama;
  expected["model.layers.0.mlp.down_proj.bias"] = {6};
  expected["model.layers.0.mlp.gate_proj.bias"] = {7};
  expected["model.layers.0.mlp.up_proj.bias"] = {7};
  expected["model.layers.0.self_attn.k_proj.bias"] = {10};
  expected["model.layers.0.self_attn.k_norm.weight"] = {5};
  expected["model.layers.0.self_attn.o_proj.bias"] = {6};
  expected["model.layers.0.self_attn.q_proj.bias"] = {20};
  expected["model.layers.0.self_attn.q_norm.weight"] = {5};
  expected["model.layers.0.self_attn.v_proj.bias"] = {10};
  REQUIRE(shapes_of(config) == expected);
}

TEST_CASE("a tied head is an alias and no tensor", "[model]") {
  ModelConfig config = config_of("qwen2");
  REQUIRE(model_of(config)->aliases.empty());
  config.tie_word_embeddings = true;
  REQUIRE(model_of(config)->aliases ==
          std::vector<Alias>{{"lm_head.weight", "model.embed_tokens.weight"}});
  REQUIRE_FALSE(shapes_of(config).contains("lm_head.weight"));
}

TEST_CASE("a config without rules or with impossible sizes has no tensors", "[model]") {
  REQUIRE(model_of(config_of("bert")).error().text ==
          "no rules for a model of the family \"bert\"; known are llama, qwen2, qwen3, qwen3_moe, "
          "glm4_moe, deepseek_v3, kimi_k2, bailing_moe, bailing_moe_v2, qwen3_next and gpt_oss");
  ModelConfig config = config_of("llama");
  config.head_dim = 0;
  REQUIRE(model_of(config).error().text == "head_dim is 0; it should be from 1 to 4096");
}

TEST_CASE("known models have their published sizes", "[model]") {
  // Parameters as published: 751,632,384 - 155,582,464 (the tied head counted once) for
  // Qwen3-0.6B; 8,190,735,360; 8,030,261,248; 70,553,706,496. Tensors: 11 a layer with QK norms,
  // 9 without, and embedding, final norm and head (none where tied).
  const auto check = [](const char* name, std::int64_t elements, std::size_t tensors) {
    const auto model = named_model(name);
    REQUIRE(model.has_value());
    REQUIRE(elements_of(*model) == elements);
    REQUIRE(model->tensors.size() == tensors);
    REQUIRE(model->config.type == ElementType::bf16);
  };
  check("qwen3-0.6b", 596'049'920, 28 * 11 + 2);
  check("qwen3-8b", 8'190'735'360, 36 * 11 + 3);
  check("llama-3-8b", 8'030'261'248, 32 * 9 + 3);
  check("llama-3-70b", 70'553'706'496, 80 * 9 + 3);
  REQUIRE(named_model("tiny-qwen3")->tensors.size() == 4 * 11 + 2);
  REQUIRE(named_model("qwen3-0.6b")->aliases.size() == 1);
  REQUIRE(named_model("qwen3-8b")->aliases.empty());
}

TEST_CASE("known models with experts have their published sizes", "[model]") {
  // Billions of parameters, without layers of MTP, as in the models' own papers and cards; worked
  // out by hand from the shapes to one digit more.
  const auto check = [](const char* name, double billions) {
    const auto model = named_model(name);
    INFO(name << ": " << (model ? "" : model.error().text));
    REQUIRE(model.has_value());
    const double elements = static_cast<double>(elements_of(*model)) / 1e9;
    INFO(elements);
    REQUIRE(std::abs(elements - billions) <= 0.05);
  };
  check("qwen3-30b-a3b", 30.5);
  check("qwen3-235b-a22b", 235.1);
  check("glm-4.5", 352.8);
  check("deepseek-v3", 671.0);
  check("kimi-k2", 1026.4);
  check("ling-1t", 999.7);
  check("qwen3-next-80b-a3b", 79.7);
  check("gpt-oss-20b", 20.9);
  check("gpt-oss-120b", 116.8);
  // 61 layers of 11 tensors each (two norms, seven of attention, router and bias, or gate, up and
  // down), 58 or 60 of 256 or 384 experts and a shared one; embedding, final norm and head.
  REQUIRE(named_model("deepseek-v3")->tensors.size() == 61 * 9 + 3 * 3 + 58 * (2 + 257 * 3) + 3);
  REQUIRE(named_model("kimi-k2")->tensors.size() == 61 * 9 + 1 * 3 + 60 * (2 + 385 * 3) + 3);
}

TEST_CASE("an unknown name is answered with the known ones", "[model]") {
  const std::vector<std::string> names = known_model_names();
  REQUIRE(std::ranges::is_sorted(names));
  REQUIRE(names.front() == "deepseek-v3");
  const auto unknown = named_model("gpt-9");
  REQUIRE(unknown.error().code == ErrorCode::not_found);
  REQUIRE(unknown.error().text ==
          "no model named \"gpt-9\"; known are deepseek-v3, glm-4.5, gpt-oss-120b, gpt-oss-20b, "
          "kimi-k2, ling-1t, llama-3-70b, llama-3-8b, qwen3-0.6b, qwen3-235b-a22b, qwen3-30b-a3b, "
          "qwen3-8b, qwen3-next-80b-a3b, tiny-deepseek-v3, tiny-qwen3, tiny-qwen3-moe");
}

}  // namespace weir
