#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/engines/golden_case.hpp"
#include "tests/adapters/layouts/small_models.hpp"

// Goal: gpt-oss's experts, which its checkpoints keep with inputs before outputs and with gate and
// up in turn, lie turned over and in order where each engine wants them. Method: tables worked by
// hand, in which a number is an element's place in its own canonical tensor.

namespace weir {

namespace {

/// One layer of two experts with two rows each, and two inputs.
ModelConfig gpt_oss_config() {
  ModelConfig config = llama_config(4, 2);
  config.family = "gpt_oss";
  config.qkv_bias = config.output_bias = true;
  config.experts = {.count = 2, .intermediate_size = 2};
  return config;
}

/// "0 4 | 1 5", row by row of the last dimension; "-" for padding.
std::string places(const Model& model, std::string_view spec, std::uint32_t rank,
                   const std::string& name) {
  const RankLayout layout = rank_of(model, spec, rank);
  const NumberedTensor tensor = numbered_rank(model, layout).at(name);
  const std::vector<std::int64_t> first = first_numbers(model);
  const auto& pieces = find(layout, name)->pieces;
  std::string text;
  for (std::size_t i = 0; i < tensor.elements.size(); ++i) {
    if (i > 0) text += i % static_cast<std::size_t>(tensor.shape.back()) == 0 ? " | " : " ";
    text += tensor.elements[i] == 0
                ? "-"
                : std::to_string(tensor.elements[i] - first[pieces.front().tensor]);
  }
  return text;
}

std::string refusal(const ModelConfig& config, std::string_view spec) {
  const auto layout = lay_out(model_with(config), spec_of(spec), 0);
  REQUIRE_FALSE(layout.has_value());
  REQUIRE(layout.error().code == ErrorCode::invalid);
  return layout.error().text;
}

const std::string vllm = "model.layers.0.mlp.experts.routed_experts.";
const std::string sglang = "model.layers.0.mlp.experts.";
const std::string megatron = "decoder.layers.0.mlp.experts.";

}  // namespace

TEST_CASE("gate and up of gpt-oss stay in turn where engines generate, transposed", "[layouts]") {
  const Model model = model_with(gpt_oss_config());
  // Expert e, input i, row r, gate (0) or up (1) is element 8 e + 4 i + 2 r + 0 or 1.
  const std::string whole = "0 4 | 1 5 | 2 6 | 3 7 | 8 12 | 9 13 | 10 14 | 11 15";
  REQUIRE(places(model, "vllm", 0, vllm + "w13_weight") == whole);
  REQUIRE(places(model, "sglang", 0, sglang + "w13_weight") == whole);
  REQUIRE(places(model, "vllm:tp=2", 1, vllm + "w13_weight") == "2 6 | 3 7 | 10 14 | 11 15");
  REQUIRE(places(model, "vllm:tp=2,ep=2", 1, vllm + "w13_weight") == "8 12 | 9 13 | 10 14 | 11 15");
  REQUIRE(places(model, "vllm:tp=2", 1, vllm + "w13_bias") == "2 3 | 6 7");
  // Expert e, row r, output o is element 4 e + 2 r + o.
  REQUIRE(places(model, "sglang", 0, sglang + "w2_weight") == "0 2 | 1 3 | 4 6 | 5 7");
  REQUIRE(places(model, "sglang:tp=2", 1, sglang + "w2_weight") == "2 | 3 | 6 | 7");
}

TEST_CASE("of ranks that share experts the first alone has the bias that all would add",
          "[layouts]") {
  const Model model = model_with(gpt_oss_config());
  REQUIRE(places(model, "vllm:tp=2", 0, vllm + "w2_bias") == "0 1 | 2 3");
  REQUIRE(places(model, "vllm:tp=2", 1, vllm + "w2_bias") == "- - | - -");
  REQUIRE(places(model, "vllm:dp=2", 1, vllm + "w2_bias") == "- - | - -");
  REQUIRE(places(model, "vllm:tp=2,ep=2", 1, vllm + "w2_bias") == "2 3");
  REQUIRE(places(model, "sglang:tp=2", 1, sglang + "w2_weight_bias") == "- - | - -");
}

TEST_CASE("Megatron has gate above up of gpt-oss, an expert in each tensor", "[layouts]") {
  const Model model = model_with(gpt_oss_config());
  REQUIRE(places(model, "megatron", 0, megatron + "linear_fc1.weight1") ==
          "8 12 | 10 14 | 9 13 | 11 15");
  REQUIRE(places(model, "megatron", 0, megatron + "linear_fc1.bias1") == "4 6 5 7");
  REQUIRE(places(model, "megatron:ep=2", 1, megatron + "linear_fc2.weight0") == "4 6 | 5 7");
  REQUIRE(places(model, "megatron:ep=2", 1, megatron + "linear_fc2.bias0") == "2 3");
  REQUIRE(places(model, "megatron:glu_interleave=1", 0, megatron + "linear_fc1.weight0") ==
          "0 4 | 1 5 | 2 6 | 3 7");
  REQUIRE(places(model, "megatron:experts=sequential", 0,
                 megatron + "local_experts.1.linear_fc1.bias") == "4 6 5 7");
}

TEST_CASE("sinks go along with their heads, under each engine's names", "[layouts]") {
  const Model model = model_with(gpt_oss_config());
  REQUIRE(places(model, "vllm:tp=2", 1, "model.layers.0.attn.sinks") == "2 3");
  REQUIRE(places(model, "sglang:tp=2", 1, "model.layers.0.self_attn.sinks") == "2 3");
  REQUIRE(places(model, "megatron:tp=2,etp=1", 1,
                 "decoder.layers.0.self_attention.core_attention.softmax_offset") == "2 3");
  REQUIRE(find(rank_of(model, "vllm", 0), "model.embedding.weight") != nullptr);
  REQUIRE(find(rank_of(model, "sglang", 0), "model.embed_tokens.weight") != nullptr);
}

TEST_CASE("all experts of a layer are one piece where they are in order", "[layouts]") {
  const Model model = model_with(gpt_oss_config());
  REQUIRE(find(rank_of(model, "vllm", 0), vllm + "w13_weight")->pieces.size() == 1);
  REQUIRE(find(rank_of(model, "megatron", 0), megatron + "linear_fc1.weight0")->pieces.size() == 1);
}

TEST_CASE("a file has gate and up of gpt-oss in one dimension", "[layouts]") {
  const Model model = model_with(gpt_oss_config());
  const std::string experts = "model.layers.0.mlp.experts.";
  for (const char* spec : {"hf", "fsdp2:dp=2"}) {
    const std::int64_t count = spec == std::string("hf") ? 2 : 1;
    const RankLayout layout = rank_of(model, spec, 0);
    REQUIRE(find(layout, experts + "gate_up_proj")->shape ==
            std::vector<std::int64_t>{count, 2, 4});
    REQUIRE(find(layout, experts + "gate_up_proj_bias")->shape ==
            std::vector<std::int64_t>{count, 4});
  }
}

TEST_CASE("what engines do not do with gpt-oss is refused", "[layouts]") {
  const ModelConfig config = gpt_oss_config();
  REQUIRE(refusal(config, "megatron:tp=2") ==
          "etp=2: Megatron-Core does not cut experts with biases, as gpt_oss has them: give etp=1");
  REQUIRE(refusal(config, "sglang:tp=2,ep=2") ==
          "ep=2: SGLang cuts each expert of gpt_oss over all tp ranks, leave ep out");
  REQUIRE(refusal(config, "vllm:tp=2,ep=2,redundant=2") ==
          "vllm has no redundant experts of gpt_oss: leave redundant= and physical= out");
  REQUIRE(refusal(config, "sglang:physical=1-0") ==
          "sglang has no redundant experts of gpt_oss: leave redundant= and physical= out");
  REQUIRE(refusal(config, "vllm:gate_up=w31") ==
          "gate_up=w31: gate and up of gpt_oss alternate row by row: leave it out");
  ModelConfig odd = config;
  odd.experts.count = 3;
  REQUIRE(refusal(odd, "vllm:tp=2,ep=2") == "ep=2 does not divide 3 experts: use a divisor of 3");
}

}  // namespace weir
