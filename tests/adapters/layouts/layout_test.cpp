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

TEST_CASE("biases that an engine would leave out are refused", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.mlp_bias = true;
  REQUIRE(
      refusal(model_with(config), "sglang") ==
      "SGLang leaves out the bias of the MLP of a llama: use a model without it, or hf or fsdp2, "
      "which keep it");
  REQUIRE(lay_out(model_with(config), spec_of("vllm"), 0).has_value());
  config.mlp_bias = false;
  config.qkv_bias = config.output_bias = true;
  for (const char* engine : {"vllm", "sglang"}) {
    REQUIRE(lay_out(model_with(config), spec_of(engine), 0).has_value());
  }
  config.family = "qwen3";
  REQUIRE(refusal(model_with(config), "vllm") ==
          "vLLM leaves out the bias of o_proj of a qwen3: use a model without it, or hf or fsdp2, "
          "which keep it");
  REQUIRE(lay_out(model_with(config), spec_of("sglang"), 0).has_value());
}

TEST_CASE("Megatron has biases everywhere, on query, key and value, or nowhere", "[layouts]") {
  const auto megatron = [](bool qkv, bool output, bool mlp) {
    ModelConfig config = llama_config(2, 2);
    config.qkv_bias = qkv;
    config.output_bias = output;
    config.mlp_bias = mlp;
    return model_with(config);
  };
  const std::string others =
      "Megatron-Core has biases in all linear layers, in query, key and value alone, or in none, "
      "and "
      "this model's are others (attention_bias, mlp_bias): use hf or fsdp2";
  REQUIRE(lay_out(megatron(false, false, false), spec_of("megatron"), 0).has_value());
  REQUIRE(lay_out(megatron(true, false, false), spec_of("megatron"), 0).has_value());
  REQUIRE(lay_out(megatron(true, true, true), spec_of("megatron"), 0).has_value());
  REQUIRE(refusal(megatron(true, true, false), "megatron") == others);
  REQUIRE(refusal(megatron(false, false, true), "megatron") == others);
}

TEST_CASE("experts are dealt out in turn only where vLLM does it", "[layouts]") {
  ModelConfig config = latent_config(4);
  REQUIRE(lay_out(model_with(config), spec_of("vllm:tp=2,ep=2,placement=round_robin"), 0));
  config.experts.groups = 1;
  REQUIRE(refusal(model_with(config), "vllm:tp=2,ep=2,placement=round_robin") ==
          "placement=round_robin: vLLM deals experts out in turn only where they are in several "
          "groups (n_group), and places this model's in runs: leave it out");
}

TEST_CASE("layers of MTP are those of families whose names are known", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.family = "bailing_moe_v2";
  config.experts = {.count = 2, .intermediate_size = 4};
  config.mtp_layers = 1;
  REQUIRE(model_of(config).error().text ==
          "bailing_moe_v2 with layers of MTP, whose tensors no rule knows: set "
          "num_nextn_predict_layers to 0");
}

}  // namespace weir
