#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: Megatron-Core's fused, padded and staged tensors, as its own code cuts them. Method: small
// tables worked by hand from the rule; with one row per head a run of rows reads as heads.

namespace weir {

namespace {

constexpr const char* qkv = "decoder.layers.0.self_attention.linear_qkv.weight";

std::vector<std::string> on_each_rank(const Model& model, std::string_view spec,
                                      std::string_view tensor) {
  std::vector<std::string> runs;
  for (std::uint32_t rank = 0; rank < size_of(spec_of(spec))->ranks; ++rank) {
    runs.push_back(row_runs(model, rank_of(model, spec, rank), tensor));
  }
  return runs;
}

std::string refusal(const Model& model, std::string_view spec, std::uint32_t rank = 0) {
  const auto layout = lay_out(model, spec_of(spec), rank);
  REQUIRE_FALSE(layout.has_value());
  REQUIRE(layout.error().code == ErrorCode::invalid);
  return layout.error().text;
}

/// Which canonical layer each local layer of the rank is, by its first norm.
std::map<std::string, std::string> layers_of(const Model& model, const RankLayout& layout) {
  const std::string suffix = ".self_attention.linear_qkv.layer_norm_weight";
  std::map<std::string, std::string> layers;
  for (const LocalTensor& local : layout.tensors) {
    if (!local.name.ends_with(suffix)) continue;
    const std::string& canonical = model.tensors[local.pieces.at(0).tensor].name;
    layers[local.name.substr(0, local.name.size() - suffix.size())] =
        canonical.substr(0, canonical.rfind(".input_layernorm"));
  }
  return layers;
}

}  // namespace

TEST_CASE("fused QKV holds each group's query heads, then its key, then its value", "[layouts]") {
  const Model model = small_model(llama_config(8, 2));
  REQUIRE(on_each_rank(model, "megatron", qkv) ==
          std::vector<std::string>{"q 0:4, k 0:1, v 0:1, q 4:8, k 1:2, v 1:2"});
  REQUIRE(on_each_rank(model, "megatron:tp=2", qkv) ==
          std::vector<std::string>{"q 0:4, k 0:1, v 0:1", "q 4:8, k 1:2, v 1:2"});
}

TEST_CASE("tp may exceed the number of key-value groups", "[layouts]") {
  const Model model = small_model(llama_config(8, 2));
  REQUIRE(on_each_rank(model, "megatron:tp=4", qkv) ==
          std::vector<std::string>{"q 0:3", "q 3:4, k 0:1, v 0:1", "q 4:7", "q 7:8, k 1:2, v 1:2"});
}

TEST_CASE("a cut of fused QKV may fall inside a head", "[layouts]") {
  // A group is 32 * 128 query rows, 128 key rows and 128 value rows; 1088 rows are 8.5 heads.
  const Model model = small_model([] {
    ModelConfig config = llama_config(64, 2, 128);
    config.intermediate_size = 8;
    return config;
  }());
  REQUIRE(on_each_rank(model, "megatron:tp=8", qkv) ==
          std::vector<std::string>{"q 0:1088", "q 1088:2176", "q 2176:3264",
                                   "q 3264:4096, k 0:128, v 0:128",  //
                                   "q 4096:5184", "q 5184:6272", "q 6272:7360",
                                   "q 7360:8192, k 128:256, v 128:256"});
}

TEST_CASE("without grouping every head is a group of its own", "[layouts]") {
  const Model model = small_model(llama_config(2, 2, 2));
  REQUIRE(on_each_rank(model, "megatron:tp=2", qkv) ==
          std::vector<std::string>{"q 0:2, k 0:2, v 0:2", "q 2:4, k 2:4, v 2:4"});
}

TEST_CASE("the bias of fused QKV has the rows of its weight", "[layouts]") {
  ModelConfig config = llama_config(8, 2);
  config.qkv_bias = true;
  const Model model = small_model(config);
  REQUIRE(on_each_rank(model, "megatron:tp=4", "decoder.layers.0.self_attention.linear_qkv.bias") ==
          std::vector<std::string>{"q 0:3", "q 3:4, k 0:1, v 0:1", "q 4:7", "q 7:8, k 1:2, v 1:2"});
}

TEST_CASE("fc1 is the rank's gate rows, then its up rows", "[layouts]") {
  ModelConfig config = llama_config(8, 2);
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  const Model model = small_model(config);
  for (const char* name :
       {"decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc1.bias"}) {
    REQUIRE(on_each_rank(model, "megatron:tp=2", name) ==
            std::vector<std::string>{"gate 0:4, up 0:4", "gate 4:8, up 4:8"});
  }
}

TEST_CASE("the output projections are cut by columns", "[layouts]") {
  const Model model = small_model(llama_config(4, 2, 2));
  const RankLayout layout = rank_of(model, "megatron:tp=2", 1);
  const LocalTensor* projection =
      find(layout, "decoder.layers.0.self_attention.linear_proj.weight");
  REQUIRE(projection != nullptr);
  REQUIRE(projection->shape == std::vector<std::int64_t>{2, 4});
  REQUIRE(projection->pieces.size() == 1);
  REQUIRE(projection->pieces[0].box == Box{{0, 4}, {2, 4}});
  REQUIRE(projection->pieces[0].offset == 0);
  REQUIRE(projection->pieces[0].stride == Dims{4, 1});
  const LocalTensor* down = find(layout, "decoder.layers.0.mlp.linear_fc2.weight");
  REQUIRE(down != nullptr);
  REQUIRE(down->pieces[0].box == Box{{0, 4}, {2, 4}});
}

TEST_CASE("the vocabulary is padded to a multiple of 128 rows for each rank", "[layouts]") {
  // Vocabulary, rows of each of eight ranks, rows of zeros at the end.
  struct Row {
    std::int64_t vocabulary, rows, zeros;
  };
  // Qwen3, Llama-3, DeepSeek-V3, Ling, GLM-4.5, Kimi-K2.
  const std::vector<Row> table = {{151936, 19072, 640}, {128256, 16128, 768}, {129280, 16256, 768},
                                  {157184, 19712, 512}, {151552, 18944, 0},   {163840, 20480, 0}};
  for (const Row& row : table) {
    ModelConfig config = llama_config(8, 2, 2);
    config.vocab_size = row.vocabulary;
    const Model model = small_model(config);
    for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight"}) {
      const RankLayout last = rank_of(model, "megatron:tp=8", 7);
      const std::string part = name[0] == 'e' ? "embed " : "lm_head ";
      REQUIRE(row_runs(model, last, name) ==
              part + std::to_string(7 * row.rows) + ":" + std::to_string(row.vocabulary) +
                  (row.zeros == 0 ? "" : ", zero " + std::to_string(row.zeros)));
      REQUIRE(row_runs(model, rank_of(model, "megatron:tp=8", 0), name) ==
              part + "0:" + std::to_string(row.rows));
    }
  }
  ModelConfig qwen3 = llama_config(8, 2, 2);
  qwen3.vocab_size = 151936;
  const Model model = small_model(qwen3);
  const RankLayout last = rank_of(model, "megatron:tp=8", 7);
  REQUIRE(find(last, "embedding.word_embeddings.weight")->pieces.at(0).box.extent[0] == 18432);
}

TEST_CASE("ranks beyond a small vocabulary keep zeros alone", "[layouts]") {
  const Model model = small_model(llama_config(8, 2));
  // 64 rows padded to 256: rank 0 has all of them.
  REQUIRE(on_each_rank(model, "megatron:tp=2", "output_layer.weight") ==
          std::vector<std::string>{"lm_head 0:64, zero 64", "zero 128"});
  // 64 rows padded to a multiple of 2 * 48 = 96: the second rank has 16 of them.
  REQUIRE(on_each_rank(model, "megatron:tp=2,vocab_multiple=48", "output_layer.weight") ==
          std::vector<std::string>{"lm_head 0:48", "lm_head 48:64, zero 32"});
}

TEST_CASE("virtual stages take layers before stages do", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 6;
  const Model model = small_model(config);
  const std::string spec = "megatron:pp=2,vpp=2,layers=2-1-1-2";
  using Layers = std::map<std::string, std::string>;
  const RankLayout first = rank_of(model, spec, 0);
  REQUIRE(layers_of(model, first) == Layers{{"model0.decoder.layers.0", "model.layers.0"},
                                            {"model0.decoder.layers.1", "model.layers.1"},
                                            {"model1.decoder.layers.0", "model.layers.3"}});
  const RankLayout second = rank_of(model, spec, 1);
  REQUIRE(layers_of(model, second) == Layers{{"model0.decoder.layers.0", "model.layers.2"},
                                             {"model1.decoder.layers.0", "model.layers.4"},
                                             {"model1.decoder.layers.1", "model.layers.5"}});
  REQUIRE(find(first, "model0.embedding.word_embeddings.weight") != nullptr);
  REQUIRE(find(first, "model1.embedding.word_embeddings.weight") == nullptr);
  REQUIRE(find(first, "model1.output_layer.weight") == nullptr);
  REQUIRE(find(second, "model1.output_layer.weight") != nullptr);
  REQUIRE(find(second, "model1.decoder.final_layernorm.weight") != nullptr);
  REQUIRE(find(second, "model0.decoder.final_layernorm.weight") == nullptr);
}

TEST_CASE("stages have equally many layers, and ranks of one stage are neighbours", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 4;
  const Model model = small_model(config);
  using Layers = std::map<std::string, std::string>;
  for (const std::uint32_t rank : {2U, 3U}) {
    const RankLayout layout = rank_of(model, "megatron:tp=2,pp=2", rank);
    REQUIRE(layers_of(model, layout) ==
            Layers{{"decoder.layers.0", "model.layers.2"}, {"decoder.layers.1", "model.layers.3"}});
    REQUIRE(row_runs(model, layout, qkv) == (rank == 2 ? "q 0:1, k 0:1, v 0:1"  //
                                                       : "q 1:2, k 1:2, v 1:2"));
  }
}

TEST_CASE("a stage may have no decoder layer", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 3;
  const Model model = small_model(config);
  REQUIRE(names_and_shapes(rank_of(model, "megatron:pp=2,layers=0-3", 0)) ==
          std::vector<std::string>{"embedding.word_embeddings.weight 128x2"});
}

TEST_CASE("tied embeddings are kept a second time by a last stage of its own", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 2;
  config.tie_word_embeddings = true;
  const Model model = small_model(config);
  REQUIRE(find(rank_of(model, "megatron", 0), "output_layer.weight") == nullptr);
  const RankLayout last = rank_of(model, "megatron:pp=2", 1);
  REQUIRE(find(last, "embedding.word_embeddings.weight") == nullptr);
  REQUIRE(row_runs(model, last, "output_layer.weight") == "embed 0:64, zero 64");
}

TEST_CASE("a rank keeps Megatron's own names and shapes, in its order", "[layouts]") {
  ModelConfig config = llama_config(8, 2, 4);
  config.family = "qwen3";
  config.qk_norm = true;
  REQUIRE(names_and_shapes(rank_of(small_model(config), "megatron:tp=2", 0)) ==
          std::vector<std::string>{
              "embedding.word_embeddings.weight 128x2",
              "decoder.layers.0.self_attention.linear_proj.weight 2x16",
              "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight 2",
              "decoder.layers.0.self_attention.linear_qkv.weight 24x2",
              "decoder.layers.0.self_attention.q_layernorm.weight 4",
              "decoder.layers.0.self_attention.k_layernorm.weight 4",
              "decoder.layers.0.mlp.linear_fc1.layer_norm_weight 2",
              "decoder.layers.0.mlp.linear_fc1.weight 8x2",
              "decoder.layers.0.mlp.linear_fc2.weight 2x4",
              "decoder.final_layernorm.weight 2",
              "output_layer.weight 128x2",
          });
}

TEST_CASE("biases lie beside their weights", "[layouts]") {
  ModelConfig config = llama_config(8, 2, 4);
  config.qkv_bias = true;
  config.output_bias = true;
  config.mlp_bias = true;
  REQUIRE(names_and_shapes(rank_of(small_model(config), "megatron:tp=2", 1)) ==
          std::vector<std::string>{
              "embedding.word_embeddings.weight 128x2",
              "decoder.layers.0.self_attention.linear_proj.weight 2x16",
              "decoder.layers.0.self_attention.linear_proj.bias 2",
              "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight 2",
              "decoder.layers.0.self_attention.linear_qkv.weight 24x2",
              "decoder.layers.0.self_attention.linear_qkv.bias 24",
              "decoder.layers.0.mlp.linear_fc1.layer_norm_weight 2",
              "decoder.layers.0.mlp.linear_fc1.weight 8x2",
              "decoder.layers.0.mlp.linear_fc1.bias 8",
              "decoder.layers.0.mlp.linear_fc2.weight 2x4",
              "decoder.layers.0.mlp.linear_fc2.bias 2",
              "decoder.final_layernorm.weight 2",
              "output_layer.weight 128x2",
          });
}

TEST_CASE("a tp that Megatron can't use is refused with those that it can", "[layouts]") {
  ModelConfig config = llama_config(16, 8, 2);
  config.intermediate_size = 48;
  REQUIRE(refusal(small_model(config), "megatron:tp=3") ==
          "tp=3 does not divide 16 query heads: use tp=1, 2, 4, 8 or 16");
  config.intermediate_size = 12;
  REQUIRE(refusal(small_model(config), "megatron:tp=8") ==
          "tp=8 does not divide 12 rows of the MLP: use tp=1, 2 or 4");
  // (8 + 2 * 1) * 1 = 10 rows of fused QKV.
  REQUIRE(refusal(small_model(llama_config(8, 1)), "megatron:tp=4") ==
          "tp=4 does not divide 10 rows of fused QKV: use tp=1 or 2");
}

TEST_CASE("stages that do not fit the layers are refused", "[layouts]") {
  ModelConfig config = llama_config(2, 2);
  config.num_hidden_layers = 6;
  const Model model = small_model(config);
  REQUIRE(refusal(model, "megatron:pp=2,vpp=2") ==
          "pp x vpp = 4 does not divide 6 layers: choose others, or give layers= with 4 numbers "
          "that sum to 6, joined by '-'");
  REQUIRE(refusal(model, "megatron:pp=2,layers=2-3") ==
          "layers= sums to 5: make it sum to the model's 6 layers");
  REQUIRE(refusal(model, "megatron:tp=2,pp=2", 4) ==
          "rank 4 is out of range: megatron:pp=2,tp=2 has ranks 0 to 3");
}

}  // namespace weir
