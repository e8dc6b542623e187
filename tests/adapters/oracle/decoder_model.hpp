#pragma once
// Small decoder models for tests, listed here tensor by tensor so that they do not rest on
// `model_of`, which is itself under test.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "adapters/model/model.hpp"

namespace weir::oracle {

class DecoderList {
 public:
  explicit DecoderList(const ModelConfig& config) : config_(config) { model_.config = config; }

  Model listed() {
    const bool bailing = config_.family.starts_with("bailing");
    const std::string embedding =
        bailing ? "model.word_embeddings.weight" : "model.embed_tokens.weight";
    const std::int64_t hidden = config_.hidden_size;
    add(embedding, {config_.vocab_size, hidden});
    add("model.norm.weight", {hidden});
    if (config_.tie_word_embeddings) {
      model_.aliases.push_back({"lm_head.weight", embedding});
    } else {
      add("lm_head.weight", {config_.vocab_size, hidden});
    }
    for (std::int64_t i = 0; i < config_.num_hidden_layers + config_.mtp_layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {hidden});
      add(layer + "post_attention_layernorm.weight", {hidden});
      const bool next = config_.family == "qwen3_next";
      if (next && (i + 1) % config_.delta_net.full_attention_interval != 0) {
        add_linear_attention(layer + "linear_attn.");
      } else if (config_.latent.kv_lora_rank > 0) {
        add_latent(layer + "self_attn.");
      } else if (bailing) {
        add_bailing(layer + "attention.");
      } else {
        add_attention(layer + "self_attn.");
      }
      if (config_.family == "gpt_oss") {
        add_gpt_oss(layer);
      } else if (config_.experts.count > 0 && i >= config_.experts.first_layer) {
        add_experts(layer + "mlp.", bailing);
      } else {
        add_mlp(layer + "mlp.", config_.intermediate_size);
      }
      if (i >= config_.num_hidden_layers) add_mtp(layer, embedding);
    }
    std::ranges::sort(model_.tensors, {}, &Tensor::name);
    return model_;
  }

 private:
  void add(std::string name, Dims shape) {
    model_.tensors.push_back({std::move(name), config_.type, shape, TensorKind::parameter});
  }
  void add_linear(const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
    add(name + ".weight", {rows, columns});
    if (bias) add(name + ".bias", {rows});
  }
  void add_attention(const std::string& at) {
    const std::int64_t q = config_.num_attention_heads * config_.head_dim;
    const std::int64_t kv = config_.num_key_value_heads * config_.head_dim;
    add_linear(at + "q_proj", config_.output_gate ? 2 * q : q, config_.hidden_size,
               config_.qkv_bias);
    add_linear(at + "k_proj", kv, config_.hidden_size, config_.qkv_bias);
    add_linear(at + "v_proj", kv, config_.hidden_size, config_.qkv_bias);
    add_linear(at + "o_proj", config_.hidden_size, q, config_.output_bias);
    if (!config_.qk_norm) return;
    add(at + "q_norm.weight", {config_.head_dim});
    add(at + "k_norm.weight", {config_.head_dim});
  }
  void add_linear_attention(const std::string& at) {
    const DeltaNetConfig& net = config_.delta_net;
    const std::int64_t keys = net.key_heads * net.key_head_dim;
    const std::int64_t values = net.value_heads * net.value_head_dim;
    add(at + "A_log", {net.value_heads});
    add(at + "dt_bias", {net.value_heads});
    add(at + "conv1d.weight", {2 * keys + values, 1, net.conv_kernel_dim});
    add(at + "in_proj_qkvz.weight", {2 * keys + 2 * values, config_.hidden_size});
    add(at + "in_proj_ba.weight", {2 * net.value_heads, config_.hidden_size});
    add(at + "norm.weight", {net.value_head_dim});
    add(at + "out_proj.weight", {config_.hidden_size, values});
  }
  void add_bailing(const std::string& at) {
    const std::int64_t q = config_.num_attention_heads * config_.head_dim;
    const std::int64_t kv = config_.num_key_value_heads * config_.head_dim;
    add_linear(at + "query_key_value", q + 2 * kv, config_.hidden_size, config_.qkv_bias);
    add_linear(at + "dense", config_.hidden_size, q, config_.output_bias);
    if (!config_.qk_norm) return;
    add(at + "query_layernorm.weight", {config_.head_dim});
    add(at + "key_layernorm.weight", {config_.head_dim});
  }
  void add_latent(const std::string& at) {
    const LatentConfig& ranks = config_.latent;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = config_.num_attention_heads;
    if (ranks.q_lora_rank == 0) {
      add(at + "q_proj.weight", {heads * config_.head_dim, hidden});
    } else {
      add(at + "q_a_proj.weight", {ranks.q_lora_rank, hidden});
      add(at + "q_a_layernorm.weight", {ranks.q_lora_rank});
      add(at + "q_b_proj.weight", {heads * config_.head_dim, ranks.q_lora_rank});
    }
    add(at + "kv_a_proj_with_mqa.weight", {ranks.kv_lora_rank + ranks.qk_rope_head_dim, hidden});
    add(at + "kv_a_layernorm.weight", {ranks.kv_lora_rank});
    add(at + "kv_b_proj.weight",
        {heads * (ranks.qk_nope_head_dim + ranks.v_head_dim), ranks.kv_lora_rank});
    add(at + "o_proj.weight", {hidden, heads * ranks.v_head_dim});
  }
  void add_mlp(const std::string& at, std::int64_t width) {
    add_linear(at + "gate_proj", width, config_.hidden_size, config_.mlp_bias);
    add_linear(at + "up_proj", width, config_.hidden_size, config_.mlp_bias);
    add_linear(at + "down_proj", config_.hidden_size, width, config_.mlp_bias);
  }
  void add_experts(const std::string& at, bool bailing) {
    const ExpertsConfig& experts = config_.experts;
    add(at + "gate.weight", {experts.count, config_.hidden_size});
    if (experts.score_bias) {
      model_.tensors.push_back(
          {at + (bailing ? "gate.expert_bias" : "gate.e_score_correction_bias"), ElementType::f32,
           Dims{experts.count}, TensorKind::buffer});
    }
    for (std::int64_t expert = 0; expert < experts.count; ++expert) {
      add_mlp(at + "experts." + std::to_string(expert) + ".", experts.intermediate_size);
    }
    const bool next = config_.family == "qwen3_next";
    if (experts.shared_intermediate_size > 0) {
      add_mlp(at + (next ? "shared_expert." : "shared_experts."), experts.shared_intermediate_size);
      if (next) add(at + "shared_expert_gate.weight", {1, config_.hidden_size});
    }
  }
  void add_gpt_oss(const std::string& layer) {
    const std::int64_t experts = config_.experts.count;
    const std::int64_t width = config_.experts.intermediate_size;
    add(layer + "self_attn.sinks", {config_.num_attention_heads});
    add_linear(layer + "mlp.router", experts, config_.hidden_size, true);
    add(layer + "mlp.experts.gate_up_proj", {experts, config_.hidden_size, width, 2});
    add(layer + "mlp.experts.gate_up_proj_bias", {experts, width, 2});
    add(layer + "mlp.experts.down_proj", {experts, width, config_.hidden_size});
    add(layer + "mlp.experts.down_proj_bias", {experts, config_.hidden_size});
  }
  void add_mtp(const std::string& layer, const std::string& embedding) {
    const std::int64_t hidden = config_.hidden_size;
    add(layer + "enorm.weight", {hidden});
    add(layer + "hnorm.weight", {hidden});
    add(layer + "eh_proj.weight", {hidden, 2 * hidden});
    add(layer + "shared_head.norm.weight", {hidden});
    model_.aliases.push_back({layer + "embed_tokens.weight", embedding});
    model_.aliases.push_back({layer + "shared_head.head.weight",
                              config_.tie_word_embeddings ? embedding : "lm_head.weight"});
  }

  const ModelConfig& config_;
  Model model_;
};

inline Model decoder_model(const ModelConfig& config) {
  return DecoderList(config).listed();
}

}  // namespace weir::oracle
