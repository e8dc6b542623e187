#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "adapters/model/known_models.hpp"
#include "tests/adapters/layouts/small_models.hpp"

// Goal: multi-head latent attention, dense first layers and layers of MTP, as each engine keeps
// them. Method: the full list of names and shapes of one rank, worked by hand, and small tables.

namespace weir {

TEST_CASE("Megatron's latent attention keeps what goes down whole and cuts what comes up",
          "[layouts]") {
  const Model model = model_with(latent_config(2, 3));
  REQUIRE(names_and_shapes(rank_of(model, "megatron:tp=2,etp=1,ep=2", 1)) ==
          std::vector<std::string>{
              "embedding.word_embeddings.weight 128x2",
              "decoder.layers.0.input_layernorm.weight 2",
              "decoder.layers.0.self_attention.linear_proj.weight 2x8",
              "decoder.layers.0.self_attention.linear_q_down_proj.weight 3x2",
              "decoder.layers.0.self_attention.linear_q_up_proj.layer_norm_weight 3",
              "decoder.layers.0.self_attention.linear_q_up_proj.weight 10x3",
              "decoder.layers.0.self_attention.linear_kv_down_proj.weight 8x2",
              "decoder.layers.0.self_attention.linear_kv_up_proj.layer_norm_weight 6",
              "decoder.layers.0.self_attention.linear_kv_up_proj.weight 14x6",
              "decoder.layers.0.mlp.linear_fc1.layer_norm_weight 2",
              "decoder.layers.0.mlp.linear_fc1.weight 8x2",
              "decoder.layers.0.mlp.linear_fc2.weight 2x4",
              "decoder.layers.1.input_layernorm.weight 2",
              "decoder.layers.1.self_attention.linear_proj.weight 2x8",
              "decoder.layers.1.self_attention.linear_q_down_proj.weight 3x2",
              "decoder.layers.1.self_attention.linear_q_up_proj.layer_norm_weight 3",
              "decoder.layers.1.self_attention.linear_q_up_proj.weight 10x3",
              "decoder.layers.1.self_attention.linear_kv_down_proj.weight 8x2",
              "decoder.layers.1.self_attention.linear_kv_up_proj.layer_norm_weight 6",
              "decoder.layers.1.self_attention.linear_kv_up_proj.weight 14x6",
              "decoder.layers.1.pre_mlp_layernorm.weight 2",
              "decoder.layers.1.mlp.router.weight 2x2",
              "decoder.layers.1.mlp.router.expert_bias 2",
              "decoder.layers.1.mlp.experts.linear_fc1.weight0 8x2",
              "decoder.layers.1.mlp.experts.linear_fc2.weight0 2x4",
              "decoder.layers.1.mlp.shared_experts.linear_fc1.weight 4x2",
              "decoder.layers.1.mlp.shared_experts.linear_fc2.weight 2x2",
              "decoder.final_layernorm.weight 2",
              "output_layer.weight 128x2",
          });
  const RankLayout direct = rank_of(model_with(latent_config(2, 0)), "megatron:tp=2", 1);
  REQUIRE(find(direct, "decoder.layers.0.self_attention.linear_q_down_proj.weight") == nullptr);
  const LocalTensor* query = find(direct, "decoder.layers.0.self_attention.linear_q_proj.weight");
  REQUIRE(query != nullptr);
  REQUIRE(query->pieces.at(0).box == Box{{10, 0}, {10, 2}});
}

TEST_CASE("vLLM fuses what goes down and derives what is absorbed", "[layouts]") {
  const Model model = model_with(latent_config(2, 3));
  const RankLayout layout = rank_of(model, "vllm:tp=2,ep=2", 1);
  REQUIRE(names_and_shapes(layout) ==
          std::vector<std::string>{
              "model.embed_tokens.weight 32x2",
              "model.layers.0.self_attn.fused_qkv_a_proj.weight 11x2",
              "model.layers.0.self_attn.q_a_layernorm.weight 3",
              "model.layers.0.self_attn.q_b_proj.weight 10x3",
              "model.layers.0.self_attn.kv_a_layernorm.weight 6",
              "model.layers.0.self_attn.kv_b_proj.weight 14x6",
              "model.layers.0.self_attn.o_proj.weight 2x8",
              "model.layers.0.mlp.gate_up_proj.weight 8x2",
              "model.layers.0.mlp.down_proj.weight 2x4",
              "model.layers.0.input_layernorm.weight 2",
              "model.layers.0.post_attention_layernorm.weight 2",
              "model.layers.1.self_attn.fused_qkv_a_proj.weight 11x2",
              "model.layers.1.self_attn.q_a_layernorm.weight 3",
              "model.layers.1.self_attn.q_b_proj.weight 10x3",
              "model.layers.1.self_attn.kv_a_layernorm.weight 6",
              "model.layers.1.self_attn.kv_b_proj.weight 14x6",
              "model.layers.1.self_attn.o_proj.weight 2x8",
              "model.layers.1.mlp.gate.weight 2x2",
              "model.layers.1.mlp.gate.e_score_correction_bias 2",
              "model.layers.1.mlp.shared_experts.gate_up_proj.weight 4x2",
              "model.layers.1.mlp.shared_experts.down_proj.weight 2x2",
              "model.layers.1.mlp.experts.routed_experts.w13_weight 1x8x2",
              "model.layers.1.mlp.experts.routed_experts.w2_weight 1x2x4",
              "model.layers.1.input_layernorm.weight 2",
              "model.layers.1.post_attention_layernorm.weight 2",
              "model.norm.weight 2",
              "lm_head.weight 32x2",
          });
  REQUIRE(layout.derived.size() == 4);
  REQUIRE(layout.derived[0] == DerivedTensor{"model.layers.0.self_attn.mla_attn.mla_attn.W_UK_T",
                                             "model.layers.0.self_attn.kv_b_proj.weight"});
  REQUIRE(layout.derived[3] == DerivedTensor{"model.layers.1.self_attn.mla_attn.mla_attn.W_UV",
                                             "model.layers.1.self_attn.kv_b_proj.weight"});
  // Both ranks have the whole of what goes down; q_a first, then kv_a.
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const RankLayout one = rank_of(model, "vllm:tp=2", rank);
    const LocalTensor* fused = find(one, "model.layers.0.self_attn.fused_qkv_a_proj.weight");
    REQUIRE(fused->pieces.size() == 2);
    REQUIRE(fused->pieces[0].box == Box{{0, 0}, {3, 2}});
    REQUIRE(fused->pieces[1].box == Box{{0, 0}, {8, 2}});
    REQUIRE(fused->pieces[1].offset == 3 * 2);
  }
}

TEST_CASE("DeepSeek-V3's fused projection is 2112 rows of 7168", "[layouts]") {
  const Model model = *named_model("deepseek-v3");
  const RankLayout layout = rank_of(model, "vllm:tp=16,pp=4", 0);
  REQUIRE(find(layout, "model.layers.0.self_attn.fused_qkv_a_proj.weight")->shape ==
          std::vector<std::int64_t>{2112, 7168});
  REQUIRE(find(layout, "model.layers.0.self_attn.kv_b_proj.weight")->shape ==
          std::vector<std::int64_t>{128 / 16 * 256, 512});
}

TEST_CASE("without a rank for queries there is nothing to fuse", "[layouts]") {
  const Model model = model_with(latent_config(2, 0));
  for (const char* spec : {"vllm:tp=4", "sglang:tp=4"}) {
    const RankLayout layout = rank_of(model, spec, 3);
    REQUIRE(find(layout, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight")->shape ==
            std::vector<std::int64_t>{8, 2});
    REQUIRE(find(layout, "model.layers.0.self_attn.q_proj.weight")->pieces.at(0).box ==
            Box{{15, 0}, {5, 2}});
  }
  const RankLayout fused = rank_of(model_with(latent_config(2, 3)), "sglang", 0);
  REQUIRE(find(fused, "model.layers.0.self_attn.fused_qkv_a_proj_with_mqa.weight") != nullptr);
}

TEST_CASE("layers of MTP are kept whole or left out whole", "[layouts]") {
  ModelConfig config = latent_config(2, 3);
  config.mtp_layers = 1;
  const Model model = model_with(config);
  std::vector<std::string> of_mtp;
  for (const Tensor& tensor : model.tensors) {
    if (tensor.name.starts_with("model.layers.2.")) of_mtp.push_back(tensor.name);
  }
  const auto left_out = [&](const char* spec) {
    std::vector<std::string> names;
    for (const std::uint32_t tensor : rank_of(model, spec, 0).left_out) {
      names.push_back(model.tensors[tensor].name);
    }
    return names;
  };
  REQUIRE(of_mtp.size() == 4 + 2 + 7 + 2 + 3 * 3);
  for (const char* spec : {"vllm", "sglang", "megatron:mtp=drop"}) {
    REQUIRE(left_out(spec) == of_mtp);
  }
  for (const char* spec : {"vllm:mtp=keep", "sglang:mtp=keep", "megatron"}) {
    REQUIRE(left_out(spec).empty());
  }
}

TEST_CASE("Megatron keeps MTP on the last stage, with an embedding of its own", "[layouts]") {
  ModelConfig config = latent_config(2, 3);
  config.mtp_layers = 1;
  const Model model = model_with(config);
  const RankLayout first = rank_of(model, "megatron:pp=2", 0);
  const RankLayout last = rank_of(model, "megatron:pp=2", 1);
  REQUIRE(find(first, "mtp.layers.0.eh_proj.weight") == nullptr);
  REQUIRE(find(last, "embedding.word_embeddings.weight") != nullptr);
  REQUIRE(find(last, "mtp.layers.0.eh_proj.weight")->shape == std::vector<std::int64_t>{2, 4});
  REQUIRE(find(last, "mtp.layers.0.final_layernorm.weight") != nullptr);
  REQUIRE(find(last, "mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight1") != nullptr);
  REQUIRE(find(rank_of(model, "megatron:pp=2,mtp=drop", 1), "embedding.word_embeddings.weight") ==
          nullptr);
}

TEST_CASE("a draft model's layer lies beside the model's own", "[layouts]") {
  ModelConfig config = latent_config(2, 3);
  config.mtp_layers = 1;
  const Model model = model_with(config);
  const RankLayout vllm = rank_of(model, "vllm:mtp=keep", 0);
  REQUIRE(find(vllm, "model.layers.2.shared_head.norm.weight") != nullptr);
  REQUIRE(find(vllm, "model.layers.2.mtp_block.self_attn.kv_b_proj.weight") != nullptr);
  const RankLayout sglang = rank_of(model, "sglang:mtp=keep", 0);
  REQUIRE(find(sglang, "model.layers.2.decoder.self_attn.kv_b_proj.weight") != nullptr);
}

TEST_CASE("layers that stages do not divide go where each engine puts them", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 10;
  const Model model = model_with(config);
  const auto counts = [&](const std::string& spec) {
    std::vector<int> layers;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      layers.push_back(0);
      for (const LocalTensor& local : rank_of(model, spec, rank).tensors) {
        if (local.name.ends_with(".input_layernorm.weight")) ++layers.back();
      }
    }
    return layers;
  };
  REQUIRE(counts("vllm:pp=4") == std::vector<int>{2, 3, 3, 2});
  REQUIRE(counts("sglang:pp=4") == std::vector<int>{2, 2, 3, 3});
  REQUIRE(counts("vllm:pp=4,layers=1-2-3-4") == std::vector<int>{1, 2, 3, 4});
  // Layers keep their numbers, whatever the stage.
  REQUIRE(find(rank_of(model, "vllm:pp=4", 3), "model.layers.9.input_layernorm.weight") != nullptr);
  const auto uneven = lay_out(model, spec_of("sglang:pp=2,layers=5-4"), 0);
  REQUIRE(uneven.error().text == "layers= sums to 9: make it sum to the model's 10 layers");
}

TEST_CASE("the last stage has a copy of tied embeddings, under each engine's name", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 2;
  config.tie_word_embeddings = true;
  const Model model = model_with(config);
  REQUIRE(row_runs(model, rank_of(model, "vllm:pp=2", 1), "model.embed_tokens.weight") ==
          "embed 0:64");
  REQUIRE(row_runs(model, rank_of(model, "sglang:pp=2", 1), "lm_head.weight") == "embed 0:64");
  REQUIRE(find(rank_of(model, "sglang", 0), "lm_head.weight") == nullptr);
}

TEST_CASE("Ling's one tensor of queries, keys and values is cut as three", "[layouts]") {
  ModelConfig config = llama_config(4, 2);
  config.family = "bailing_moe_v2";
  config.experts = {.count = 2, .intermediate_size = 4};
  const Model model = model_with(config);
  const auto runs = [&](const char* spec, std::uint32_t rank, const char* name) {
    std::string text;
    const RankLayout layout = rank_of(model, spec, rank);
    for (const LocalPiece& piece : find(layout, name)->pieces) {
      text += (text.empty() ? "" : ", ") + std::to_string(piece.box.start[0]) + ":" +
              std::to_string(piece.box.start[0] + piece.box.extent[0]);
    }
    return text;
  };
  // Rows 0 to 3 are queries, 4 and 5 keys, 6 and 7 values.
  const char* merged = "model.layers.0.attention.query_key_value.weight";
  REQUIRE(runs("vllm:tp=2", 1, merged) == "2:4, 5:6, 7:8");
  REQUIRE(runs("vllm", 0, merged) == "0:8");
  const char* fused = "decoder.layers.0.self_attention.linear_qkv.weight";
  REQUIRE(runs("megatron:tp=2", 1, fused) == "2:4, 5:6, 7:8");
  REQUIRE(runs("megatron", 0, fused) == "0:2, 4:5, 6:7, 2:4, 5:6, 7:8");
}

TEST_CASE("heads of latent attention are whole", "[layouts]") {
  const Model model = model_with(latent_config(2, 3));
  const auto refusal = [&](const char* spec) {
    return lay_out(model, spec_of(spec), 0).error().text;
  };
  REQUIRE(refusal("vllm:tp=3") == "tp=3 does not divide 4 query heads: use tp=1, 2 or 4");
  REQUIRE(refusal("megatron:tp=3") == "tp=3 does not divide 4 query heads: use tp=1, 2 or 4");
  REQUIRE(refusal("sglang:tp=3") == "tp=3 does not divide 4 query heads: use tp=1, 2 or 4");
  REQUIRE(refusal("sglang:tp=16,dp=2") == "tp / dp=8 does not divide 4 query heads: use tp=2 or 4");
}

}  // namespace weir
