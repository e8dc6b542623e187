#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: vLLM's merged and padded tensors, as its own code cuts them. Method: small tables worked by
// hand from the rule; with one row per head a run of rows reads as heads.

namespace weir {

namespace {

constexpr const char* qkv = "model.layers.0.self_attn.qkv_proj.weight";

std::vector<std::string> on_each_rank(const Model& model, std::string_view spec,
                                      std::string_view tensor) {
  std::vector<std::string> runs;
  for (std::uint32_t rank = 0; rank < size_of(spec_of(spec))->ranks; ++rank) {
    runs.push_back(row_runs(model, rank_of(model, spec, rank), tensor));
  }
  return runs;
}

std::string refusal(const ModelConfig& config, std::string_view spec, std::uint32_t rank = 0) {
  const auto layout = lay_out(small_model(config), spec_of(spec), rank);
  REQUIRE_FALSE(layout.has_value());
  REQUIRE(layout.error().code == ErrorCode::invalid);
  return layout.error().text;
}

}  // namespace

TEST_CASE("ranks beyond the key-value heads share them", "[layouts]") {
  const Model model = small_model(llama_config(8, 2));
  REQUIRE(on_each_rank(model, "vllm:tp=4", qkv) ==
          std::vector<std::string>{"q 0:2, k 0:1, v 0:1", "q 2:4, k 0:1, v 0:1",
                                   "q 4:6, k 1:2, v 1:2", "q 6:8, k 1:2, v 1:2"});
}

TEST_CASE("merged QKV is all of the rank's queries, then its keys, then its values", "[layouts]") {
  const Model model = small_model(llama_config(8, 4, 2));
  REQUIRE(on_each_rank(model, "vllm", qkv) == std::vector<std::string>{"q 0:16, k 0:8, v 0:8"});
  REQUIRE(on_each_rank(model, "vllm:tp=2", qkv) ==
          std::vector<std::string>{"q 0:8, k 0:4, v 0:4", "q 8:16, k 4:8, v 4:8"});
}

TEST_CASE("the bias of merged QKV has the rows of its weight", "[layouts]") {
  ModelConfig config = llama_config(4, 2);
  config.qkv_bias = true;
  REQUIRE(
      on_each_rank(small_model(config), "vllm:tp=2", "model.layers.0.self_attn.qkv_proj.bias") ==
      std::vector<std::string>{"q 0:2, k 0:1, v 0:1", "q 2:4, k 1:2, v 1:2"});
}

TEST_CASE("gate_up is the rank's gate rows, then its up rows", "[layouts]") {
  ModelConfig config = llama_config(8, 2);
  config.mlp_bias = true;
  const Model model = small_model(config);
  for (const char* name :
       {"model.layers.0.mlp.gate_up_proj.weight", "model.layers.0.mlp.gate_up_proj.bias"}) {
    REQUIRE(on_each_rank(model, "vllm:tp=2", name) ==
            std::vector<std::string>{"gate 0:4, up 0:4", "gate 4:8, up 4:8"});
  }
}

TEST_CASE("tensors that are fused have one type", "[layouts]") {
  Model model = small_model(llama_config(8, 2));
  Tensor& key =
      *std::ranges::find(model.tensors, "model.layers.0.self_attn.k_proj.weight", &Tensor::name);
  key.type = ElementType::f32;
  REQUIRE(lay_out(model, spec_of("vllm"), 0).error() ==
          Error{ErrorCode::invalid,
                "model.layers.0.self_attn.qkv_proj.weight would fuse "
                "model.layers.0.self_attn.q_proj.weight of type bf16 with "
                "model.layers.0.self_attn.k_proj.weight of type f32: keep both in one type in the "
                "checkpoint or, where both are f32 or bf16, add dtype=bf16 or dtype=f32 to the "
                "layout"});
  REQUIRE(find(rank_of(model, "vllm:dtype=f32", 0), qkv)->type == ElementType::f32);
  REQUIRE(find(rank_of(model, "vllm:dtype=bf16", 0), qkv)->type == ElementType::bf16);
  key.type = ElementType::f16;
  REQUIRE_FALSE(lay_out(model, spec_of("vllm:dtype=f32"), 0).has_value());
}

TEST_CASE("vLLM's output projections are cut by columns", "[layouts]") {
  const Model model = small_model(llama_config(4, 2, 2));
  const RankLayout layout = rank_of(model, "vllm:tp=4", 1);
  const LocalTensor* projection = find(layout, "model.layers.0.self_attn.o_proj.weight");
  REQUIRE(projection != nullptr);
  REQUIRE(projection->shape == std::vector<std::int64_t>{2, 2});
  REQUIRE(projection->pieces.at(0).box == Box{{0, 2}, {2, 2}});
  REQUIRE(projection->pieces.at(0).stride == Dims{2, 1});
  const LocalTensor* down = find(layout, "model.layers.0.mlp.down_proj.weight");
  REQUIRE(down != nullptr);
  REQUIRE(down->pieces.at(0).box == Box{{0, 2}, {2, 2}});
}

TEST_CASE("vLLM pads the vocabulary to a multiple of 64 rows before it is cut", "[layouts]") {
  ModelConfig config = llama_config(8, 2);
  config.vocab_size = 130;  // 62 short of 192.
  const Model model = small_model(config);
  REQUIRE(
      on_each_rank(model, "vllm:tp=4", "model.embed_tokens.weight") ==
      std::vector<std::string>{"embed 0:48", "embed 48:96", "embed 96:130, zero 14", "zero 48"});
  REQUIRE(on_each_rank(model, "vllm:tp=8", "lm_head.weight").back() == "zero 24");
}

TEST_CASE("a rank keeps vLLM's own names and shapes, in its order", "[layouts]") {
  ModelConfig config = llama_config(8, 2, 4);
  config.family = "qwen3";
  config.qk_norm = true;
  config.qkv_bias = true;
  REQUIRE(names_and_shapes(rank_of(small_model(config), "vllm:tp=4", 3)) ==
          std::vector<std::string>{
              "model.embed_tokens.weight 16x2",
              "model.layers.0.self_attn.qkv_proj.weight 16x2",
              "model.layers.0.self_attn.qkv_proj.bias 16",
              "model.layers.0.self_attn.o_proj.weight 2x8",
              "model.layers.0.self_attn.q_norm.weight 4",
              "model.layers.0.self_attn.k_norm.weight 4",
              "model.layers.0.mlp.gate_up_proj.weight 4x2",
              "model.layers.0.mlp.down_proj.weight 2x2",
              "model.layers.0.input_layernorm.weight 2",
              "model.layers.0.post_attention_layernorm.weight 2",
              "model.norm.weight 2",
              "lm_head.weight 16x2",
          });
}

TEST_CASE("biases of the MLP are kept, and a tied lm_head is no tensor", "[layouts]") {
  ModelConfig config = llama_config(2, 2, 2);
  config.mlp_bias = true;
  config.tie_word_embeddings = true;
  REQUIRE(names_and_shapes(rank_of(small_model(config), "vllm:tp=2", 0)) ==
          std::vector<std::string>{
              "model.embed_tokens.weight 32x2",
              "model.layers.0.self_attn.qkv_proj.weight 6x2",
              "model.layers.0.self_attn.o_proj.weight 2x2",
              "model.layers.0.mlp.gate_up_proj.weight 8x2",
              "model.layers.0.mlp.gate_up_proj.bias 8",
              "model.layers.0.mlp.down_proj.weight 2x4",
              "model.layers.0.mlp.down_proj.bias 2",
              "model.layers.0.input_layernorm.weight 2",
              "model.layers.0.post_attention_layernorm.weight 2",
              "model.norm.weight 2",
          });
}

TEST_CASE("a tp that vLLM can't use is refused with those that it can", "[layouts]") {
  ModelConfig config = llama_config(12, 4);
  config.intermediate_size = 24;
  // Of the divisors of 12, 3 divides neither the heads nor the 64 rows of the vocabulary.
  REQUIRE(refusal(config, "vllm:tp=5") == "tp=5 does not divide 12 query heads: use tp=1, 2 or 4");
  REQUIRE(refusal(config, "vllm:tp=3") ==
          "tp=3 does not divide 4 key-value heads: use tp=1, 2 or 4");
  REQUIRE(refusal(config, "vllm:tp=6") ==
          "tp=6 is no multiple of 4 key-value heads: use tp=1, 2 or 4");
  REQUIRE(refusal(config, "vllm:tp=12") ==
          "tp=12 does not divide 64 rows of the padded vocabulary: use tp=1, 2 or 4");
  REQUIRE(refusal(llama_config(16, 2), "vllm:tp=16") ==
          "tp=16 does not divide 8 rows of the MLP: use tp=1, 2, 4 or 8");
  REQUIRE(refusal(config, "vllm:tp=2", 2) == "rank 2 is out of range: vllm:tp=2 has ranks 0 to 1");
}

}  // namespace weir
