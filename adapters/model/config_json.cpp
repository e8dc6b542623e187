// The text of a config.json that Transformers and `parse_model_config` read alike.

#include <nlohmann/json.hpp>
#include <string>

#include "adapters/model/seeded_checkpoint.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

void add_routed_experts(const ModelConfig& config, Json& json) {
  const ExpertsConfig& experts = config.experts;
  json["n_routed_experts"] = experts.count;
  json["moe_intermediate_size"] = experts.intermediate_size;
  WEIR_ASSERT(experts.shared_intermediate_size % experts.intermediate_size == 0);
  json["n_shared_experts"] = experts.shared_intermediate_size / experts.intermediate_size;
  json["first_k_dense_replace"] = experts.first_layer;
  json["n_group"] = experts.groups;
  json["num_nextn_predict_layers"] = config.mtp_layers;
  json["num_experts_per_tok"] = 2;
}

void add_qwen3_moe(const ModelConfig& config, Json& json) {
  json["num_experts"] = config.experts.count;
  json["moe_intermediate_size"] = config.experts.intermediate_size;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (std::int64_t i = 0; i < config.experts.first_layer; ++i)
    json["mlp_only_layers"].push_back(i);
  json["num_experts_per_tok"] = 2;
}

void add_deepseek_v3(const ModelConfig& config, Json& json) {
  add_routed_experts(config, json);
  const LatentConfig& latent = config.latent;
  json["kv_lora_rank"] = latent.kv_lora_rank;
  json["q_lora_rank"] = nullptr;
  if (latent.q_lora_rank > 0) json["q_lora_rank"] = latent.q_lora_rank;
  json["qk_nope_head_dim"] = latent.qk_nope_head_dim;
  json["qk_rope_head_dim"] = latent.qk_rope_head_dim;
  json["v_head_dim"] = latent.v_head_dim;
  json["topk_method"] = "noaux_tc";
  json["scoring_func"] = "sigmoid";
  json["topk_group"] = 1;
  json.erase("head_dim");
}

void add_bailing_moe(const ModelConfig& config, Json& json) {
  const ExpertsConfig& experts = config.experts;
  json["num_experts"] = experts.count;
  json["moe_intermediate_size"] = experts.intermediate_size;
  json["num_shared_experts"] = experts.shared_intermediate_size > 0 ? 1 : 0;
  json["moe_shared_expert_intermediate_size"] = experts.shared_intermediate_size;
  json["first_k_dense_replace"] = experts.first_layer;
  json["n_group"] = experts.groups;
  json["moe_router_enable_expert_bias"] = experts.score_bias;
  json["router_dtype"] = experts.router_f32 ? "fp32" : "bf16";
  json["use_bias"] = false;
  json["use_qkv_bias"] = config.qkv_bias;
  json["use_qk_norm"] = config.qk_norm;
  json["num_experts_per_tok"] = 2;
}

void add_qwen3_next(const ModelConfig& config, Json& json) {
  add_qwen3_moe(config, json);
  const DeltaNetConfig& net = config.delta_net;
  json["shared_expert_intermediate_size"] = config.experts.shared_intermediate_size;
  json["full_attention_interval"] = net.full_attention_interval;
  json["linear_num_key_heads"] = net.key_heads;
  json["linear_num_value_heads"] = net.value_heads;
  json["linear_key_head_dim"] = net.key_head_dim;
  json["linear_value_head_dim"] = net.value_head_dim;
  json["linear_conv_kernel_dim"] = net.conv_kernel_dim;
}

const char* architecture_of(const std::string& family) {
  if (family == "llama") return "LlamaForCausalLM";
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  if (family == "qwen3_moe") return "Qwen3MoeForCausalLM";
  if (family == "glm4_moe") return "Glm4MoeForCausalLM";
  if (family == "bailing_moe") return "BailingMoeForCausalLM";
  if (family == "bailing_moe_v2") return "BailingMoeV2ForCausalLM";
  if (family == "qwen3_next") return "Qwen3NextForCausalLM";
  if (family == "gpt_oss") return "GptOssForCausalLM";
  WEIR_ASSERT(family == "deepseek_v3" || family == "kimi_k2");
  return "DeepseekV3ForCausalLM";  // Kimi-K2 names DeepSeek's.
}

void add_family(const ModelConfig& config, Json& json) {
  const std::string& family = config.family;
  if (family == "qwen3_moe") add_qwen3_moe(config, json);
  if (family == "glm4_moe") {
    add_routed_experts(config, json);
    json["use_qk_norm"] = config.qk_norm;
  }
  if (family == "deepseek_v3" || family == "kimi_k2") add_deepseek_v3(config, json);
  if (family.starts_with("bailing_moe")) add_bailing_moe(config, json);
  if (family == "qwen3_next") add_qwen3_next(config, json);
  if (family == "gpt_oss") json["num_local_experts"] = config.experts.count;
}

}  // namespace

std::string config_json_of(const ModelConfig& config) {
  const bool llama = config.family == "llama";
  const bool qwen3 = config.family == "qwen3";
  Json json;
  json["architectures"] = {architecture_of(config.family)};
  json["model_type"] = config.family;
  if (config.family != "qwen2") json["attention_bias"] = config.qkv_bias;
  if (llama) json["mlp_bias"] = config.mlp_bias;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = 0;
  json["eos_token_id"] = 0;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = 0.02;
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = llama ? 8192 : qwen3 ? 40960 : 32768;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["rms_norm_eps"] = llama ? 1e-5 : 1e-6;
  json["rope_scaling"] = nullptr;
  json["rope_theta"] = llama ? 500000.0 : 1000000.0;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["torch_dtype"] = "bfloat16";
  json["use_cache"] = true;
  if (!llama) json["use_sliding_window"] = false;
  json["vocab_size"] = config.vocab_size;
  add_family(config, json);
  return json.dump(2) + "\n";
}

}  // namespace weir
