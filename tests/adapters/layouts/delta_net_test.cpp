#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: Qwen3-Next's linear attention, gated attention and gated shared expert, as engines keep
// them. Method: small tables worked by hand from the checkpoint's order of rows.

namespace weir {

namespace {

/// Two layers: linear attention of two key heads of one row and four value heads of one row, then
/// gated attention of two heads of two rows.
Model next_model() {
  ModelConfig config = llama_config(2, 2, 2);
  config.family = "qwen3_next";
  config.num_hidden_layers = 2;
  config.qk_norm = config.output_gate = true;
  config.experts = {.count = 2, .intermediate_size = 4, .shared_intermediate_size = 4};
  config.delta_net = {.full_attention_interval = 2,
                      .key_heads = 2,
                      .value_heads = 4,
                      .key_head_dim = 1,
                      .value_head_dim = 1,
                      .conv_kernel_dim = 3};
  const auto model = model_of(config);
  INFO((model ? "" : model.error().text));
  REQUIRE(model.has_value());
  return *model;
}

std::string rows_of(const RankLayout& layout, const std::string& name) {
  const LocalTensor* local = find(layout, name);
  REQUIRE(local != nullptr);
  std::string text;
  for (const LocalPiece& piece : local->pieces) {
    text += (text.empty() ? "" : ", ") + std::to_string(piece.box.start[0]) + ":" +
            std::to_string(piece.box.start[0] + piece.box.extent[0]);
  }
  return text;
}

}  // namespace

TEST_CASE("projections of linear attention are cut between groups, the convolution in each part",
          "[layouts]") {
  const Model model = next_model();
  const std::string linear = "model.layers.0.linear_attn.";
  for (const char* spec : {"vllm:tp=2", "sglang:tp=2"}) {
    const RankLayout layout = rank_of(model, spec, 1);
    // Group 1: its q and k, its two v, its two z.
    REQUIRE(rows_of(layout, linear + "in_proj_qkvz.weight") == "6:12");
    REQUIRE(rows_of(layout, linear + "in_proj_ba.weight") == "4:8");
    // All q, then all k, then all v.
    REQUIRE(rows_of(layout, linear + "conv1d.weight") == "1:2, 3:4, 6:8");
    REQUIRE(find(layout, linear + "conv1d.weight")->shape == std::vector<std::int64_t>{4, 1, 3});
    REQUIRE(rows_of(layout, linear + "A_log") == "2:4");
    REQUIRE(find(layout, linear + "A_log")->type == ElementType::f32);
    REQUIRE(rows_of(layout, linear + "dt_bias") == "2:4");
    REQUIRE(find(layout, linear + "out_proj.weight")->pieces.at(0).box == Box{{0, 2}, {2, 2}});
    REQUIRE(rows_of(layout, linear + "norm.weight") == "0:1");
  }
}

TEST_CASE("a gate goes along with its query head", "[layouts]") {
  const RankLayout layout = rank_of(next_model(), "vllm:tp=2", 1);
  // A head has two rows of queries and two of gate; keys and values have two rows a head.
  REQUIRE(rows_of(layout, "model.layers.1.self_attn.qkv_proj.weight") == "4:8, 2:4, 2:4");
  REQUIRE(find(layout, "model.layers.1.self_attn.o_proj.weight")->shape ==
          std::vector<std::int64_t>{2, 2});
}

TEST_CASE("the gate of the shared expert is on every rank", "[layouts]") {
  const Model model = next_model();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const RankLayout layout = rank_of(model, "vllm:tp=2", rank);
    REQUIRE(rows_of(layout, "model.layers.0.mlp.shared_expert_gate.weight") == "0:1");
    REQUIRE(find(layout, "model.layers.0.mlp.shared_expert.gate_up_proj.weight")->shape ==
            std::vector<std::int64_t>{4, 2});
  }
}

TEST_CASE("Megatron projects all queries, keys, values, gates, betas and alphas at once",
          "[layouts]") {
  const Model model = next_model();
  const std::string linear = "decoder.layers.0.self_attention.";
  // A group of in_proj_qkvz is q, k, two v and two z; of in_proj_ba two b and two a.
  REQUIRE(rows_of(rank_of(model, "megatron", 0), linear + "in_proj.weight") ==
          "0:1, 6:7, 1:2, 7:8, 2:4, 8:10, 4:6, 10:12, 0:2, 4:6, 2:4, 6:8");
  const RankLayout layout = rank_of(model, "megatron:tp=2", 1);
  REQUIRE(rows_of(layout, linear + "in_proj.weight") == "6:12, 4:8");
  REQUIRE(rows_of(layout, linear + "conv1d.weight") == "1:2, 3:4, 6:8");
  REQUIRE(rows_of(layout, linear + "dt_bias") == "2:4");
  REQUIRE(find(layout, linear + "A_log")->type == ElementType::bf16);
  REQUIRE(find(layout, linear + "out_proj.weight")->pieces.at(0).box == Box{{0, 2}, {2, 2}});
}

TEST_CASE("Megatron has the gates of a group behind all of its query heads", "[layouts]") {
  ModelConfig config = next_model().config;
  config.num_attention_heads = 4;  // Two groups of two heads, each of two rows and two of gate.
  const Model model = model_with(config);
  const std::string qkv = "decoder.layers.1.self_attention.linear_qkv.weight";
  REQUIRE(rows_of(rank_of(model, "megatron", 0), qkv) ==
          "0:2, 4:6, 2:4, 6:8, 0:2, 0:2, 8:10, 12:14, 10:12, 14:16, 2:4, 2:4");
  REQUIRE(rows_of(rank_of(model, "megatron:tp=2", 1), qkv) ==
          "8:10, 12:14, 10:12, 14:16, 2:4, 2:4");
}

TEST_CASE("a norm that Megatron keeps less one is so encoded", "[layouts]") {
  const Model model = next_model();
  const RankLayout layout = rank_of(model, "megatron", 0);
  for (const LocalTensor& local : layout.tensors) {
    REQUIRE(local.less_one == local.name.ends_with(".out_norm.weight"));
  }
  const Manifest manifest =
      place(model, layout, {.side = Side::trainer}, 1, RegionKind::host_private).manifest;
  REQUIRE(manifest.encodings == std::vector<Encoding>{{Encoding::Kind::plus_one}});
  for (const Tensor& tensor : manifest.tensors) {
    REQUIRE((tensor.encoding == 1) == tensor.name.ends_with("linear_attn.norm.weight"));
  }
}

TEST_CASE("heads of linear attention are whole", "[layouts]") {
  Model model = next_model();
  model.config.num_attention_heads = model.config.num_key_value_heads = 4;
  model = *model_of(model.config);
  REQUIRE(lay_out(model, spec_of("vllm:tp=4"), 0).error().text ==
          "tp=4 does not divide 2 heads of linear attention: use tp=1 or 2");
  REQUIRE(lay_out(model, spec_of("megatron:tp=4"), 0).error().text ==
          "tp=4 does not divide 2 heads of linear attention: use tp=1 or 2");
}

}  // namespace weir
