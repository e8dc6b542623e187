// What each family's config.json says besides the sizes of a plain decoder.

#include <string>

#include "adapters/model/internal/config_reader.hpp"

namespace weir {
namespace {

/// A setting that the rules rely on.
void require(ConfigReader& reader, bool condition, const char* what) {
  if (!condition) reader.fail(std::string(what) + ", since no rule here knows it otherwise");
}

/// `mlp_only_layers` may list the first layers, and nothing else.
std::int64_t first_expert_layer(ConfigReader& reader) {
  require(reader, reader.number("decoder_sparse_step").value_or(1) == 1,
          "decoder_sparse_step should be 1");
  if (!reader.has("mlp_only_layers")) return 0;
  const nlohmann::json& layers = reader.at("mlp_only_layers");
  std::int64_t first = 0;
  bool leading = layers.is_array();
  if (leading) {
    for (const nlohmann::json& layer : layers) leading &= layer == first++;
  }
  require(reader, leading, "mlp_only_layers should list the first layers only");
  return first;
}

void read_qwen3_moe(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  config.experts.count = reader.number("num_experts", "num_local_experts").value_or(0);
  require(reader, config.experts.count > 0, "num_experts should be given");
  config.experts.intermediate_size = reader.required("moe_intermediate_size");
  config.experts.first_layer = first_expert_layer(reader);
}

void read_mtp(ConfigReader& reader, ModelConfig& config) {
  config.mtp_layers = reader.number("num_nextn_predict_layers", "num_mtp_layers").value_or(0);
}

/// GLM-4.5, DeepSeek-V3 and Kimi-K2 name these alike.
void read_routed_experts(ConfigReader& reader, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  experts.count = reader.required("n_routed_experts");
  experts.intermediate_size = reader.required("moe_intermediate_size");
  const std::int64_t shared = reader.number("n_shared_experts").value_or(0);
  // Bounded before it is multiplied; what is too large stays too large.
  experts.shared_intermediate_size =
      shared > 4096 || experts.intermediate_size > (std::int64_t{1} << 20)
          ? std::int64_t{1} << 40
          : shared * experts.intermediate_size;
  experts.first_layer = reader.required("first_k_dense_replace");
  experts.groups = reader.number("n_group").value_or(config.family == "glm4_moe" ? 1 : 8);
  experts.score_bias = true;
  require(reader, reader.number("moe_layer_freq").value_or(1) == 1, "moe_layer_freq should be 1");
  read_mtp(reader, config);
}

void read_glm4_moe(ConfigReader& reader, ModelConfig& config) {
  read_routed_experts(reader, config);
  config.experts.router_f32 = true;
  config.qkv_bias = reader.flag("attention_bias");
  config.qk_norm = reader.flag("use_qk_norm");
}

void read_deepseek_v3(ConfigReader& reader, ModelConfig& config) {
  read_routed_experts(reader, config);
  require(reader, !reader.flag("attention_bias"), "attention_bias should be false");
  LatentConfig& latent = config.latent;
  latent.kv_lora_rank = reader.required("kv_lora_rank");
  // Null means that there is none.
  if (!reader.states("q_lora_rank")) reader.fail("q_lora_rank is missing");
  latent.q_lora_rank = reader.number("q_lora_rank").value_or(0);
  latent.qk_nope_head_dim = reader.required("qk_nope_head_dim");
  latent.qk_rope_head_dim = reader.required("qk_rope_head_dim");
  latent.v_head_dim = reader.required("v_head_dim");
}

void read_bailing_moe(ConfigReader& reader, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  require(reader, !reader.flag("use_bias"), "use_bias should be false");
  config.qkv_bias = reader.flag("use_qkv_bias");
  config.qk_norm = reader.flag("use_qk_norm");
  experts.count = reader.required("num_experts");
  experts.intermediate_size = reader.required("moe_intermediate_size");
  const std::int64_t shared = reader.number("num_shared_experts").value_or(0);
  const std::int64_t width =
      reader.number("moe_shared_expert_intermediate_size").value_or(experts.intermediate_size);
  experts.shared_intermediate_size =
      shared > 4096 || width > (std::int64_t{1} << 20) ? std::int64_t{1} << 40 : shared * width;
  experts.first_layer = reader.number("first_k_dense_replace").value_or(0);
  experts.groups = reader.number("n_group").value_or(1);
  experts.score_bias = reader.flag("moe_router_enable_expert_bias");
  experts.router_f32 = reader.text("router_dtype") == "fp32";
  require(reader, reader.number("num_nextn_predict_layers").value_or(0) == 0,
          "num_nextn_predict_layers should be 0");
}

void read_qwen3_next(ConfigReader& reader, ModelConfig& config) {
  read_qwen3_moe(reader, config);
  config.qkv_bias = config.output_bias = reader.flag("attention_bias");
  config.output_gate = true;
  config.experts.shared_intermediate_size = reader.required("shared_expert_intermediate_size");
  DeltaNetConfig& net = config.delta_net;
  net.full_attention_interval = reader.number("full_attention_interval").value_or(4);
  net.key_heads = reader.required("linear_num_key_heads");
  net.value_heads = reader.required("linear_num_value_heads");
  net.key_head_dim = reader.required("linear_key_head_dim");
  net.value_head_dim = reader.required("linear_value_head_dim");
  net.conv_kernel_dim = reader.required("linear_conv_kernel_dim");
  if (!reader.has("layer_types") || net.full_attention_interval < 1) return;
  const nlohmann::json& types = reader.at("layer_types");
  bool regular =
      types.is_array() && static_cast<std::int64_t>(types.size()) == config.num_hidden_layers;
  for (std::int64_t layer = 0; regular && layer < config.num_hidden_layers; ++layer) {
    regular = types.at(static_cast<std::size_t>(layer)) ==
              (has_delta_net(config, layer) ? "linear_attention" : "full_attention");
  }
  require(reader, regular, "layer_types should be those that full_attention_interval implies");
}

void read_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.output_bias = reader.flag("attention_bias", true);
  config.experts.count = reader.number("num_local_experts", "num_experts").value_or(0);
  require(reader, config.experts.count > 0, "num_local_experts should be given");
  config.experts.intermediate_size = config.intermediate_size;
}

}  // namespace

void read_family(ConfigReader& reader, ModelConfig& config) {
  const std::string& family = config.family;
  if (family == "llama" || family == "qwen2" || family == "qwen3") {
    const bool attention_bias = reader.flag("attention_bias");
    config.qkv_bias = family == "qwen2" || attention_bias;
    config.output_bias = family != "qwen2" && attention_bias;
    config.mlp_bias = family == "llama" && reader.flag("mlp_bias");
    config.qk_norm = family == "qwen3";
  } else if (family == "qwen3_moe") {
    read_qwen3_moe(reader, config);
    config.qkv_bias = config.output_bias = reader.flag("attention_bias");
  } else if (family == "glm4_moe") {
    read_glm4_moe(reader, config);
  } else if (family == "deepseek_v3" || family == "kimi_k2") {
    read_deepseek_v3(reader, config);
  } else if (family.starts_with("bailing_moe")) {
    read_bailing_moe(reader, config);
  } else if (family == "qwen3_next") {
    read_qwen3_next(reader, config);
  } else {
    read_gpt_oss(reader, config);
  }
}

}  // namespace weir
