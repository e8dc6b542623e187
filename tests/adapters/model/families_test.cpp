// Goal: each family's tensors are those of its published checkpoints, by name, shape, type and
// kind. Method: tiny models listed by hand, and every known model's config.json written and read
// again.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapters/model/known_models.hpp"
#include "adapters/model/model.hpp"
#include "adapters/model/seeded_checkpoint.hpp"
#include "tests/adapters/model/config_fault.hpp"

namespace weir {
namespace {

/// "name 4x2" of each tensor of one layer, sorted; buffers say so and their type.
std::vector<std::string> layer_of(const ModelConfig& config, int layer) {
  const auto model = model_of(config);
  INFO((model ? "" : model.error().text));
  REQUIRE(model.has_value());
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  std::vector<std::string> lines;
  for (const Tensor& tensor : model->tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    std::string line = tensor.name.substr(prefix.size()) + " " + text_of(tensor.shape);
    if (tensor.kind == TensorKind::buffer) line += " buffer " + std::string(name_of(tensor.type));
    lines.push_back(line);
  }
  return lines;
}

ModelConfig config_of(const char* family) {
  ModelConfig config;
  config.family = family;
  config.hidden_size = 6;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 5;
  config.intermediate_size = 7;
  config.vocab_size = 11;
  config.experts = {.count = 2, .intermediate_size = 3};
  return config;
}

ModelConfig latent_config(std::int64_t q_lora_rank) {
  ModelConfig config = config_of("deepseek_v3");
  config.experts.first_layer = 1;
  config.experts.score_bias = true;
  config.experts.shared_intermediate_size = 6;
  config.latent = {.kv_lora_rank = 8,
                   .q_lora_rank = q_lora_rank,
                   .qk_nope_head_dim = 3,
                   .qk_rope_head_dim = 2,
                   .v_head_dim = 4};
  config.num_key_value_heads = 4;
  return config;
}

nlohmann::json json_of(const char* name) {
  return nlohmann::json::parse(config_json_of(*named_config(name)));
}

}  // namespace

TEST_CASE("a Qwen3-MoE layer has a router and experts one by one", "[model]") {
  ModelConfig config = config_of("qwen3_moe");
  config.qk_norm = true;
  REQUIRE(layer_of(config, 1) ==
          std::vector<std::string>{
              "input_layernorm.weight 6", "mlp.experts.0.down_proj.weight 6x3",
              "mlp.experts.0.gate_proj.weight 3x6", "mlp.experts.0.up_proj.weight 3x6",
              "mlp.experts.1.down_proj.weight 6x3", "mlp.experts.1.gate_proj.weight 3x6",
              "mlp.experts.1.up_proj.weight 3x6", "mlp.gate.weight 2x6",
              "post_attention_layernorm.weight 6", "self_attn.k_norm.weight 5",
              "self_attn.k_proj.weight 10x6", "self_attn.o_proj.weight 6x20",
              "self_attn.q_norm.weight 5", "self_attn.q_proj.weight 20x6",
              "self_attn.v_proj.weight 10x6"});
}

TEST_CASE("the first layers may be dense, and score biases are buffers of f32", "[model]") {
  ModelConfig config = config_of("glm4_moe");
  config.experts.first_layer = 1;
  config.experts.score_bias = true;
  config.experts.shared_intermediate_size = 3;
  config.qkv_bias = true;
  const std::vector<std::string> attention = {
      "self_attn.k_proj.bias 10",     "self_attn.k_proj.weight 10x6",
      "self_attn.o_proj.weight 6x20", "self_attn.q_proj.bias 20",
      "self_attn.q_proj.weight 20x6", "self_attn.v_proj.bias 10",
      "self_attn.v_proj.weight 10x6",
  };
  std::vector<std::string> dense = {"input_layernorm.weight 6", "mlp.down_proj.weight 6x7",
                                    "mlp.gate_proj.weight 7x6", "mlp.up_proj.weight 7x6",
                                    "post_attention_layernorm.weight 6"};
  dense.insert(dense.end(), attention.begin(), attention.end());
  REQUIRE(layer_of(config, 0) == dense);
  std::vector<std::string> sparse = {"input_layernorm.weight 6",
                                     "mlp.experts.0.down_proj.weight 6x3",
                                     "mlp.experts.0.gate_proj.weight 3x6",
                                     "mlp.experts.0.up_proj.weight 3x6",
                                     "mlp.experts.1.down_proj.weight 6x3",
                                     "mlp.experts.1.gate_proj.weight 3x6",
                                     "mlp.experts.1.up_proj.weight 3x6",
                                     "mlp.gate.e_score_correction_bias 2 buffer f32",
                                     "mlp.gate.weight 2x6",
                                     "mlp.shared_experts.down_proj.weight 6x3",
                                     "mlp.shared_experts.gate_proj.weight 3x6",
                                     "mlp.shared_experts.up_proj.weight 3x6",
                                     "post_attention_layernorm.weight 6"};
  sparse.insert(sparse.end(), attention.begin(), attention.end());
  REQUIRE(layer_of(config, 1) == sparse);
}

TEST_CASE("latent attention has its own projections, with and without a rank for queries",
          "[model]") {
  REQUIRE(layer_of(latent_config(9), 0) ==
          std::vector<std::string>{
              "input_layernorm.weight 6", "mlp.down_proj.weight 6x7", "mlp.gate_proj.weight 7x6",
              "mlp.up_proj.weight 7x6", "post_attention_layernorm.weight 6",
              "self_attn.kv_a_layernorm.weight 8", "self_attn.kv_a_proj_with_mqa.weight 10x6",
              "self_attn.kv_b_proj.weight 28x8", "self_attn.o_proj.weight 6x16",
              "self_attn.q_a_layernorm.weight 9", "self_attn.q_a_proj.weight 9x6",
              "self_attn.q_b_proj.weight 20x9"});
  const auto direct = layer_of(latent_config(0), 0);
  REQUIRE(direct.size() == 10);
  REQUIRE(direct.back() == "self_attn.q_proj.weight 20x6");
}

TEST_CASE("a layer of MTP is a layer with what joins it, and its embeddings are aliases",
          "[model]") {
  ModelConfig config = latent_config(9);
  const auto plain = layer_of(config, 1);
  config.mtp_layers = 1;
  std::vector<std::string> expected = {"eh_proj.weight 6x12", "enorm.weight 6", "hnorm.weight 6"};
  expected.insert(expected.end(), plain.begin(), plain.end());
  expected.insert(std::ranges::find(expected, "self_attn.q_b_proj.weight 20x9") + 1,
                  "shared_head.norm.weight 6");
  REQUIRE(layer_of(config, 2) == expected);
  REQUIRE(model_of(config)->aliases ==
          std::vector<Alias>{{"model.layers.2.embed_tokens.weight", "model.embed_tokens.weight"},
                             {"model.layers.2.shared_head.head.weight", "lm_head.weight"}});
}

TEST_CASE("Ling has its own names and one tensor of queries, keys and values", "[model]") {
  ModelConfig config = config_of("bailing_moe_v2");
  config.experts = {
      .count = 1, .intermediate_size = 3, .shared_intermediate_size = 4, .score_bias = true};
  config.qk_norm = true;
  REQUIRE(layer_of(config, 0) ==
          std::vector<std::string>{
              "attention.dense.weight 6x20", "attention.key_layernorm.weight 5",
              "attention.query_key_value.weight 40x6", "attention.query_layernorm.weight 5",
              "input_layernorm.weight 6", "mlp.experts.0.down_proj.weight 6x3",
              "mlp.experts.0.gate_proj.weight 3x6", "mlp.experts.0.up_proj.weight 3x6",
              "mlp.gate.expert_bias 1 buffer f32", "mlp.gate.weight 1x6",
              "mlp.shared_experts.down_proj.weight 6x4", "mlp.shared_experts.gate_proj.weight 4x6",
              "mlp.shared_experts.up_proj.weight 4x6", "post_attention_layernorm.weight 6"});
  REQUIRE(model_of(config)->tensors.back().name == "model.word_embeddings.weight");
}

TEST_CASE("Qwen3-Next has linear attention between layers of gated attention", "[model]") {
  ModelConfig config = config_of("qwen3_next");
  config.experts = {.count = 1, .intermediate_size = 3, .shared_intermediate_size = 4};
  config.qk_norm = config.output_gate = true;
  config.delta_net = {.full_attention_interval = 2,
                      .key_heads = 2,
                      .value_heads = 4,
                      .key_head_dim = 3,
                      .value_head_dim = 5,
                      .conv_kernel_dim = 4};
  const std::vector<std::string> mlp = {
      "mlp.experts.0.down_proj.weight 6x3",     "mlp.experts.0.gate_proj.weight 3x6",
      "mlp.experts.0.up_proj.weight 3x6",       "mlp.gate.weight 1x6",
      "mlp.shared_expert.down_proj.weight 6x4", "mlp.shared_expert.gate_proj.weight 4x6",
      "mlp.shared_expert.up_proj.weight 4x6",   "mlp.shared_expert_gate.weight 1x6",
      "post_attention_layernorm.weight 6"};
  std::vector<std::string> linear = {
      "input_layernorm.weight 6",          "linear_attn.A_log 4",
      "linear_attn.conv1d.weight 32x1x4",  "linear_attn.dt_bias 4",
      "linear_attn.in_proj_ba.weight 8x6", "linear_attn.in_proj_qkvz.weight 52x6",
      "linear_attn.norm.weight 5",         "linear_attn.out_proj.weight 6x20"};
  linear.insert(linear.end(), mlp.begin(), mlp.end());
  REQUIRE(layer_of(config, 0) == linear);
  std::vector<std::string> full = {"input_layernorm.weight 6"};
  full.insert(full.end(), mlp.begin(), mlp.end());
  for (const char* line : {"self_attn.k_norm.weight 5", "self_attn.k_proj.weight 10x6",
                           "self_attn.o_proj.weight 6x20", "self_attn.q_norm.weight 5",
                           "self_attn.q_proj.weight 40x6", "self_attn.v_proj.weight 10x6"}) {
    full.emplace_back(line);
  }
  REQUIRE(layer_of(config, 1) == full);
}

TEST_CASE("gpt-oss packs its experts with their biases", "[model]") {
  ModelConfig config = config_of("gpt_oss");
  config.qkv_bias = config.output_bias = true;
  REQUIRE(layer_of(config, 0) ==
          std::vector<std::string>{
              "input_layernorm.weight 6", "mlp.experts.down_proj 2x3x6",
              "mlp.experts.down_proj_bias 2x6", "mlp.experts.gate_up_proj 2x6x3x2",
              "mlp.experts.gate_up_proj_bias 2x3x2", "mlp.router.bias 2", "mlp.router.weight 2x6",
              "post_attention_layernorm.weight 6", "self_attn.k_proj.bias 10",
              "self_attn.k_proj.weight 10x6", "self_attn.o_proj.bias 6",
              "self_attn.o_proj.weight 6x20", "self_attn.q_proj.bias 20",
              "self_attn.q_proj.weight 20x6", "self_attn.sinks 4", "self_attn.v_proj.bias 10",
              "self_attn.v_proj.weight 10x6"});
}

TEST_CASE("each known model's config.json reads as what it was written from", "[model]") {
  for (const std::string& name : known_model_names()) {
    CAPTURE(name);
    const ModelConfig config = *named_config(name);
    const auto read = parse_model_config(config_json_of(config));
    INFO((read ? "" : read.error().text));
    REQUIRE(read.has_value());
    REQUIRE(*read == config);
  }
}

TEST_CASE("what no rule knows of a family is refused", "[model]") {
  const auto changed = [](const char* name, const char* key, const nlohmann::json& value) {
    auto json = json_of(name);
    json[key] = value;
    return fault_of(json);
  };
  const auto erased = [](const char* name, const char* key) {
    auto json = json_of(name);
    json.erase(key);
    return fault_of(json);
  };
  const std::string otherwise = ", since no rule here knows it otherwise";
  REQUIRE(changed("qwen3-30b-a3b", "decoder_sparse_step", 2) ==
          "config.json: decoder_sparse_step should be 1" + otherwise);
  REQUIRE(changed("qwen3-30b-a3b", "mlp_only_layers", {1}) ==
          "config.json: mlp_only_layers should list the first layers only" + otherwise);
  REQUIRE(changed("qwen3-30b-a3b", "num_experts", 0) ==
          "config.json: num_experts should be given" + otherwise);
  REQUIRE(changed("qwen3-30b-a3b", "num_experts", 5000) ==
          "config.json: the number of experts is 5000; it should be from 1 to 4096");
  REQUIRE(changed("deepseek-v3", "moe_layer_freq", 2) ==
          "config.json: moe_layer_freq should be 1" + otherwise);
  REQUIRE(changed("deepseek-v3", "attention_bias", true) ==
          "config.json: attention_bias should be false" + otherwise);
  REQUIRE(erased("deepseek-v3", "q_lora_rank") == "config.json: q_lora_rank is missing");
  REQUIRE(erased("deepseek-v3", "kv_lora_rank") == "config.json: kv_lora_rank is missing");
  REQUIRE(changed("deepseek-v3", "kv_lora_rank", 0) ==
          "config.json: deepseek_v3 without kv_lora_rank");
  REQUIRE(changed("deepseek-v3", "qk_rope_head_dim", INT64_MAX) ==
          "config.json: head_dim is 1048704; it should be from 1 to 4096");
  REQUIRE(changed("deepseek-v3", "n_shared_experts", INT64_MAX) ==
          "config.json: the width of the shared experts is 1099511627776; it should be from 0 to "
          "1048576");
  REQUIRE(changed("glm-4.5", "first_k_dense_replace", 93) ==
          "config.json: first_k_dense_replace is 93; it should be from 0 to 92");
  REQUIRE(changed("glm-4.5", "num_nextn_predict_layers", 17) ==
          "config.json: num_nextn_predict_layers is 17; it should be from 0 to 16");
  REQUIRE(changed("ling-1t", "use_bias", true) ==
          "config.json: use_bias should be false" + otherwise);
  REQUIRE(changed("ling-1t", "num_nextn_predict_layers", 1) ==
          "config.json: num_nextn_predict_layers should be 0" + otherwise);
  REQUIRE(changed("qwen3-next-80b-a3b", "layer_types", {"full_attention"}) ==
          "config.json: layer_types should be those that full_attention_interval implies" +
              otherwise);
  REQUIRE(changed("qwen3-next-80b-a3b", "linear_num_value_heads", 33) ==
          "config.json: linear_num_value_heads (33) does not divide by linear_num_key_heads (16)");
  REQUIRE(changed("gpt-oss-20b", "num_local_experts", 0) ==
          "config.json: num_local_experts should be given" + otherwise);
}

TEST_CASE("a hostile number of experts is refused before a tensor is listed", "[model]") {
  auto json = json_of("qwen3-30b-a3b");
  json["num_experts"] = 4096;
  json["num_hidden_layers"] = 4096;
  REQUIRE(fault_of(json) ==
          "config.json: the layers would have 16777216 experts together; there should be at most "
          "1048576");
}

TEST_CASE("a null rank for queries means none, and head_dim follows from the parts", "[model]") {
  auto json = json_of("deepseek-v3");
  json["q_lora_rank"] = nullptr;
  const auto config = parse_model_config(json.dump());
  REQUIRE(config.has_value());
  REQUIRE(config->latent.q_lora_rank == 0);
  REQUIRE(config->head_dim == 192);
  REQUIRE(config->num_key_value_heads == 128);
}

}  // namespace weir
