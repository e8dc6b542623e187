#include "adapters/layouts/layout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: an engine is never asked for a model that its rule does not know. Method: models with a
// fault, and the whole text of each refusal.

namespace weir {

namespace {

std::string refusal(const Model& model, std::string_view spec) {
  const auto layout = lay_out(model, spec_of(spec), 0);
  REQUIRE_FALSE(layout.has_value());
  REQUIRE(layout.error().code == ErrorCode::invalid);
  return layout.error().text;
}

}  // namespace

TEST_CASE("engines with rules of names take only families that they know", "[layouts]") {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    ModelConfig config = llama_config(2, 2);
    config.family = family;
    const Model model = small_model(config);
    REQUIRE(lay_out(model, spec_of("megatron"), 0).has_value());
    REQUIRE(lay_out(model, spec_of("vllm"), 0).has_value());
  }
  Model model = small_model(llama_config(2, 2));
  model.config.family = "bert";
  REQUIRE(refusal(model, "vllm") ==
          "layout vllm does not know the model family 'bert', only llama, qwen2, qwen3, "
          "qwen3_moe, glm4_moe, deepseek_v3, kimi_k2, bailing_moe, bailing_moe_v2, qwen3_next or "
          "gpt_oss: use hf or fsdp2, which take any model");
  model.config.family = "";
  REQUIRE(refusal(model, "megatron") ==
          "layout megatron does not know this model, only llama, qwen2, qwen3, "
          "qwen3_moe, glm4_moe, deepseek_v3, kimi_k2, bailing_moe, bailing_moe_v2, qwen3_next or "
          "gpt_oss: use hf or fsdp2, which take any model");
  model.config.family = "";
  REQUIRE(lay_out(model, spec_of("hf"), 0).has_value());
  REQUIRE(lay_out(model, spec_of("fsdp2"), 0).has_value());
}

TEST_CASE("engines with rules of names take only models that are what their config says",
          "[layouts]") {
  const Model whole = small_model(llama_config(2, 2));
  const auto position = [](Model& model, std::string_view name) {
    return std::ranges::find(model.tensors, name, &Tensor::name);
  };
  Model model = whole;
  model.tensors.erase(position(model, "model.layers.0.mlp.up_proj.weight"));
  REQUIRE(refusal(model, "vllm") ==
          "the model lacks model.layers.0.mlp.up_proj.weight, which by its config it has: "
          "correct the config");
  model = whole;
  model.tensors.pop_back();
  REQUIRE(refusal(model, "megatron") ==
          "the model lacks model.norm.weight, which by its config it has: correct the config");
  model = whole;
  model.tensors.insert(position(model, "model.norm.weight"),
                       {.name = "model.layers.1.extra", .shape = {2}});
  REQUIRE(refusal(model, "megatron") ==
          "the model has model.layers.1.extra, which by its config it has not: correct the config");
  model = whole;
  model.tensors.push_back({.name = "model.zoo", .shape = {2}});
  REQUIRE(refusal(model, "vllm") ==
          "the model has model.zoo, which by its config it has not: correct the config");
  model = whole;
  position(model, "lm_head.weight")->shape = {64, 3};
  REQUIRE(refusal(model, "vllm") ==
          "lm_head.weight is 64x3 and by its config 64x2: correct the config");
  model = whole;
  model.config.num_key_value_heads = 0;
  REQUIRE_FALSE(lay_out(model, spec_of("vllm"), 0).has_value());
  REQUIRE_FALSE(lay_out(model, spec_of("megatron"), 0).has_value());
}

}  // namespace weir
