// vLLM's dense decoder, written down as lists of rows.

#include <string>

#include "adapters/oracle/internal/rank_writer.hpp"

namespace weir::oracle::internal {
namespace {

struct Local {
  std::int64_t tp = 1;
  std::int64_t t = 0;         ///< This rank.
  std::int64_t kv_first = 0;  ///< First key/value head that this rank keeps.
  std::int64_t kv_count = 0;  ///< How many it keeps.
};

void write_layer(const ModelConfig& config, const Local& local, const std::string& layer,
                 RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t head = config.head_dim;
  const std::int64_t ffn = config.intermediate_size;
  const std::int64_t q_rows = config.num_attention_heads * head;
  const std::int64_t kv_rows = config.num_key_value_heads * head;
  const std::string attention = layer + "self_attn.";
  const std::string mlp = layer + "mlp.";

  const auto qkv = [&](const Rows& q, const Rows& k, const Rows& v) {
    return stacked({part_of(q, local.t, local.tp),
                    slice_of(k, local.kv_first * head, local.kv_count * head),
                    slice_of(v, local.kv_first * head, local.kv_count * head)});
  };
  const auto gate_up = [&](const Rows& gate, const Rows& up) {
    return stacked({part_of(gate, local.t, local.tp), part_of(up, local.t, local.tp)});
  };

  writer.put_matrix(attention + "qkv_proj.weight",
                    qkv(writer.matrix(attention + "q_proj.weight", q_rows, hidden),
                        writer.matrix(attention + "k_proj.weight", kv_rows, hidden),
                        writer.matrix(attention + "v_proj.weight", kv_rows, hidden)),
                    hidden);
  if (config.qkv_bias) {
    writer.put_vector(attention + "qkv_proj.bias",
                      qkv(writer.vector(attention + "q_proj.bias", q_rows),
                          writer.vector(attention + "k_proj.bias", kv_rows),
                          writer.vector(attention + "v_proj.bias", kv_rows)));
  }
  writer.put_matrix(attention + "o_proj.weight",
                    writer.matrix(attention + "o_proj.weight", hidden, q_rows), q_rows / local.tp,
                    local.t * (q_rows / local.tp));
  if (config.output_bias) {
    writer.put_vector(attention + "o_proj.bias", writer.vector(attention + "o_proj.bias", hidden));
  }
  if (config.qk_norm) {
    writer.put_vector(attention + "q_norm.weight",
                      writer.vector(attention + "q_norm.weight", head));
    writer.put_vector(attention + "k_norm.weight",
                      writer.vector(attention + "k_norm.weight", head));
  }

  writer.put_matrix(mlp + "gate_up_proj.weight",
                    gate_up(writer.matrix(mlp + "gate_proj.weight", ffn, hidden),
                            writer.matrix(mlp + "up_proj.weight", ffn, hidden)),
                    hidden);
  if (config.mlp_bias) {
    writer.put_vector(mlp + "gate_up_proj.bias", gate_up(writer.vector(mlp + "gate_proj.bias", ffn),
                                                         writer.vector(mlp + "up_proj.bias", ffn)));
  }
  writer.put_matrix(mlp + "down_proj.weight", writer.matrix(mlp + "down_proj.weight", hidden, ffn),
                    ffn / local.tp, local.t * (ffn / local.tp));
  if (config.mlp_bias) {
    writer.put_vector(mlp + "down_proj.bias", writer.vector(mlp + "down_proj.bias", hidden));
  }
  for (const char* const norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
    writer.put_vector(layer + norm, writer.vector(layer + norm, hidden));
  }
}

}  // namespace

void write_vllm(const Model& model, std::uint32_t rank, RankWriter& writer) {
  const ModelConfig& config = model.config;
  writer.allow({"tp"}, false);
  Local local;
  local.tp = writer.option("tp");
  local.t = rank;
  if (!require_decoder(model, writer)) return;
  const std::int64_t kv_heads = config.num_key_value_heads;
  const std::int64_t vocabulary = padded_up(config.vocab_size, 64);
  bool ok = writer.require(local.t < local.tp, "the rank is not below tp");
  ok &= writer.require(config.num_attention_heads % local.tp == 0,
                       "tp must divide num_attention_heads");
  ok &= writer.require(local.tp >= kv_heads ? local.tp % kv_heads == 0 : kv_heads % local.tp == 0,
                       "tp must divide num_key_value_heads, or be a multiple of it");
  ok &=
      writer.require(config.intermediate_size % local.tp == 0, "tp must divide intermediate_size");
  ok &= writer.require(vocabulary % local.tp == 0,
                       "tp must divide vocab_size rounded up to a multiple of 64");
  if (!ok) return;

  if (local.tp >= kv_heads) {
    local.kv_count = 1;  // Each head lies on tp / kv_heads ranks in a row.
    local.kv_first = local.t / (local.tp / kv_heads);
  } else {
    local.kv_count = kv_heads / local.tp;
    local.kv_first = local.t * local.kv_count;
  }

  const auto put_vocabulary = [&](const std::string& name) {
    const std::int64_t count = vocabulary / local.tp;
    writer.put_padded(name, {name, config.vocab_size, config.hidden_size}, local.t * count, count);
  };
  put_vocabulary("model.embed_tokens.weight");
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    write_layer(config, local, "model.layers." + std::to_string(layer) + ".", writer);
  }
  writer.put_vector("model.norm.weight", writer.vector("model.norm.weight", config.hidden_size));
  if (!config.tie_word_embeddings) put_vocabulary("lm_head.weight");
}

}  // namespace weir::oracle::internal
