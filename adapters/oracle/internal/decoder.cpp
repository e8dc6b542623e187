// What the decoders that the engines' rules are about must be like, whatever the layout.

#include "adapters/oracle/internal/decoder.hpp"

#include <iterator>
#include <string>

namespace weir::oracle::internal {
namespace {

/// What has a rule somewhere; `write_megatron` refuses what it has none for.
bool is_known(const std::string& family) {
  for (const char* const known :
       {"llama", "qwen2", "qwen3", "qwen3_moe", "glm4_moe", "deepseek_v3", "kimi_k2", "bailing_moe",
        "bailing_moe_v2", "qwen3_next", "gpt_oss"}) {
    if (family == known) return true;
  }
  return false;
}

/// Looks up every tensor that the config calls for, and counts them.
class Requirements {
 public:
  Requirements(const ModelConfig& config, RankWriter& writer) : config_(config), writer_(writer) {}

  std::int64_t count_all() {
    const std::int64_t hidden = config_.hidden_size;
    matrix(embedding_of(config_), config_.vocab_size, hidden);
    if (!config_.tie_word_embeddings) matrix("lm_head.weight", config_.vocab_size, hidden);
    vector("model.norm.weight", hidden);
    for (std::int64_t i = 0; i < config_.num_hidden_layers + config_.mtp_layers; ++i) {
      const std::string layer = layer_of(i);
      if (i >= config_.num_hidden_layers) {
        vector(layer + "enorm.weight", hidden);
        vector(layer + "hnorm.weight", hidden);
        matrix(layer + "eh_proj.weight", hidden, 2 * hidden);
        vector(layer + "shared_head.norm.weight", hidden);
      }
      vector(layer + "input_layernorm.weight", hidden);
      vector(layer + "post_attention_layernorm.weight", hidden);
      if (is_linear(config_, i)) {
        linear_attention(layer + "linear_attn.");
      } else if (is_latent(config_)) {
        latent(layer + "self_attn.");
      } else if (is_bailing(config_)) {
        bailing(layer + "attention.");
      } else {
        attention(layer + "self_attn.");
      }
      if (is_gpt_oss(config_)) {
        joint_experts(layer + "mlp.");
      } else if (is_sparse(config_, i)) {
        experts(layer + "mlp.");
      } else {
        mlp(layer + "mlp.", config_.intermediate_size);
      }
    }
    return count_;
  }

 private:
  void vector(const std::string& name, std::int64_t rows) {
    writer_.vector(name, rows);
    ++count_;
  }
  void matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    writer_.matrix(name, rows, columns);
    ++count_;
  }
  void linear(const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
    matrix(name + ".weight", rows, columns);
    if (bias) vector(name + ".bias", rows);
  }

  void attention(const std::string& at) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t q = config_.num_attention_heads * config_.head_dim;
    const std::int64_t kv = config_.num_key_value_heads * config_.head_dim;
    linear(at + "q_proj", config_.output_gate ? q + q : q, hidden, config_.qkv_bias);
    linear(at + "k_proj", kv, hidden, config_.qkv_bias);
    linear(at + "v_proj", kv, hidden, config_.qkv_bias);
    linear(at + "o_proj", hidden, q, config_.output_bias);
    if (config_.qk_norm) vector(at + "q_norm.weight", config_.head_dim);
    if (config_.qk_norm) vector(at + "k_norm.weight", config_.head_dim);
    if (is_gpt_oss(config_)) vector(at + "sinks", config_.num_attention_heads);
  }

  void linear_attention(const std::string& at) {
    const DeltaNetConfig& net = config_.delta_net;
    const std::int64_t keys = net.key_heads * net.key_head_dim;
    const std::int64_t values = net.value_heads * net.value_head_dim;
    vector(at + "A_log", net.value_heads);
    vector(at + "dt_bias", net.value_heads);
    writer_.kernel(at + "conv1d.weight", keys + keys + values, net.conv_kernel_dim);
    ++count_;
    matrix(at + "in_proj_qkvz.weight", keys + keys + values + values, config_.hidden_size);
    matrix(at + "in_proj_ba.weight", net.value_heads + net.value_heads, config_.hidden_size);
    vector(at + "norm.weight", net.value_head_dim);
    matrix(at + "out_proj.weight", config_.hidden_size, values);
  }

  void bailing(const std::string& at) {
    const std::int64_t q = config_.num_attention_heads * config_.head_dim;
    const std::int64_t kv = config_.num_key_value_heads * config_.head_dim;
    linear(at + "query_key_value", q + kv + kv, config_.hidden_size, config_.qkv_bias);
    linear(at + "dense", config_.hidden_size, q, config_.output_bias);
    if (config_.qk_norm) vector(at + "query_layernorm.weight", config_.head_dim);
    if (config_.qk_norm) vector(at + "key_layernorm.weight", config_.head_dim);
  }

  void latent(const std::string& at) {
    const LatentConfig& ranks = config_.latent;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = config_.num_attention_heads;
    const std::int64_t qk = ranks.qk_nope_head_dim + ranks.qk_rope_head_dim;
    if (ranks.q_lora_rank > 0) {
      matrix(at + "q_a_proj.weight", ranks.q_lora_rank, hidden);
      vector(at + "q_a_layernorm.weight", ranks.q_lora_rank);
      matrix(at + "q_b_proj.weight", heads * qk, ranks.q_lora_rank);
    } else {
      matrix(at + "q_proj.weight", heads * qk, hidden);
    }
    matrix(at + "kv_a_proj_with_mqa.weight", ranks.kv_lora_rank + ranks.qk_rope_head_dim, hidden);
    vector(at + "kv_a_layernorm.weight", ranks.kv_lora_rank);
    matrix(at + "kv_b_proj.weight", heads * (ranks.qk_nope_head_dim + ranks.v_head_dim),
           ranks.kv_lora_rank);
    matrix(at + "o_proj.weight", hidden, heads * ranks.v_head_dim);
  }

  void mlp(const std::string& at, std::int64_t width) {
    linear(at + "gate_proj", width, config_.hidden_size, config_.mlp_bias);
    linear(at + "up_proj", width, config_.hidden_size, config_.mlp_bias);
    linear(at + "down_proj", config_.hidden_size, width, config_.mlp_bias);
  }

  void joint_experts(const std::string& at) {
    const std::int64_t experts = config_.experts.count;
    const std::int64_t width = config_.experts.intermediate_size;
    linear(at + "router", experts, config_.hidden_size, true);
    writer_.rows_of(at + "experts.gate_up_proj", Dims{experts, config_.hidden_size, width, 2});
    writer_.rows_of(at + "experts.gate_up_proj_bias", Dims{experts, width, 2});
    writer_.rows_of(at + "experts.down_proj", Dims{experts, width, config_.hidden_size});
    writer_.rows_of(at + "experts.down_proj_bias", Dims{experts, config_.hidden_size});
    count_ += 4;
  }

  void experts(const std::string& at) {
    matrix(at + "gate.weight", config_.experts.count, config_.hidden_size);
    if (config_.experts.score_bias) vector(at + score_bias_of(config_), config_.experts.count);
    for (std::int64_t expert = 0; expert < config_.experts.count; ++expert) {
      mlp(at + "experts." + std::to_string(expert) + ".", config_.experts.intermediate_size);
    }
    if (config_.experts.shared_intermediate_size > 0) {
      mlp(at + shared_of(config_), config_.experts.shared_intermediate_size);
      if (is_next(config_)) matrix(at + "shared_expert_gate.weight", 1, config_.hidden_size);
    }
  }

  const ModelConfig& config_;
  RankWriter& writer_;
  std::int64_t count_ = 0;
};

/// `count` rows of one expert, of which one begins `spacing` behind the other and whose elements
/// are `step` apart.
struct Comb {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t spacing = 1;
  std::int64_t step = 1;
};

Rows comb_of(const Rows& experts, std::int64_t expert, const Comb& comb) {
  Rows rows;
  for (std::int64_t i = 0; i < comb.count && expert < std::ssize(experts); ++i) {
    Row row = experts[static_cast<std::size_t>(expert)];
    row.column = comb.first + i * comb.spacing;
    row.step = comb.step;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

bool is_latent(const ModelConfig& config) {
  return config.family == "deepseek_v3" || config.family == "kimi_k2";
}

bool is_bailing(const ModelConfig& config) {
  return config.family == "bailing_moe" || config.family == "bailing_moe_v2";
}

bool is_sparse(const ModelConfig& config, std::int64_t layer) {
  return config.experts.count != 0 && layer >= config.experts.first_layer;
}

bool is_next(const ModelConfig& config) {
  return config.family == "qwen3_next";
}

bool is_gpt_oss(const ModelConfig& config) {
  return config.family == "gpt_oss";
}

bool is_linear(const ModelConfig& config, std::int64_t layer) {
  return is_next(config) && layer % config.delta_net.full_attention_interval !=
                                config.delta_net.full_attention_interval - 1;
}

std::string shared_of(const ModelConfig& config) {
  return is_next(config) ? "shared_expert." : "shared_experts.";
}

std::string layer_of(std::int64_t index) {
  return "model.layers." + std::to_string(index) + ".";
}

std::string attention_of(const ModelConfig& config) {
  return is_bailing(config) ? "attention." : "self_attn.";
}

std::string embedding_of(const ModelConfig& config) {
  return is_bailing(config) ? "model.word_embeddings.weight" : "model.embed_tokens.weight";
}

std::string score_bias_of(const ModelConfig& config) {
  return is_bailing(config) ? "gate.expert_bias" : "gate.e_score_correction_bias";
}

QkvRows qkv_rows(const ModelConfig& config, const std::string& layer, const std::string& kind,
                 RankWriter& writer) {
  const std::int64_t heads = config.num_attention_heads * config.head_dim;
  const std::int64_t q = config.output_gate ? heads + heads : heads;
  const std::int64_t kv = config.num_key_value_heads * config.head_dim;
  const auto all = [&](const std::string& module, std::int64_t rows) {
    const std::string name = layer + attention_of(config) + module + "." + kind;
    return kind == "bias" ? writer.vector(name, rows)
                          : writer.matrix(name, rows, config.hidden_size);
  };
  if (!is_bailing(config)) return {all("q_proj", q), all("k_proj", kv), all("v_proj", kv)};
  const Rows fused = all("query_key_value", q + kv + kv);
  return {slice_of(fused, 0, q), slice_of(fused, q, kv), slice_of(fused, q + kv, kv)};
}

MlpRows mlp_rows(const ModelConfig& config, const std::string& mlp, std::int64_t width,
                 RankWriter& writer) {
  return {writer.matrix(mlp + "gate_proj.weight", width, config.hidden_size),
          writer.matrix(mlp + "up_proj.weight", width, config.hidden_size),
          writer.matrix(mlp + "down_proj.weight", config.hidden_size, width)};
}

MlpRows expert_rows(const ModelConfig& config, const std::string& layer, std::int64_t expert,
                    RankWriter& writer) {
  if (is_gpt_oss(config)) {
    const std::int64_t hidden = config.hidden_size;
    const std::int64_t width = config.experts.intermediate_size;
    const Rows both = writer.rows_of(layer + "mlp.experts.gate_up_proj",
                                     Dims{config.experts.count, hidden, width, 2});
    const Rows down =
        writer.rows_of(layer + "mlp.experts.down_proj", Dims{config.experts.count, width, hidden});
    return {comb_of(both, expert, {0, width, 2, 2 * width}),
            comb_of(both, expert, {1, width, 2, 2 * width}),
            comb_of(down, expert, {0, hidden, 1, hidden})};
  }
  return mlp_rows(config, layer + "mlp.experts." + std::to_string(expert) + ".",
                  config.experts.intermediate_size, writer);
}

MlpRows expert_bias_rows(const ModelConfig& config, const std::string& layer, std::int64_t expert,
                         RankWriter& writer) {
  const std::int64_t width = config.experts.intermediate_size;
  const Rows both =
      writer.rows_of(layer + "mlp.experts.gate_up_proj_bias", Dims{config.experts.count, width, 2});
  const Rows down = writer.rows_of(layer + "mlp.experts.down_proj_bias",
                                   Dims{config.experts.count, config.hidden_size});
  return {comb_of(both, expert, {0, width, 2}), comb_of(both, expert, {1, width, 2}),
          comb_of(down, expert, {0, config.hidden_size})};
}

bool require_decoder(const Model& model, RankWriter& writer) {
  const ModelConfig& config = model.config;
  return writer.require(is_known(config.family),
                        "the oracle has no rules for model family '" + config.family +
                            "'; use hf or fsdp2, or a model of another family") &&
         writer.require(config.num_key_value_heads >= 1 &&
                            config.num_attention_heads % config.num_key_value_heads == 0,
                        "num_attention_heads must be a multiple of num_key_value_heads") &&
         writer.require(Requirements(config, writer).count_all() == std::ssize(model.tensors),
                        "the model has other tensors than its config.json calls for");
}

}  // namespace weir::oracle::internal
