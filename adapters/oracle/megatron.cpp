// Megatron-Core's dense decoder with Transformer Engine names, written down as lists of rows.

#include <iterator>
#include <numeric>
#include <string>

#include "adapters/oracle/internal/rank_writer.hpp"

namespace weir::oracle::internal {
namespace {

struct Parallel {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t vpp = 1;
  std::int64_t tp_rank = 0;
  std::int64_t pp_rank = 0;
};

/// All rows of the fused projection: group after group, each its query heads, its key head, its
/// value head. A "head" has `head_rows` rows.
Rows fused_qkv(const ModelConfig& config, const Rows& q, const Rows& k, const Rows& v,
               std::int64_t head_rows) {
  const std::int64_t groups = config.num_key_value_heads;
  const std::int64_t heads_per_group = config.num_attention_heads / groups;
  Rows fused;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t q_rows = heads_per_group * head_rows;
    const Rows members =
        stacked({slice_of(q, group * q_rows, q_rows), slice_of(k, group * head_rows, head_rows),
                 slice_of(v, group * head_rows, head_rows)});
    fused.insert(fused.end(), members.begin(), members.end());
  }
  return fused;
}

void write_attention(const ModelConfig& config, const Parallel& parallel, const std::string& hf,
                     const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t head = config.head_dim;
  const std::int64_t q_rows = config.num_attention_heads * head;
  const std::int64_t kv_rows = config.num_key_value_heads * head;
  const std::int64_t t = parallel.tp_rank;
  const std::string attention = hf + "self_attn.";

  const std::int64_t columns = q_rows / parallel.tp;
  writer.put_matrix(local + "self_attention.linear_proj.weight",
                    writer.matrix(attention + "o_proj.weight", hidden, q_rows), columns,
                    t * columns);
  if (config.output_bias) {
    writer.put_vector(local + "self_attention.linear_proj.bias",
                      writer.vector(attention + "o_proj.bias", hidden));
  }

  writer.put_vector(local + "self_attention.linear_qkv.layer_norm_weight",
                    writer.vector(hf + "input_layernorm.weight", hidden));
  const Rows weight = fused_qkv(config, writer.matrix(attention + "q_proj.weight", q_rows, hidden),
                                writer.matrix(attention + "k_proj.weight", kv_rows, hidden),
                                writer.matrix(attention + "v_proj.weight", kv_rows, hidden), head);
  writer.put_matrix(local + "self_attention.linear_qkv.weight", part_of(weight, t, parallel.tp),
                    hidden);
  if (config.qkv_bias) {
    const Rows bias = fused_qkv(config, writer.vector(attention + "q_proj.bias", q_rows),
                                writer.vector(attention + "k_proj.bias", kv_rows),
                                writer.vector(attention + "v_proj.bias", kv_rows), head);
    writer.put_vector(local + "self_attention.linear_qkv.bias", part_of(bias, t, parallel.tp));
  }

  if (config.qk_norm) {
    writer.put_vector(local + "self_attention.q_layernorm.weight",
                      writer.vector(attention + "q_norm.weight", head));
    writer.put_vector(local + "self_attention.k_layernorm.weight",
                      writer.vector(attention + "k_norm.weight", head));
  }
}

void write_mlp(const ModelConfig& config, const Parallel& parallel, const std::string& hf,
               const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.intermediate_size;
  const std::int64_t t = parallel.tp_rank;

  writer.put_vector(local + "mlp.linear_fc1.layer_norm_weight",
                    writer.vector(hf + "post_attention_layernorm.weight", hidden));
  const Rows gate = writer.matrix(hf + "mlp.gate_proj.weight", ffn, hidden);
  const Rows up = writer.matrix(hf + "mlp.up_proj.weight", ffn, hidden);
  writer.put_matrix(local + "mlp.linear_fc1.weight",
                    stacked({part_of(gate, t, parallel.tp), part_of(up, t, parallel.tp)}), hidden);
  if (config.mlp_bias) {
    const Rows gate_bias = writer.vector(hf + "mlp.gate_proj.bias", ffn);
    const Rows up_bias = writer.vector(hf + "mlp.up_proj.bias", ffn);
    writer.put_vector(local + "mlp.linear_fc1.bias", stacked({part_of(gate_bias, t, parallel.tp),
                                                              part_of(up_bias, t, parallel.tp)}));
  }

  const std::int64_t columns = ffn / parallel.tp;
  writer.put_matrix(local + "mlp.linear_fc2.weight",
                    writer.matrix(hf + "mlp.down_proj.weight", hidden, ffn), columns, t * columns);
  if (config.mlp_bias) {
    writer.put_vector(local + "mlp.linear_fc2.bias",
                      writer.vector(hf + "mlp.down_proj.bias", hidden));
  }
}

bool fits(const Model& model, const LayoutSpec& spec, const Parallel& parallel,
          RankWriter& writer) {
  const ModelConfig& config = model.config;
  if (!require_decoder(model, writer)) return false;
  const std::int64_t chunks = parallel.pp * parallel.vpp;
  const std::int64_t fused_rows =
      (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim;
  bool ok = writer.require(parallel.pp_rank < parallel.pp, "the rank is not below tp * pp");
  ok &= writer.require(parallel.vpp == 1 || parallel.pp > 1, "vpp above 1 needs pp above 1");
  ok &= writer.require(config.num_attention_heads % parallel.tp == 0,
                       "tp must divide num_attention_heads");
  ok &= writer.require(fused_rows % parallel.tp == 0, "tp must divide the rows of linear_qkv");
  ok &= writer.require(config.intermediate_size % parallel.tp == 0,
                       "tp must divide intermediate_size");
  if (spec.layers.empty()) {
    ok &= writer.require(config.num_hidden_layers % chunks == 0,
                         "pp * vpp must divide num_hidden_layers; or state layers=");
  } else {
    bool sane = std::ssize(spec.layers) == chunks;
    for (const std::int64_t layers : spec.layers) sane &= layers >= 0;
    ok &= writer.require(sane && std::accumulate(spec.layers.begin(), spec.layers.end(),
                                                 std::int64_t{0}) == config.num_hidden_layers,
                         "layers= needs pp * vpp counts that add up to num_hidden_layers");
  }
  return ok;
}

}  // namespace

void write_megatron(const Model& model, const LayoutSpec& spec, std::uint32_t rank,
                    RankWriter& writer) {
  const ModelConfig& config = model.config;
  writer.allow({"tp", "pp", "vpp", "dp", "vocab_multiple"}, true);
  Parallel parallel{writer.option("tp"), writer.option("pp"), writer.option("vpp"), 0, 0};
  writer.option("dp");
  const std::int64_t multiple = writer.option("vocab_multiple", 128);
  parallel.tp_rank = rank % parallel.tp;
  parallel.pp_rank = rank / parallel.tp;
  if (!fits(model, spec, parallel, writer)) return;

  const std::int64_t chunks = parallel.pp * parallel.vpp;
  const std::int64_t vocabulary = padded_up(config.vocab_size, multiple * parallel.tp);
  const auto put_vocabulary = [&](const std::string& local, const std::string& table) {
    const std::int64_t count = vocabulary / parallel.tp;
    writer.put_padded(local, {table, config.vocab_size, config.hidden_size},
                      parallel.tp_rank * count, count);
  };

  // Chunks take layers in turn: all stages of virtual stage 0, then all stages of 1, and so on.
  std::int64_t layer = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t layers = spec.layers.empty() ? config.num_hidden_layers / chunks
                                                    : spec.layers[static_cast<std::size_t>(chunk)];
    const std::int64_t first_layer = layer;
    layer += layers;
    if (chunk % parallel.pp != parallel.pp_rank) continue;
    const std::string prefix =
        parallel.vpp > 1 ? "model" + std::to_string(chunk / parallel.pp) + "." : "";
    if (chunk == 0) {
      put_vocabulary(prefix + "embedding.word_embeddings.weight", "model.embed_tokens.weight");
    }
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string hf = "model.layers." + std::to_string(first_layer + i) + ".";
      const std::string local = prefix + "decoder.layers." + std::to_string(i) + ".";
      write_attention(config, parallel, hf, local, writer);
      write_mlp(config, parallel, hf, local, writer);
    }
    if (chunk != chunks - 1) continue;
    writer.put_vector(prefix + "decoder.final_layernorm.weight",
                      writer.vector("model.norm.weight", config.hidden_size));
    if (!config.tie_word_embeddings) {
      put_vocabulary(prefix + "output_layer.weight", "lm_head.weight");
    } else if (parallel.pp > 1) {
      put_vocabulary(prefix + "output_layer.weight", "model.embed_tokens.weight");
    }
  }
}

}  // namespace weir::oracle::internal
