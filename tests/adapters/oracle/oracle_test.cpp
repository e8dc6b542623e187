#include "adapters/oracle/oracle.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <numeric>

#include "tests/adapters/oracle/decoder_model.hpp"

namespace weir::oracle {
namespace {

// Goal: the oracle itself is right, as everything is held against it. Method: worked examples from
// the engines' rules, typed in by hand: heads as words ("q0 k0"), rows as numbers; and each thing
// that a layout must refuse.

ModelConfig config_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  ModelConfig config;
  config.family = "qwen3";
  config.hidden_size = 8;
  config.num_hidden_layers = 1;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.head_dim = head_dim;
  config.intermediate_size = 64;
  config.vocab_size = 64;
  return config;
}

LayoutSpec layout(std::string name, std::map<std::string, std::int64_t> options = {},
                  std::vector<std::int64_t> layers = {}) {
  return {std::move(name), std::move(options), std::move(layers), {}};
}

std::map<std::string, LocalTensor> locals(const Model& model, const LayoutSpec& spec,
                                          std::uint32_t rank) {
  const auto list = rank_of(model, spec, rank);
  if (!list) FAIL(list.error().text);
  std::map<std::string, LocalTensor> by_name;
  for (const LocalTensor& local : *list) by_name[local.name] = local;
  REQUIRE(by_name.size() == list->size());
  return by_name;
}

LocalTensor local(const Model& model, const LayoutSpec& spec, std::uint32_t rank,
                  const std::string& name) {
  const auto all = locals(model, spec, rank);
  INFO(name);
  REQUIRE(all.contains(name));
  return all.at(name);
}

std::string name_of_row(const Model& model, const Row& row) {
  if (row.tensor == padding) return "padding";
  return model.tensors[static_cast<std::size_t>(row.tensor)].name;
}

/// "q0 q1 k0 v0": which heads the rows are, in order. Only whole heads can be said so.
std::string heads(const Model& model, const LocalTensor& tensor) {
  const std::int64_t head_dim = model.config.head_dim;
  std::string text;
  for (std::size_t i = 0; i < tensor.rows.size(); ++i) {
    const std::string name = name_of_row(model, tensor.rows[i]);
    const auto at = name.find("self_attn.");
    REQUIRE(at != std::string::npos);
    const std::int64_t within = static_cast<std::int64_t>(i) % head_dim;
    REQUIRE(tensor.rows[i].row % head_dim == within);
    const std::string head =
        name.substr(at + 10, 1) + std::to_string(tensor.rows[i].row / head_dim);
    if (within == 0) text += (text.empty() ? "" : " ") + head;
    REQUIRE(text.substr(text.size() - head.size()) == head);
  }
  return text;
}

std::int64_t rows_of(const LocalTensor& tensor) {
  return std::ssize(tensor.rows);
}

std::int64_t padding_of(const LocalTensor& tensor) {
  return std::count(tensor.rows.begin(), tensor.rows.end(), Row{});
}

const std::string fused = "decoder.layers.0.self_attention.linear_qkv.weight";
const std::string merged = "model.layers.0.self_attn.qkv_proj.weight";

std::string error_of(const Model& model, const LayoutSpec& spec, std::uint32_t rank = 0) {
  const auto result = rank_of(model, spec, rank);
  REQUIRE_FALSE(result.has_value());
  REQUIRE(result.error().code == ErrorCode::invalid);
  return result.error().text;
}

}  // namespace

TEST_CASE("megatron keeps query heads, key and value of a group together", "[oracle]") {
  const Model model = decoder_model(config_of(8, 2, 4));
  const auto rank = [&](std::int64_t tp, std::uint32_t t) {
    return heads(model, local(model, layout("megatron", {{"tp", tp}}), t, fused));
  };
  CHECK(rank(2, 0) == "q0 q1 q2 q3 k0 v0");
  CHECK(rank(2, 1) == "q4 q5 q6 q7 k1 v1");
  CHECK(rank(4, 0) == "q0 q1 q2");
  CHECK(rank(4, 1) == "q3 k0 v0");
  CHECK(rank(4, 2) == "q4 q5 q6");
  CHECK(rank(4, 3) == "q7 k1 v1");
}

TEST_CASE("megatron cuts the fused rows inside a head where tp exceeds the groups", "[oracle]") {
  const Model model = decoder_model(config_of(64, 2, 128));
  const LayoutSpec spec = layout("megatron", {{"tp", 8}});
  const LocalTensor first = local(model, spec, 0, fused);
  const LocalTensor second = local(model, spec, 1, fused);
  REQUIRE(rows_of(first) == 1088);  // 68 heads x 128 / 8: eight heads and a half.
  CHECK(name_of_row(model, first.rows[1087]) == "model.layers.0.self_attn.q_proj.weight");
  CHECK(first.rows[1087].row == 8 * 128 + 63);
  CHECK(second.rows[0].row == 8 * 128 + 64);
  // A group has 34 heads: rank 3 ends with its last query rows, k0 and v0 (4 x 8.5 = 34).
  const LocalTensor fourth = local(model, spec, 3, fused);
  CHECK(name_of_row(model, fourth.rows[1088 - 256]) == "model.layers.0.self_attn.k_proj.weight");
  CHECK(name_of_row(model, fourth.rows[1087]) == "model.layers.0.self_attn.v_proj.weight");
  CHECK(fourth.rows[1087].row == 127);
}

TEST_CASE("first rows of fused heads follow the formula", "[oracle]") {
  // Query head j: ((j / r)(r + 2) + j % r)d; k of group g: (g(r + 2) + r)d; v: one head further.
  const Model model = decoder_model(config_of(6, 2, 5));
  const LocalTensor tensor = local(model, layout("megatron"), 0, fused);
  REQUIRE(rows_of(tensor) == 50);
  const auto is = [&](std::size_t at, const char* name, std::int64_t row) {
    return name_of_row(model, tensor.rows[at]) ==
               std::string("model.layers.0.self_attn.") + name + "_proj.weight" &&
           tensor.rows[at].row == row;
  };
  CHECK(is(0, "q", 0));
  CHECK(is(10, "q", 10));
  CHECK(is(15, "k", 0));
  CHECK(is(20, "v", 0));
  CHECK(is(25, "q", 15));
  CHECK(is(35, "q", 25));
  CHECK(is(40, "k", 5));
  CHECK(is(45, "v", 5));
}

TEST_CASE("vllm repeats a key and value head where tp exceeds them", "[oracle]") {
  const Model model = decoder_model(config_of(8, 2, 4));
  const auto rank = [&](std::int64_t tp, std::uint32_t t) {
    return heads(model, local(model, layout("vllm", {{"tp", tp}}), t, merged));
  };
  CHECK(rank(4, 0) == "q0 q1 k0 v0");
  CHECK(rank(4, 1) == "q2 q3 k0 v0");
  CHECK(rank(4, 2) == "q4 q5 k1 v1");
  CHECK(rank(4, 3) == "q6 q7 k1 v1");
  CHECK(rank(2, 1) == "q4 q5 q6 q7 k1 v1");
  CHECK(rank(1, 0) == "q0 q1 q2 q3 q4 q5 q6 q7 k0 k1 v0 v1");
  const Model more = decoder_model(config_of(8, 4, 4));
  CHECK(heads(more, local(more, layout("vllm", {{"tp", 2}}), 1, merged)) ==
        "q4 q5 q6 q7 k2 k3 v2 v3");
}

TEST_CASE("a rank holds its part of gate and then its part of up", "[oracle]") {
  ModelConfig config = config_of(2, 2, 4);
  config.intermediate_size = 8;
  const Model model = decoder_model(config);
  const auto rows = [&](const LayoutSpec& spec, std::uint32_t t, const std::string& name) {
    std::string text;
    for (const Row& row : local(model, spec, t, name).rows) {
      const std::string tensor = name_of_row(model, row);
      text += tensor.substr(tensor.find("mlp.") + 4, 1) + std::to_string(row.row) + " ";
    }
    return text;
  };
  const LayoutSpec megatron = layout("megatron", {{"tp", 2}});
  CHECK(rows(megatron, 0, "decoder.layers.0.mlp.linear_fc1.weight") == "g0 g1 g2 g3 u0 u1 u2 u3 ");
  CHECK(rows(megatron, 1, "decoder.layers.0.mlp.linear_fc1.weight") == "g4 g5 g6 g7 u4 u5 u6 u7 ");
  const LayoutSpec vllm = layout("vllm", {{"tp", 2}});
  CHECK(rows(vllm, 1, "model.layers.0.mlp.gate_up_proj.weight") == "g4 g5 g6 g7 u4 u5 u6 u7 ");
}

TEST_CASE("row-parallel weights are cut along columns", "[oracle]") {
  ModelConfig config = config_of(4, 2, 4);
  config.intermediate_size = 12;
  const Model model = decoder_model(config);
  const std::pair<LayoutSpec, std::vector<std::string>> cases[] = {
      {layout("megatron", {{"tp", 2}}),
       {"decoder.layers.0.self_attention.linear_proj.weight",
        "decoder.layers.0.mlp.linear_fc2.weight"}},
      {layout("vllm", {{"tp", 2}}),
       {"model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight"}}};
  for (const auto& [spec, names] : cases) {
    const LocalTensor attention = local(model, spec, 1, names[0]);
    CHECK(attention.shape == std::vector<std::int64_t>{8, 8});
    CHECK(attention.first_column == 8);
    CHECK(attention.columns == 8);
    CHECK(attention.rows[7].row == 7);
    const LocalTensor mlp = local(model, spec, 1, names[1]);
    CHECK(mlp.shape == std::vector<std::int64_t>{8, 6});
    CHECK(mlp.first_column == 6);
  }
}

TEST_CASE("megatron pads the vocabulary to a multiple of 128 tp", "[oracle]") {
  struct Example {
    const char* model;
    std::int64_t vocabulary, pad_rows;
  };
  const Example examples[] = {{"Qwen3", 151936, 640},       {"Llama-3", 128256, 768},
                              {"DeepSeek-V3", 129280, 768}, {"Ling", 157184, 512},
                              {"GLM-4.5", 151552, 0},       {"Kimi-K2", 163840, 0}};
  for (const Example& example : examples) {
    INFO(example.model);
    ModelConfig config = config_of(8, 8, 1);
    config.vocab_size = example.vocabulary;
    config.tie_word_embeddings = true;
    const Model model = decoder_model(config);
    const LayoutSpec spec = layout("megatron", {{"tp", 8}});
    const std::string name = "embedding.word_embeddings.weight";
    const LocalTensor last = local(model, spec, 7, name);
    CHECK(8 * rows_of(last) == example.vocabulary + example.pad_rows);
    CHECK(padding_of(last) == example.pad_rows);
    CHECK(padding_of(local(model, spec, 6, name)) == 0);
  }
}

TEST_CASE("the padding of Qwen3's vocabulary is the tail of the last rank", "[oracle]") {
  ModelConfig config = config_of(8, 8, 1);
  config.vocab_size = 151936;
  const Model model = decoder_model(config);
  const LocalTensor last = local(model, layout("megatron", {{"tp", 8}}), 7, "output_layer.weight");
  REQUIRE(rows_of(last) == 19072);
  CHECK(last.rows[0].row == 7 * 19072);
  CHECK(last.rows[18431].row == 151935);
  CHECK(last.rows[18432] == Row{});
  CHECK(padding_of(last) == 640);
}

TEST_CASE("vllm pads the vocabulary to a multiple of 64, whole ranks if need be", "[oracle]") {
  ModelConfig config = config_of(8, 8, 1);
  config.vocab_size = 100;
  const Model model = decoder_model(config);
  const LayoutSpec spec = layout("vllm", {{"tp", 8}});  // 128 rows, 16 a rank.
  CHECK(padding_of(local(model, spec, 5, "lm_head.weight")) == 0);
  CHECK(padding_of(local(model, spec, 6, "lm_head.weight")) == 12);
  const LocalTensor last = local(model, spec, 7, "model.embed_tokens.weight");
  CHECK(padding_of(last) == 16);
  CHECK(last.shape == std::vector<std::int64_t>{16, 8});
  CHECK(last.type == ElementType::bf16);
}

TEST_CASE("fsdp2 deals out chunks until nothing is left", "[oracle]") {
  const auto counts = [](std::int64_t rows, std::int64_t ranks) {
    Model model;
    model.tensors = {{"t", ElementType::f32, Dims{rows, 3, 2}, TensorKind::parameter}};
    std::map<std::int64_t, int> ranks_with;
    std::int64_t next = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const LocalTensor part = local(model, layout("fsdp2", {{"dp", ranks}}), rank, "t");
      CHECK(part.shape == std::vector<std::int64_t>{rows_of(part), 3, 2});
      CHECK(part.columns == 6);
      for (const Row& row : part.rows) CHECK(row == Row{0, next++});
      ++ranks_with[rows_of(part)];
    }
    CHECK(next == rows);
    return ranks_with;
  };
  CHECK(counts(10, 4) == std::map<std::int64_t, int>{{3, 3}, {1, 1}});
  CHECK(counts(5, 4) == std::map<std::int64_t, int>{{2, 2}, {1, 1}, {0, 1}});
  CHECK(counts(128, 48) == std::map<std::int64_t, int>{{3, 42}, {2, 1}, {0, 5}});
}

TEST_CASE("fsdp2 keeps scalars and buffers whole on every rank", "[oracle]") {
  Model model;
  model.tensors = {{"bias", ElementType::f32, Dims{6}, TensorKind::buffer},
                   {"scale", ElementType::f32, Dims{}, TensorKind::parameter}};
  const auto rank = locals(model, layout("fsdp2", {{"dp", 3}, {"hsdp", 2}}), 2);
  CHECK(rows_of(rank.at("bias")) == 6);
  CHECK(rows_of(rank.at("scale")) == 1);
  CHECK(rank.at("scale").shape.empty());
  CHECK(rank.at("scale").columns == 1);
}

TEST_CASE("hf keeps every tensor as it is, in the type that is asked for", "[oracle]") {
  Model model;
  model.tensors = {{"ids", ElementType::i64, Dims{5}, TensorKind::buffer},
                   {"w", ElementType::bf16, Dims{2, 3, 4, 5}, TensorKind::parameter}};
  LayoutSpec spec = layout("hf");
  CHECK(local(model, spec, 0, "w").shape == std::vector<std::int64_t>{2, 3, 4, 5});
  CHECK(local(model, spec, 0, "w").columns == 60);
  CHECK(local(model, spec, 0, "w").type == ElementType::bf16);
  spec.dtype = ElementType::f32;
  CHECK(local(model, spec, 0, "w").type == ElementType::f32);
  CHECK(local(model, spec, 0, "ids").type == ElementType::i64);
}

TEST_CASE("virtual stages take layers in turn over all stages", "[oracle]") {
  ModelConfig config = config_of(2, 2, 4);
  config.num_hidden_layers = 6;
  const Model model = decoder_model(config);
  const LayoutSpec spec = layout("megatron", {{"pp", 2}, {"vpp", 2}}, {2, 1, 1, 2});
  const auto norm = [&](std::uint32_t stage, const std::string& chunk, int layer) {
    const std::string name =
        chunk + ".decoder.layers." + std::to_string(layer) + ".mlp.linear_fc1.layer_norm_weight";
    return name_of_row(model, local(model, spec, stage, name).rows[0]);
  };
  // From the rule's example, whose layers count from one, to names, whose layers count from zero.
  const auto named = [](int one_based) {
    return "model.layers." + std::to_string(one_based - 1) + ".post_attention_layernorm.weight";
  };
  CHECK(norm(0, "model0", 0) == named(1));
  CHECK(norm(0, "model0", 1) == named(2));
  CHECK(norm(1, "model0", 0) == named(3));
  CHECK(norm(0, "model1", 0) == named(4));
  CHECK(norm(1, "model1", 0) == named(5));
  CHECK(norm(1, "model1", 1) == named(6));
  const auto first = locals(model, spec, 0);
  const auto last = locals(model, spec, 1);
  CHECK(first.contains("model0.embedding.word_embeddings.weight"));
  CHECK_FALSE(first.contains("model1.decoder.layers.1.mlp.linear_fc1.weight"));
  CHECK_FALSE(first.contains("model1.output_layer.weight"));
  CHECK_FALSE(last.contains("model0.embedding.word_embeddings.weight"));
  CHECK_FALSE(last.contains("model0.decoder.final_layernorm.weight"));
  CHECK(last.contains("model1.decoder.final_layernorm.weight"));
  CHECK(last.contains("model1.output_layer.weight"));
}

TEST_CASE("ranks of one stage are neighbours", "[oracle]") {
  ModelConfig config = config_of(2, 2, 4);
  config.num_hidden_layers = 4;
  const Model model = decoder_model(config);
  const LayoutSpec spec = layout("megatron", {{"tp", 2}, {"pp", 2}});
  CHECK(heads(model, local(model, spec, 1, fused)) == "q1 k1 v1");
  const LocalTensor second = local(model, spec, 2, fused);
  CHECK(name_of_row(model, second.rows[0]) == "model.layers.2.self_attn.q_proj.weight");
  CHECK(heads(model, second) == "q0 k0 v0");
}

TEST_CASE("a tied output layer is a copy on megatron's last stage and nothing elsewhere",
          "[oracle]") {
  ModelConfig config = config_of(2, 2, 4);
  config.num_hidden_layers = 2;
  config.tie_word_embeddings = true;
  const Model model = decoder_model(config);
  CHECK_FALSE(locals(model, layout("megatron"), 0).contains("output_layer.weight"));
  const LocalTensor copy = local(model, layout("megatron", {{"pp", 2}}), 1, "output_layer.weight");
  CHECK(name_of_row(model, copy.rows[63]) == "model.embed_tokens.weight");
  CHECK(copy.rows[63].row == 63);
  CHECK(rows_of(copy) == 128);
  CHECK_FALSE(locals(model, layout("vllm"), 0).contains("lm_head.weight"));
  CHECK_FALSE(locals(model, layout("hf"), 0).contains("lm_head.weight"));
}

TEST_CASE("biases and norms have the names and places that each engine gives them", "[oracle]") {
  ModelConfig config = config_of(4, 2, 2);
  config.family = "llama";
  config.qkv_bias = config.output_bias = config.mlp_bias = config.qk_norm = true;
  const Model model = decoder_model(config);
  const std::string m = "decoder.layers.0.";
  const auto megatron = locals(model, layout("megatron", {{"tp", 2}}), 1);
  CHECK(heads(model, megatron.at(m + "self_attention.linear_qkv.bias")) == "q2 q3 k1 v1");
  CHECK(megatron.at(m + "self_attention.linear_qkv.bias").shape == std::vector<std::int64_t>{8});
  CHECK(rows_of(megatron.at(m + "self_attention.linear_qkv.layer_norm_weight")) == 8);
  CHECK(rows_of(megatron.at(m + "self_attention.linear_proj.bias")) == 8);
  CHECK(rows_of(megatron.at(m + "self_attention.q_layernorm.weight")) == 2);
  CHECK(rows_of(megatron.at(m + "self_attention.k_layernorm.weight")) == 2);
  CHECK(rows_of(megatron.at(m + "mlp.linear_fc1.bias")) == 64);
  CHECK(megatron.at(m + "mlp.linear_fc1.bias").rows[32].row == 32);
  CHECK(rows_of(megatron.at(m + "mlp.linear_fc2.bias")) == 8);
  CHECK(megatron.size() == 15);
  const std::string v = "model.layers.0.";
  const auto vllm = locals(model, layout("vllm", {{"tp", 2}}), 1);
  CHECK(heads(model, vllm.at(v + "self_attn.qkv_proj.bias")) == "q2 q3 k1 v1");
  CHECK(rows_of(vllm.at(v + "self_attn.o_proj.bias")) == 8);
  CHECK(rows_of(vllm.at(v + "self_attn.q_norm.weight")) == 2);
  CHECK(rows_of(vllm.at(v + "self_attn.k_norm.weight")) == 2);
  CHECK(rows_of(vllm.at(v + "mlp.gate_up_proj.bias")) == 64);
  CHECK(rows_of(vllm.at(v + "mlp.down_proj.bias")) == 8);
  CHECK(rows_of(vllm.at(v + "input_layernorm.weight")) == 8);
  CHECK(rows_of(vllm.at(v + "post_attention_layernorm.weight")) == 8);
  CHECK(vllm.size() == 15);
}

TEST_CASE("a model that does not fit a layout is refused", "[oracle]") {
  const Model model = decoder_model(config_of(6, 2, 4));
  const auto refused = [&](const LayoutSpec& spec, const std::string& reason,
                           std::uint32_t rank = 0) {
    const std::string text = error_of(model, spec, rank);
    INFO(text << " / " << reason);
    CHECK(text.find(reason) != std::string::npos);
  };
  refused(layout("zero"), "no rules for layout 'zero'");
  refused(layout("hf"), "one rank only", 1);
  refused(layout("hf", {{"tp", 2}}), "no option 'tp'");
  refused(layout("hf", {}, {1}), "no option 'layers'");
  refused(layout("vllm", {{"tp", 0}}), "tp must be 1 to");
  refused(layout("fsdp2", {{"dp", 2}}), "rank 2 is not below dp", 2);
  refused(layout("megatron", {{"tp", 2}}), "beyond the last stage", 2);
  refused(layout("megatron", {{"vpp", 2}}), "vpp above 1 needs pp above 1");
  refused(layout("megatron", {{"tp", 4}}), "tp must divide num_attention_heads");
  refused(layout("megatron", {{"tp", 3}}), "tp must divide the rows of linear_qkv");
  refused(layout("megatron", {{"pp", 2}}), "state layers=");
  refused(layout("megatron", {{"pp", 2}}, {1}), "layers= needs pp * vpp counts");
  refused(layout("megatron", {{"pp", 2}}, {1, 1}), "layers= needs pp * vpp counts");
  refused(layout("megatron", {{"pp", 2}}, {2, -1}), "layers= needs pp * vpp counts");
  refused(layout("vllm", {{"tp", 2}}), "not below tp", 2);
  refused(layout("vllm", {{"tp", 4}}), "tp must divide num_attention_heads");
  refused(layout("vllm", {{"tp", 3}}), "tp must divide num_key_value_heads, or be a multiple");
  refused(layout("vllm", {{"tp", 6}}), "tp must divide intermediate_size");
  LayoutSpec integers = layout("hf");
  integers.dtype = ElementType::i32;
  refused(integers, "dtype must be f32 or bf16");

  ModelConfig config = config_of(6, 2, 4);
  config.intermediate_size = 6;
  CHECK(error_of(decoder_model(config), layout("vllm", {{"tp", 6}})).find("multiple of 64") !=
        std::string::npos);
  config = config_of(2, 2, 4);
  config.intermediate_size = 7;
  CHECK(error_of(decoder_model(config), layout("megatron", {{"tp", 2}})).find("intermediate") !=
        std::string::npos);
}

TEST_CASE("a model whose tensors are not those of its config is refused", "[oracle]") {
  const auto reason = [](const Model& model) { return error_of(model, layout("megatron")); };
  Model missing = decoder_model(config_of(2, 2, 4));
  missing.tensors.pop_back();
  CHECK(reason(missing).find("no tensor model.norm.weight") != std::string::npos);
  Model reshaped = decoder_model(config_of(2, 2, 4));
  reshaped.tensors[1].shape = Dims{63, 8};
  CHECK(reason(reshaped).find("is 63x8 and should be 64x8") != std::string::npos);
  Model more = decoder_model(config_of(2, 2, 4));
  more.tensors.push_back({"rotary.inv_freq", ElementType::f32, Dims{2}, TensorKind::buffer});
  CHECK(reason(more).find("other tensors than its config.json calls for") != std::string::npos);
  Model mixed = decoder_model(config_of(2, 2, 4));
  for (Tensor& tensor : mixed.tensors) {
    if (tensor.name.find("k_proj") != std::string::npos) tensor.type = ElementType::f32;
  }
  CHECK(reason(mixed).find("different element types") != std::string::npos);
  LayoutSpec same = layout("megatron");
  same.dtype = ElementType::f32;
  CHECK(local(mixed, same, 0, fused).type == ElementType::f32);
  Model unknown = decoder_model(config_of(2, 2, 4));
  unknown.config.family = "gpt2";
  CHECK(reason(unknown).find("no rules for model family 'gpt2'") != std::string::npos);
  Model uneven = decoder_model(config_of(3, 2, 4));
  CHECK(reason(uneven).find("multiple of num_key_value_heads") != std::string::npos);
}

}  // namespace weir::oracle
