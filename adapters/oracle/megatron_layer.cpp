// One layer of Megatron-Core's decoder with Transformer Engine names, written down as lists of
// rows.

#include "adapters/oracle/internal/megatron_layer.hpp"

#include <string>
#include <vector>

namespace weir::oracle::internal {
namespace {

/// Of a group's query heads with a gate behind each, all heads, and then all gates.
Rows gates_last(const Rows& rows, std::int64_t head_rows) {
  Rows heads;
  Rows gates;
  for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
    (i / head_rows % 2 == 0 ? heads : gates).push_back(rows[static_cast<std::size_t>(i)]);
  }
  return stacked({heads, gates});
}

/// All rows of the fused projection: group after group, each its query heads (and their gates), its
/// key head, its value head. A "head" has `head_rows` rows.
Rows fused_qkv(const ModelConfig& config, const Rows& q, const Rows& k, const Rows& v,
               std::int64_t head_rows) {
  const std::int64_t groups = config.num_key_value_heads;
  const std::int64_t heads_per_group = config.num_attention_heads / groups;
  Rows fused;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t q_rows = heads_per_group * head_rows * (config.output_gate ? 2 : 1);
    const Rows queries = slice_of(q, group * q_rows, q_rows);
    const Rows members = stacked({config.output_gate ? gates_last(queries, head_rows) : queries,
                                  slice_of(k, group * head_rows, head_rows),
                                  slice_of(v, group * head_rows, head_rows)});
    fused.insert(fused.end(), members.begin(), members.end());
  }
  return fused;
}

void write_attention(const ModelConfig& config, const MegatronRank& rank, const std::string& hf,
                     const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t head = config.head_dim;
  const std::int64_t q_rows = config.num_attention_heads * head;
  const std::string attention = hf + attention_of(config);
  const std::string output = attention + (is_bailing(config) ? "dense" : "o_proj");
  const std::string here = local + "self_attention.";

  if (is_gpt_oss(config)) {
    writer.put_vector(here + "core_attention.softmax_offset",
                      part_of(writer.vector(attention + "sinks", config.num_attention_heads),
                              rank.tp_rank, rank.tp));
  }
  const std::int64_t columns = q_rows / rank.tp;
  writer.put_matrix(here + "linear_proj.weight", writer.matrix(output + ".weight", hidden, q_rows),
                    columns, rank.tp_rank * columns);
  if (config.output_bias) {
    writer.put_vector(here + "linear_proj.bias", writer.vector(output + ".bias", hidden));
  }
  writer.put_vector(here + "linear_qkv.layer_norm_weight",
                    writer.vector(hf + "input_layernorm.weight", hidden));
  const QkvRows weight = qkv_rows(config, hf, "weight", writer);
  writer.put_matrix(
      here + "linear_qkv.weight",
      part_of(fused_qkv(config, weight.q, weight.k, weight.v, head), rank.tp_rank, rank.tp),
      hidden);
  if (config.qkv_bias) {
    const QkvRows bias = qkv_rows(config, hf, "bias", writer);
    writer.put_vector(
        here + "linear_qkv.bias",
        part_of(fused_qkv(config, bias.q, bias.k, bias.v, head), rank.tp_rank, rank.tp));
  }
  if (config.qk_norm) {
    const std::string q_norm = is_bailing(config) ? "query_layernorm" : "q_norm";
    const std::string k_norm = is_bailing(config) ? "key_layernorm" : "k_norm";
    writer.put_vector(here + "q_layernorm.weight",
                      writer.vector(attention + q_norm + ".weight", head));
    writer.put_vector(here + "k_layernorm.weight",
                      writer.vector(attention + k_norm + ".weight", head));
  }
}

void write_latent(const ModelConfig& config, const MegatronRank& rank, const std::string& hf,
                  const std::string& local, RankWriter& writer) {
  const LatentConfig& ranks = config.latent;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = config.num_attention_heads;
  const std::int64_t qk = ranks.qk_nope_head_dim + ranks.qk_rope_head_dim;
  const std::int64_t kv_down = ranks.kv_lora_rank + ranks.qk_rope_head_dim;
  const std::int64_t kv_up = heads * (ranks.qk_nope_head_dim + ranks.v_head_dim);
  const std::string attention = hf + "self_attn.";
  const std::string here = local + "self_attention.";

  writer.put_vector(local + "input_layernorm.weight",
                    writer.vector(hf + "input_layernorm.weight", hidden));
  const std::int64_t columns = heads * ranks.v_head_dim / rank.tp;
  writer.put_matrix(here + "linear_proj.weight",
                    writer.matrix(attention + "o_proj.weight", hidden, heads * ranks.v_head_dim),
                    columns, rank.tp_rank * columns);
  if (ranks.q_lora_rank > 0) {
    const std::int64_t q_rank = ranks.q_lora_rank;
    writer.put_matrix(here + "linear_q_down_proj.weight",
                      writer.matrix(attention + "q_a_proj.weight", q_rank, hidden), hidden);
    writer.put_vector(here + "linear_q_up_proj.layer_norm_weight",
                      writer.vector(attention + "q_a_layernorm.weight", q_rank));
    const Rows up = writer.matrix(attention + "q_b_proj.weight", heads * qk, q_rank);
    writer.put_matrix(here + "linear_q_up_proj.weight", part_of(up, rank.tp_rank, rank.tp), q_rank);
  } else {
    const Rows q = writer.matrix(attention + "q_proj.weight", heads * qk, hidden);
    writer.put_matrix(here + "linear_q_proj.weight", part_of(q, rank.tp_rank, rank.tp), hidden);
  }
  writer.put_matrix(here + "linear_kv_down_proj.weight",
                    writer.matrix(attention + "kv_a_proj_with_mqa.weight", kv_down, hidden),
                    hidden);
  writer.put_vector(here + "linear_kv_up_proj.layer_norm_weight",
                    writer.vector(attention + "kv_a_layernorm.weight", ranks.kv_lora_rank));
  const Rows up = writer.matrix(attention + "kv_b_proj.weight", kv_up, ranks.kv_lora_rank);
  writer.put_matrix(here + "linear_kv_up_proj.weight", part_of(up, rank.tp_rank, rank.tp),
                    ranks.kv_lora_rank);
}

/// Whole heads for each rank: the queries of all of its key heads, then all keys, values, gates z,
/// betas and alphas, taken out of the checkpoint's groups one by one.
void write_linear_attention(const ModelConfig& config, const MegatronRank& rank,
                            const std::string& hf, const std::string& local, RankWriter& writer) {
  const DeltaNetConfig& net = config.delta_net;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t keys = net.key_heads * net.key_head_dim;
  const std::int64_t values = net.value_heads * net.value_head_dim;
  const std::int64_t each = net.value_heads / net.key_heads;
  const std::string here = local + "self_attention.";
  const std::string there = hf + "linear_attn.";
  const auto mine = [&](const Rows& rows) { return part_of(rows, rank.tp_rank, rank.tp); };
  writer.put_vector(here + "dt_bias", mine(writer.vector(there + "dt_bias", net.value_heads)));
  writer.put_vector(here + "A_log", mine(writer.vector(there + "A_log", net.value_heads)));
  writer.put_vector(here + "in_proj.layer_norm_weight",
                    writer.vector(hf + "input_layernorm.weight", hidden));
  const Rows qkvz = writer.matrix(there + "in_proj_qkvz.weight", 2 * (keys + values), hidden);
  const Rows ba = writer.matrix(there + "in_proj_ba.weight", 2 * net.value_heads, hidden);
  std::vector<Rows> parts(6);
  for (std::int64_t group = 0; group < net.key_heads; ++group) {
    std::int64_t at = group * (2 * net.key_head_dim + 2 * each * net.value_head_dim);
    const std::int64_t sizes[] = {net.key_head_dim, net.key_head_dim, each * net.value_head_dim,
                                  each * net.value_head_dim};
    for (std::size_t part = 0; part < 4; ++part) {
      parts[part] = stacked({parts[part], slice_of(qkvz, at, sizes[part])});
      at += sizes[part];
    }
    parts[4] = stacked({parts[4], slice_of(ba, group * 2 * each, each)});
    parts[5] = stacked({parts[5], slice_of(ba, group * 2 * each + each, each)});
  }
  for (Rows& part : parts) part = mine(part);
  writer.put_matrix(here + "in_proj.weight", stacked(parts), hidden);
  const Rows kernel =
      writer.kernel(there + "conv1d.weight", 2 * keys + values, net.conv_kernel_dim);
  writer.put_kernel(here + "conv1d.weight",
                    stacked({mine(slice_of(kernel, 0, keys)), mine(slice_of(kernel, keys, keys)),
                             mine(slice_of(kernel, 2 * keys, values))}),
                    net.conv_kernel_dim);
  writer.put_vector(here + "out_norm.weight",
                    writer.vector(there + "norm.weight", net.value_head_dim));
  writer.keep_less_one();
  writer.put_matrix(here + "out_proj.weight",
                    writer.matrix(there + "out_proj.weight", hidden, values), values / rank.tp,
                    rank.tp_rank * (values / rank.tp));
}

void write_mlp(const ModelConfig& config, const MegatronRank& rank, const std::string& hf,
               const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.intermediate_size;
  const auto both = [&](const Rows& gate, const Rows& up) {
    return stacked({part_of(gate, rank.tp_rank, rank.tp), part_of(up, rank.tp_rank, rank.tp)});
  };
  writer.put_vector(local + "mlp.linear_fc1.layer_norm_weight",
                    writer.vector(hf + "post_attention_layernorm.weight", hidden));
  const MlpRows mlp = mlp_rows(config, hf + "mlp.", ffn, writer);
  writer.put_matrix(local + "mlp.linear_fc1.weight", both(mlp.gate, mlp.up), hidden);
  if (config.mlp_bias) {
    writer.put_vector(local + "mlp.linear_fc1.bias",
                      both(writer.vector(hf + "mlp.gate_proj.bias", ffn),
                           writer.vector(hf + "mlp.up_proj.bias", ffn)));
  }
  const std::int64_t columns = ffn / rank.tp;
  writer.put_matrix(local + "mlp.linear_fc2.weight", mlp.down, columns, rank.tp_rank * columns);
  if (config.mlp_bias) {
    writer.put_vector(local + "mlp.linear_fc2.bias",
                      writer.vector(hf + "mlp.down_proj.bias", hidden));
  }
}

/// [gate; up] of a rank's part of an expert; or, row by row, a block of gate after a block of up.
Rows expert_fc1(const MegatronRank& rank, const MlpRows& expert) {
  const Rows gate = part_of(expert.gate, rank.etp_rank, rank.etp);
  const Rows up = part_of(expert.up, rank.etp_rank, rank.etp);
  // They differ where one of them is not what it should be, which has been noted.
  if (rank.glu_block == 0 || gate.size() != up.size()) return stacked({gate, up});
  Rows rows;
  for (std::int64_t row = 0; row < 2 * std::ssize(gate); ++row) {
    const std::int64_t block = row / rank.glu_block;
    const std::int64_t at = block / 2 * rank.glu_block + row % rank.glu_block;
    rows.push_back((block % 2 == 0 ? gate : up)[static_cast<std::size_t>(at)]);
  }
  return rows;
}

/// Experts are dealt out in order, the first E / EP to expert rank 0.
void write_routed_experts(const ModelConfig& config, const MegatronRank& rank,
                          const std::string& hf, const std::string& at, RankWriter& writer) {
  const std::int64_t columns = config.experts.intermediate_size / rank.etp;
  std::vector<MlpRows> mine;
  std::vector<MlpRows> biases;
  for (std::int64_t expert = 0; expert < config.experts.count; ++expert) {
    if (expert / (config.experts.count / rank.ep) != rank.ep_rank) continue;
    mine.push_back(expert_rows(config, hf, expert, writer));
    if (is_gpt_oss(config)) biases.push_back(expert_bias_rows(config, hf, expert, writer));
  }
  const auto put = [&](const std::string& name, std::size_t i, bool first, bool bias) {
    if (bias) {
      writer.put_vector(name, first ? expert_fc1(rank, biases[i]) : biases[i].down);
    } else if (first) {
      writer.put_matrix(name, expert_fc1(rank, mine[i]), config.hidden_size);
    } else {
      writer.put_matrix(name, mine[i].down, columns, rank.etp_rank * columns);
    }
  };
  const std::vector<bool> kinds =
      biases.empty() ? std::vector<bool>{false} : std::vector<bool>{false, true};
  if (rank.sequential) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::string expert = at + "local_experts." + std::to_string(i);
      for (const bool bias : kinds) {
        put(expert + (bias ? ".linear_fc1.bias" : ".linear_fc1.weight"), i, true, bias);
      }
      for (const bool bias : kinds) {
        put(expert + (bias ? ".linear_fc2.bias" : ".linear_fc2.weight"), i, false, bias);
      }
    }
    return;
  }
  for (const bool first : {true, false}) {
    for (const bool bias : kinds) {
      const std::string name =
          at + (first ? "linear_fc1." : "linear_fc2.") + (bias ? "bias" : "weight");
      for (std::size_t i = 0; i < mine.size(); ++i) put(name + std::to_string(i), i, first, bias);
    }
  }
}

void write_experts(const ModelConfig& config, const MegatronRank& rank, const std::string& hf,
                   const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const ExpertsConfig& experts = config.experts;
  const std::string mlp = local + "mlp.";
  writer.put_vector(local + "pre_mlp_layernorm.weight",
                    writer.vector(hf + "post_attention_layernorm.weight", hidden));
  const std::string router = hf + (is_gpt_oss(config) ? "mlp.router." : "mlp.gate.");
  writer.put_matrix(mlp + "router.weight", writer.matrix(router + "weight", experts.count, hidden),
                    hidden);
  if (is_gpt_oss(config)) {
    writer.put_vector(mlp + "router.bias", writer.vector(router + "bias", experts.count));
  }
  if (experts.score_bias) {
    writer.put_vector(mlp + "router.expert_bias",
                      writer.vector(hf + "mlp." + score_bias_of(config), experts.count));
    writer.keep_in_f32();
  }
  write_routed_experts(config, rank, hf, mlp + "experts.", writer);
  const std::int64_t width = experts.shared_intermediate_size;
  if (width == 0) return;
  const MlpRows shared = mlp_rows(config, hf + "mlp." + shared_of(config), width, writer);
  if (is_next(config)) {
    writer.put_matrix(mlp + "shared_experts.gate_weight",
                      writer.matrix(hf + "mlp.shared_expert_gate.weight", 1, hidden), hidden);
  }
  writer.put_matrix(mlp + "shared_experts.linear_fc1.weight",
                    stacked({part_of(shared.gate, rank.tp_rank, rank.tp),
                             part_of(shared.up, rank.tp_rank, rank.tp)}),
                    hidden);
  writer.put_matrix(mlp + "shared_experts.linear_fc2.weight", shared.down, width / rank.tp,
                    rank.tp_rank * (width / rank.tp));
}

}  // namespace

void write_megatron_layer(const ModelConfig& config, const MegatronRank& rank, std::int64_t index,
                          const std::string& local, RankWriter& writer) {
  const std::string hf = layer_of(index);
  if (is_linear(config, index)) {
    write_linear_attention(config, rank, hf, local, writer);
  } else if (is_latent(config)) {
    write_latent(config, rank, hf, local, writer);
  } else {
    write_attention(config, rank, hf, local, writer);
  }
  if (is_sparse(config, index)) {
    write_experts(config, rank, hf, local, writer);
  } else {
    write_mlp(config, rank, hf, local, writer);
  }
}

}  // namespace weir::oracle::internal
