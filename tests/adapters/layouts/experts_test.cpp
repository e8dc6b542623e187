#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: experts lie where each engine puts them, whatever the degrees of parallelism. Method: small
// tables worked by hand from the rules; an expert's rows are few enough to be read one by one.

namespace weir {

namespace {

/// One layer of experts, each of four rows; a rank's rows of an expert read as numbers.
ModelConfig moe_config(std::int64_t experts, std::int64_t layers = 1) {
  ModelConfig config = llama_config(4, 2);
  config.family = "qwen3_moe";
  config.num_hidden_layers = layers;
  config.experts = {.count = experts, .intermediate_size = 4};
  return config;
}

/// "0.gate 0:2, 0.up 0:2" for a local tensor of experts: expert, matrix and rows; columns where
/// they are not all. Requires that pieces lie one behind another.
std::string parts_of(const Model& model, const RankLayout& layout, std::string_view name) {
  const LocalTensor* local = find(layout, name);
  REQUIRE(local != nullptr);
  std::string text;
  std::int64_t at = 0;
  for (const LocalPiece& piece : local->pieces) {
    const Tensor& tensor = model.tensors[piece.tensor];
    REQUIRE(piece.offset == at);
    REQUIRE(piece.stride == dense_strides(piece.box.extent, 1));
    at += element_count(piece.box.extent);
    const auto cut = [&](int dim) {
      return std::to_string(piece.box.start[dim]) + ":" +
             std::to_string(piece.box.start[dim] + piece.box.extent[dim]);
    };
    const std::size_t from = tensor.name.find("mlp.") + 4;
    std::string part = tensor.name.substr(from, tensor.name.find("_proj.") - from);
    if (part.starts_with("experts.")) part = part.substr(8);
    text += (text.empty() ? "" : ", ") + part + " " + cut(0);
    if (piece.box.extent[1] != tensor.shape[1]) text += " columns " + cut(1);
  }
  REQUIRE(at == static_cast<std::int64_t>(bytes_of(*local) / size_of(local->type)));
  return text;
}

std::string refusal(const ModelConfig& config, std::string_view spec) {
  const auto layout = lay_out(model_with(config), spec_of(spec), 0);
  REQUIRE_FALSE(layout.has_value());
  REQUIRE(layout.error().code == ErrorCode::invalid);
  return layout.error().text;
}

/// The experts in w13 of every rank, in order: "0 1 2 | 3 4".
std::string placement(const Model& model, std::string_view spec, const std::string& w13) {
  std::string text;
  for (std::uint32_t rank = 0; rank < size_of(spec_of(spec))->ranks; ++rank) {
    const RankLayout layout = rank_of(model, spec, rank);
    if (rank > 0) text += " |";
    const LocalTensor* local = find(layout, w13);
    if (local == nullptr) continue;
    for (const LocalPiece& piece : local->pieces) {
      const std::string& name = model.tensors[piece.tensor].name;
      if (name.find("gate_proj") == std::string::npos) continue;
      const std::size_t from = name.find("experts.") + 8;
      text += (text.empty() ? "" : " ") + name.substr(from, name.find('.', from) - from);
    }
  }
  return text;
}

const std::string vllm_experts = "model.layers.0.mlp.experts.routed_experts.";
const std::string sglang_experts = "model.layers.0.mlp.experts.";

}  // namespace

TEST_CASE("Megatron's local expert i of expert rank e is expert e x (E / EP) + i", "[layouts]") {
  const Model model = model_with(moe_config(512));
  const RankLayout layout = rank_of(model, "megatron:ep=8", 3);
  REQUIRE(parts_of(model, layout, "decoder.layers.0.mlp.experts.linear_fc1.weight0") ==
          "192.gate 0:4, 192.up 0:4");
  REQUIRE(parts_of(model, layout, "decoder.layers.0.mlp.experts.linear_fc2.weight63") ==
          "255.down 0:2");
  REQUIRE(find(layout, "decoder.layers.0.mlp.experts.linear_fc1.weight64") == nullptr);
}

TEST_CASE("Megatron cuts each expert's gate and up by etp, not by tp", "[layouts]") {
  const Model model = model_with(moe_config(2));
  const auto fc1 = [&](const char* spec, std::uint32_t rank, const char* name) {
    return parts_of(model, rank_of(model, spec, rank),
                    "decoder.layers.0.mlp.experts." + std::string(name));
  };
  // Four ranks: expert tensor rank first, then expert rank.
  REQUIRE(fc1("megatron:tp=4,etp=2,ep=2", 0, "linear_fc1.weight0") == "0.gate 0:2, 0.up 0:2");
  REQUIRE(fc1("megatron:tp=4,etp=2,ep=2", 1, "linear_fc1.weight0") == "0.gate 2:4, 0.up 2:4");
  REQUIRE(fc1("megatron:tp=4,etp=2,ep=2", 2, "linear_fc1.weight0") == "1.gate 0:2, 1.up 0:2");
  REQUIRE(fc1("megatron:tp=4,etp=2,ep=2", 3, "linear_fc2.weight0") == "1.down 0:2 columns 2:4");
  // Where etp is left out it is tp; where it is 1, every rank has whole experts.
  REQUIRE(fc1("megatron:tp=4", 3, "linear_fc1.weight1") == "1.gate 3:4, 1.up 3:4");
  REQUIRE(fc1("megatron:tp=4,etp=1", 3, "linear_fc1.weight1") == "1.gate 0:4, 1.up 0:4");
}

TEST_CASE("Megatron's sequential experts have modules of their own", "[layouts]") {
  const Model model = model_with(moe_config(4));
  const RankLayout layout = rank_of(model, "megatron:ep=2,experts=sequential", 1);
  const std::string experts = "decoder.layers.0.mlp.experts.local_experts.";
  REQUIRE(parts_of(model, layout, experts + "0.linear_fc1.weight") == "2.gate 0:4, 2.up 0:4");
  REQUIRE(parts_of(model, layout, experts + "1.linear_fc2.weight") == "3.down 0:2");
}

TEST_CASE("Megatron may let blocks of gate and up alternate", "[layouts]") {
  const Model model = model_with(moe_config(1));
  REQUIRE(parts_of(model, rank_of(model, "megatron:glu_interleave=2", 0),
                   "decoder.layers.0.mlp.experts.linear_fc1.weight0") ==
          "0.gate 0:2, 0.up 0:2, 0.gate 2:4, 0.up 2:4");
  REQUIRE(parts_of(model, rank_of(model, "megatron:tp=2,glu_interleave=1", 1),
                   "decoder.layers.0.mlp.experts.linear_fc1.weight0") ==
          "0.gate 2:3, 0.up 2:3, 0.gate 3:4, 0.up 3:4");
}

TEST_CASE("the ranks of a Megatron replica are counted tensor rank first, stage last",
          "[layouts]") {
  ModelConfig config = moe_config(4, 2);
  const Model model = model_with(config);
  // tp x cp = 4 and etp x ep = 4: a stage of a replica has four ranks. Rank 6 is the third of the
  // second stage: tensor rank 0 of 2, expert rank 2 of 4.
  const RankLayout layout = rank_of(model, "megatron:tp=2,cp=2,etp=1,ep=4,pp=2", 6);
  REQUIRE(parts_of(model, layout, "decoder.layers.0.mlp.experts.linear_fc1.weight0") ==
          "2.gate 0:4, 2.up 0:4");
  const LocalTensor* head = find(layout, "output_layer.weight");
  REQUIRE(head != nullptr);
  REQUIRE(head->pieces.at(0).box.start[0] == 0);
  const LocalTensor* norm = find(layout, "decoder.layers.0.pre_mlp_layernorm.weight");
  REQUIRE(norm != nullptr);
  REQUIRE(model.tensors[norm->pieces.at(0).tensor].name ==
          "model.layers.1.post_attention_layernorm.weight");
}

TEST_CASE("vLLM stacks all experts, cut over the ranks that share them", "[layouts]") {
  const Model model = model_with(moe_config(2));
  const RankLayout layout = rank_of(model, "vllm:tp=2", 1);
  REQUIRE(parts_of(model, layout, vllm_experts + "w13_weight") ==
          "0.gate 2:4, 0.up 2:4, 1.gate 2:4, 1.up 2:4");
  REQUIRE(parts_of(model, layout, vllm_experts + "w2_weight") ==
          "0.down 0:2 columns 2:4, 1.down 0:2 columns 2:4");
  REQUIRE(find(layout, vllm_experts + "w13_weight")->shape == std::vector<std::int64_t>{2, 4, 2});
  REQUIRE(find(layout, vllm_experts + "w2_weight")->shape == std::vector<std::int64_t>{2, 2, 2});
  // Data-parallel ranks share experts too, though each has attention of its own.
  const RankLayout shared = rank_of(model, "vllm:tp=2,dp=2", 3);
  REQUIRE(parts_of(model, shared, vllm_experts + "w13_weight") ==
          "0.gate 3:4, 0.up 3:4, 1.gate 3:4, 1.up 3:4");
  REQUIRE(row_runs(model, shared, "model.layers.0.self_attn.qkv_proj.weight") ==
          "q 2:4, k 1:2, v 1:2");
}

TEST_CASE("up comes before gate where the kernel wants it so", "[layouts]") {
  const Model model = model_with(moe_config(2));
  REQUIRE(parts_of(model, rank_of(model, "vllm:tp=2,gate_up=w31", 1),
                   vllm_experts + "w13_weight") == "0.up 2:4, 0.gate 2:4, 1.up 2:4, 1.gate 2:4");
  REQUIRE(parts_of(model, rank_of(model, "sglang:gate_up=w31", 0), sglang_experts + "w13_weight") ==
          "0.up 0:4, 0.gate 0:4, 1.up 0:4, 1.gate 0:4");
}

TEST_CASE("vLLM gives the first ranks one expert more where ranks do not divide them",
          "[layouts]") {
  ModelConfig config = moe_config(10);
  config.experts.groups = 2;
  const Model model = model_with(config);
  REQUIRE(placement(model, "vllm:tp=4,ep=4", vllm_experts + "w13_weight") ==
          "0 1 2 | 3 4 5 | 6 7 | 8 9");
  REQUIRE(placement(model, "vllm:tp=4,ep=4,placement=round_robin", vllm_experts + "w13_weight") ==
          "0 4 8 | 1 5 9 | 2 6 | 3 7");
  REQUIRE(parts_of(model, rank_of(model, "vllm:tp=4,ep=4", 3), vllm_experts + "w13_weight") ==
          "8.gate 0:4, 8.up 0:4, 9.gate 0:4, 9.up 0:4");
}

TEST_CASE("redundant slots begin with expert 0 again, or are as a map says", "[layouts]") {
  const Model model = model_with(moe_config(4));
  REQUIRE(placement(model, "vllm:dp=3,ep=3,redundant=2", vllm_experts + "w13_weight") ==
          "0 1 | 2 3 | 0 1");
  REQUIRE(placement(model, "vllm:tp=2,ep=2,redundant=2,physical=3-3-1-0-2-3",
                    vllm_experts + "w13_weight") == "3 3 1 | 0 2 3");
  REQUIRE(placement(model, "sglang:tp=2,ep=2,redundant=2", sglang_experts + "w13_weight") ==
          "0 1 2 | 3 0 1");
}

TEST_CASE("SGLang's expert groups are neighbours, and cut experts among themselves", "[layouts]") {
  const Model model = model_with(moe_config(4));
  REQUIRE(placement(model, "sglang:tp=4,ep=2", sglang_experts + "w13_weight") ==
          "0 1 | 0 1 | 2 3 | 2 3");
  REQUIRE(parts_of(model, rank_of(model, "sglang:tp=4,ep=2", 3), sglang_experts + "w2_weight") ==
          "2.down 0:2 columns 2:4, 3.down 0:2 columns 2:4");
}

TEST_CASE("SGLang's attention groups each have all heads and all of the embedding", "[layouts]") {
  const Model model = model_with(moe_config(4));
  const RankLayout layout = rank_of(model, "sglang:tp=4,dp=2", 3);
  REQUIRE(row_runs(model, layout, "model.layers.0.self_attn.qkv_proj.weight") ==
          "q 2:4, k 1:2, v 1:2");
  REQUIRE(row_runs(model, layout, "model.embed_tokens.weight") == "embed 32:64");
  REQUIRE(row_runs(model, layout, "lm_head.weight") == "lm_head 48:64");
}

TEST_CASE("shared experts may sit in slots behind the routed ones", "[layouts]") {
  ModelConfig config = moe_config(2);
  config.family = "glm4_moe";
  config.experts.shared_intermediate_size = 8;  // Two, as one MLP.
  const Model model = model_with(config);
  const RankLayout fused = rank_of(model, "sglang:tp=2,shared=fused", 1);
  REQUIRE(parts_of(model, fused, sglang_experts + "w13_weight") ==
          "0.gate 2:4, 0.up 2:4, 1.gate 2:4, 1.up 2:4, shared_experts.gate 2:4, "
          "shared_experts.up 2:4, shared_experts.gate 6:8, shared_experts.up 6:8");
  REQUIRE(parts_of(model, fused, sglang_experts + "w2_weight") ==
          "0.down 0:2 columns 2:4, 1.down 0:2 columns 2:4, shared_experts.down 0:2 columns 2:4, "
          "shared_experts.down 0:2 columns 6:8");
  REQUIRE(find(fused, "model.layers.0.mlp.shared_experts.down_proj.weight") == nullptr);
  const RankLayout apart = rank_of(model, "sglang:tp=2", 1);
  REQUIRE(parts_of(model, apart, "model.layers.0.mlp.shared_experts.gate_up_proj.weight") ==
          "shared_experts.gate 4:8, shared_experts.up 4:8");
}

TEST_CASE("Transformers 5 packs a layer's experts, and FSDP2 shards them by expert", "[layouts]") {
  const Model model = model_with(moe_config(5));
  const std::string experts = "model.layers.0.mlp.experts.";
  const RankLayout whole = rank_of(model, "hf:experts=packed", 0);
  REQUIRE(find(whole, experts + "gate_up_proj")->shape == std::vector<std::int64_t>{5, 8, 2});
  REQUIRE(find(whole, experts + "down_proj")->shape == std::vector<std::int64_t>{5, 2, 4});
  REQUIRE(find(whole, experts + "0.up_proj.weight") == nullptr);
  const RankLayout third = rank_of(model, "fsdp2:dp=4,experts=packed", 2);
  REQUIRE(parts_of(model, third, experts + "gate_up_proj") == "4.gate 0:4, 4.up 0:4");
  REQUIRE(parts_of(model, third, experts + "down_proj") == "4.down 0:2");
  const RankLayout last = rank_of(model, "fsdp2:dp=4,experts=packed", 3);
  REQUIRE(find(last, experts + "gate_up_proj")->shape == std::vector<std::int64_t>{0, 8, 2});
  REQUIRE(find(last, experts + "down_proj")->shape == std::vector<std::int64_t>{0, 2, 4});
}

TEST_CASE("the router's score bias travels, and stays f32 whatever the layout's type",
          "[layouts]") {
  ModelConfig config = moe_config(4);
  config.family = "glm4_moe";
  config.experts.score_bias = true;
  const Model model = model_with(config);
  const auto check = [&](const char* spec, const char* name) {
    const RankLayout layout = rank_of(model, spec, 0);
    const LocalTensor* bias = find(layout, name);
    REQUIRE(bias != nullptr);
    REQUIRE(bias->type == ElementType::f32);
    const PlacedShard placed =
        place(model, layout, {.side = Side::trainer}, 1, RegionKind::host_private);
    const auto tensor = std::ranges::find(
        placed.manifest.tensors, "model.layers.0.mlp.gate.e_score_correction_bias", &Tensor::name);
    REQUIRE(tensor != placed.manifest.tensors.end());
    REQUIRE(tensor->kind == TensorKind::buffer);
    REQUIRE(tensor->type == ElementType::f32);
  };
  check("megatron:dtype=bf16", "decoder.layers.0.mlp.router.expert_bias");
  check("vllm:dtype=bf16", "model.layers.0.mlp.gate.e_score_correction_bias");
  check("sglang:dtype=bf16", "model.layers.0.mlp.gate.e_score_correction_bias");
  check("fsdp2:dtype=bf16", "model.layers.0.mlp.gate.e_score_correction_bias");
}

TEST_CASE("engines that keep the router in f32 get it so", "[layouts]") {
  ModelConfig config = moe_config(4);
  config.experts.router_f32 = true;
  const Model model = model_with(config);
  const auto type = [&](const char* spec, const char* name) {
    return find(rank_of(model, spec, 0), name)->type;
  };
  REQUIRE(type("vllm", "model.layers.0.mlp.gate.weight") == ElementType::f32);
  REQUIRE(type("sglang", "model.layers.0.mlp.gate.weight") == ElementType::f32);
  REQUIRE(type("vllm:dtype=bf16", "model.layers.0.mlp.gate.weight") == ElementType::bf16);
  REQUIRE(type("megatron", "decoder.layers.0.mlp.router.weight") == ElementType::bf16);
}

TEST_CASE("degrees that experts do not divide into are refused", "[layouts]") {
  ModelConfig config = moe_config(10);
  REQUIRE(refusal(config, "megatron:ep=4") ==
          "ep=4 does not divide 10 experts: use a divisor of 10");
  REQUIRE(refusal(config, "megatron:etp=3") ==
          "etp=3 does not divide 4 rows of an expert: use a divisor of 4");
  REQUIRE(refusal(config, "megatron:tp=2,glu_interleave=4") ==
          "glu_interleave=4 does not divide 2 rows of a rank's expert: use a divisor of 2");
  REQUIRE(refusal(config, "vllm:tp=4,dp=2") ==
          "tp x dp=8 does not divide 4 rows of an expert: use a divisor of 4");
  REQUIRE(refusal(config, "sglang:tp=4,ep=4") ==
          "ep=4 does not divide 10 slots of experts: use a divisor of 10");
  config.experts.shared_intermediate_size = 3;
  REQUIRE(refusal(config, "vllm:tp=2") ==
          "tp=2 does not divide 3 rows of the shared experts: use tp=1");
  REQUIRE(refusal(config, "sglang:shared=fused") ==
          "shared=fused needs shared experts that are as wide as routed ones: leave it out");
  config.experts.intermediate_size = 2;
  config.experts.shared_intermediate_size = 0;
  REQUIRE(refusal(config, "sglang:tp=4,dp=2") ==
          "tp / ep=4 does not divide 2 rows of an expert: use a divisor of 2");
}

TEST_CASE("a map that is not one of all experts is refused", "[layouts]") {
  const ModelConfig config = moe_config(3);
  REQUIRE(refusal(config, "vllm:tp=2,ep=2,physical=0-1-2-0") ==
          "physical= has 4 slots: give experts + redundant = 3");
  REQUIRE(refusal(config, "vllm:tp=2,ep=2,redundant=1,physical=0-1-3-0") ==
          "physical= names expert 3: the model has experts 0 to 2");
  REQUIRE(refusal(config, "vllm:tp=2,ep=2,redundant=1,physical=0-1-1-0") ==
          "physical= leaves out expert 2: give each expert a slot");
}

TEST_CASE("options about experts are refused for a model that has none", "[layouts]") {
  const ModelConfig config = llama_config(4, 2);
  for (const std::string option : {"ep=2", "etp=2", "glu_interleave=2", "experts=sequential"}) {
    REQUIRE(refusal(config, "megatron:" + option) ==
            option.substr(0, option.find('=')) +
                "= is about experts, and the model has none: leave it out");
  }
  REQUIRE(refusal(config, "vllm:tp=2,ep=2") ==
          "ep= is about experts, and the model has none: leave it out");
  REQUIRE(refusal(config, "vllm:gate_up=w31") ==
          "gate_up= is about experts, and the model has none: leave it out");
  REQUIRE(refusal(config, "sglang:shared=fused") ==
          "shared= is about experts, and the model has none: leave it out");
  REQUIRE(refusal(config, "sglang:redundant=1") ==
          "redundant= is about experts, and the model has none: leave it out");
  REQUIRE(refusal(config, "fsdp2:experts=packed") ==
          "experts=packed is for a model whose experts are tensors of their own, and this one has "
          "none: leave it out");
}

}  // namespace weir
