// The tensors of a decoder, layer by layer, under Hugging Face's names.

#include <string>
#include <utility>

#include "adapters/model/decoder_names.hpp"
#include "adapters/model/internal/families.hpp"

namespace weir {
namespace {

class TensorList {
 public:
  explicit TensorList(const ModelConfig& config) : config_(config) {}

  void add(std::string name, Dims shape) {
    tensors_.push_back({std::move(name), config_.type, shape, TensorKind::parameter});
  }

  void add_linear(const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
    add(name + ".weight", {rows, columns});
    if (bias) add(name + ".bias", {rows});
  }

  void add_layer(std::int64_t index);
  void add_mtp(std::int64_t index);

  std::vector<Tensor> take() && { return std::move(tensors_); }

 private:
  void add_attention(const std::string& layer);
  void add_latent(const std::string& attention);
  void add_delta_net(const std::string& attention);
  void add_mlp(const std::string& mlp, std::int64_t width);
  void add_experts(const std::string& layer);

  const ModelConfig& config_;
  std::vector<Tensor> tensors_;
};

void TensorList::add_attention(const std::string& layer) {
  const DecoderNames names = names_of(config_);
  const std::int64_t hidden = config_.hidden_size;
  const std::string attention = layer + std::string(names.attention);
  const std::int64_t query = query_rows(config_);
  const std::int64_t key_value = key_value_rows(config_);
  if (names.fused_qkv.empty()) {
    add_linear(attention + "q_proj", query, hidden, config_.qkv_bias);
    add_linear(attention + "k_proj", key_value, hidden, config_.qkv_bias);
    add_linear(attention + "v_proj", key_value, hidden, config_.qkv_bias);
  } else {
    add_linear(attention + std::string(names.fused_qkv), query + 2 * key_value, hidden,
               config_.qkv_bias);
  }
  add_linear(attention + std::string(names.output), hidden,
             config_.num_attention_heads * config_.head_dim, config_.output_bias);
  if (config_.qk_norm) {
    add(attention + std::string(names.query_norm) + ".weight", {config_.head_dim});
    add(attention + std::string(names.key_norm) + ".weight", {config_.head_dim});
  }
  // The logit of a token that is not there, one for each head.
  if (has_joint_experts(config_)) add(attention + "sinks", {config_.num_attention_heads});
}

void TensorList::add_latent(const std::string& attention) {
  const LatentConfig& latent = config_.latent;
  const std::int64_t heads = config_.num_attention_heads;
  const std::int64_t hidden = config_.hidden_size;
  if (latent.q_lora_rank == 0) {
    add_linear(attention + "q_proj", heads * config_.head_dim, hidden, false);
  } else {
    add_linear(attention + "q_a_proj", latent.q_lora_rank, hidden, false);
    add(attention + "q_a_layernorm.weight", {latent.q_lora_rank});
    add_linear(attention + "q_b_proj", heads * config_.head_dim, latent.q_lora_rank, false);
  }
  add_linear(attention + "kv_a_proj_with_mqa", latent.kv_lora_rank + latent.qk_rope_head_dim,
             hidden, false);
  add(attention + "kv_a_layernorm.weight", {latent.kv_lora_rank});
  add_linear(attention + "kv_b_proj", heads * (latent.qk_nope_head_dim + latent.v_head_dim),
             latent.kv_lora_rank, false);
  add_linear(attention + "o_proj", hidden, heads * latent.v_head_dim, false);
}

void TensorList::add_delta_net(const std::string& attention) {
  const DeltaNetConfig& net = config_.delta_net;
  const std::int64_t keys = net.key_heads * net.key_head_dim;
  const std::int64_t values = net.value_heads * net.value_head_dim;
  add(attention + "A_log", {net.value_heads});
  add(attention + "conv1d.weight", {2 * keys + values, 1, net.conv_kernel_dim});
  add(attention + "dt_bias", {net.value_heads});
  add_linear(attention + "in_proj_ba", 2 * net.value_heads, config_.hidden_size, false);
  add_linear(attention + "in_proj_qkvz", 2 * keys + 2 * values, config_.hidden_size, false);
  add(attention + "norm.weight", {net.value_head_dim});
  add_linear(attention + "out_proj", config_.hidden_size, values, false);
}

void TensorList::add_mlp(const std::string& mlp, std::int64_t width) {
  add_linear(mlp + "gate_proj", width, config_.hidden_size, config_.mlp_bias);
  add_linear(mlp + "up_proj", width, config_.hidden_size, config_.mlp_bias);
  add_linear(mlp + "down_proj", config_.hidden_size, width, config_.mlp_bias);
}

void TensorList::add_experts(const std::string& layer) {
  const ExpertsConfig& experts = config_.experts;
  const DecoderNames names = names_of(config_);
  const std::int64_t hidden = config_.hidden_size;
  add(layer + std::string(names.router) + "weight", {experts.count, hidden});
  if (experts.score_bias) {
    // A buffer of f32: engines keep it so, whatever the weights' type.
    tensors_.push_back({layer + std::string(names.score_bias), ElementType::f32,
                        Dims{experts.count}, TensorKind::buffer});
  }
  if (has_joint_experts(config_)) {
    const std::int64_t width = experts.intermediate_size;
    add(layer + std::string(names.router) + "bias", {experts.count});
    add(layer + "mlp.experts.gate_up_proj", {experts.count, hidden, width, 2});
    add(layer + "mlp.experts.gate_up_proj_bias", {experts.count, width, 2});
    add(layer + "mlp.experts.down_proj", {experts.count, width, hidden});
    add(layer + "mlp.experts.down_proj_bias", {experts.count, hidden});
    return;
  }
  for (std::int64_t expert = 0; expert < experts.count; ++expert) {
    add_mlp(layer + "mlp.experts." + std::to_string(expert) + ".", experts.intermediate_size);
  }
  if (experts.shared_intermediate_size > 0) {
    add_mlp(layer + std::string(names.shared_experts), experts.shared_intermediate_size);
    if (!names.shared_gate.empty()) add(layer + std::string(names.shared_gate), {1, hidden});
  }
}

void TensorList::add_layer(std::int64_t index) {
  const std::string layer = layer_name(index);
  add(layer + "input_layernorm.weight", {config_.hidden_size});
  if (has_delta_net(config_, index)) {
    add_delta_net(layer + "linear_attn.");
  } else if (config_.latent.kv_lora_rank > 0) {
    add_latent(layer + "self_attn.");
  } else {
    add_attention(layer);
  }
  add(layer + "post_attention_layernorm.weight", {config_.hidden_size});
  if (has_experts(config_, index)) {
    add_experts(layer);
  } else {
    add_mlp(layer + "mlp.", config_.intermediate_size);
  }
}

/// A layer that predicts one token further: it joins the hidden state with the next embedding.
void TensorList::add_mtp(std::int64_t index) {
  const std::string layer = layer_name(index);
  const std::int64_t hidden = config_.hidden_size;
  add(layer + "enorm.weight", {hidden});
  add(layer + "hnorm.weight", {hidden});
  add(layer + "eh_proj.weight", {hidden, 2 * hidden});
  add(layer + "shared_head.norm.weight", {hidden});
  add_layer(index);
}

}  // namespace

std::vector<Tensor> decoder_tensors(const ModelConfig& config) {
  TensorList list(config);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) list.add_layer(layer);
  for (std::int64_t layer = 0; layer < config.mtp_layers; ++layer) {
    list.add_mtp(config.num_hidden_layers + layer);
  }
  list.add(std::string(final_norm_name), {config.hidden_size});
  return std::move(list).take();
}

}  // namespace weir
