// One layer of a decoder as vLLM and SGLang keep it, written down as lists of rows.

#include "adapters/oracle/internal/serving_layer.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace weir::oracle::internal {
namespace {

Rows share_of(const Rows& rows, const Share& share) {
  return part_of(rows, share.index, share.count);
}

void write_attention(const ModelConfig& config, const ServingRank& rank, const std::string& hf,
                     const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t head = config.head_dim;
  const std::int64_t q_rows = config.num_attention_heads * head;
  const std::int64_t kv_heads = config.num_key_value_heads;
  const std::int64_t tp = rank.attention.count;
  const std::int64_t t = rank.attention.index;
  // Where there are more ranks than heads, each head lies on tp / kv_heads ranks in a row.
  const std::int64_t kv_count = tp >= kv_heads ? 1 : kv_heads / tp;
  const std::int64_t kv_first = tp >= kv_heads ? t / (tp / kv_heads) : t * kv_count;
  const std::string at = attention_of(config);
  const bool bailing = is_bailing(config);
  const std::string own = local + (is_gpt_oss(config) ? rank.gpt_oss_attention
                                   : is_next(config)  ? rank.hybrid_attention
                                                      : at);
  const std::string fused = own + (bailing ? "query_key_value." : "qkv_proj.");
  const std::string output = bailing ? "dense." : "o_proj.";
  const auto merged = [&](const std::string& kind) {
    const QkvRows all = qkv_rows(config, hf, kind, writer);
    return stacked({share_of(all.q, rank.attention),
                    slice_of(all.k, kv_first * head, kv_count * head),
                    slice_of(all.v, kv_first * head, kv_count * head)});
  };
  if (is_gpt_oss(config)) {
    writer.put_vector(
        own + "sinks",
        share_of(writer.vector(hf + at + "sinks", config.num_attention_heads), rank.attention));
  }
  writer.put_matrix(fused + "weight", merged("weight"), hidden);
  if (config.qkv_bias) writer.put_vector(fused + "bias", merged("bias"));
  writer.put_matrix(own + output + "weight",
                    writer.matrix(hf + at + output + "weight", hidden, q_rows), q_rows / tp,
                    t * (q_rows / tp));
  if (config.output_bias) {
    writer.put_vector(own + output + "bias", writer.vector(hf + at + output + "bias", hidden));
  }
  if (!config.qk_norm) return;
  for (const std::string norm : {bailing ? "query_layernorm.weight" : "q_norm.weight",
                                 bailing ? "key_layernorm.weight" : "k_norm.weight"}) {
    writer.put_vector(own + norm, writer.vector(hf + at + norm, head));
  }
}

void write_latent(const ModelConfig& config, const ServingRank& rank, const std::string& hf,
                  const std::string& local, RankWriter& writer) {
  const LatentConfig& ranks = config.latent;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = config.num_attention_heads;
  const std::int64_t qk = ranks.qk_nope_head_dim + ranks.qk_rope_head_dim;
  const std::string here = local + "self_attn.";
  const std::string there = hf + "self_attn.";
  const Rows kv_down = writer.matrix(there + "kv_a_proj_with_mqa.weight",
                                     ranks.kv_lora_rank + ranks.qk_rope_head_dim, hidden);
  if (ranks.q_lora_rank > 0) {
    const std::int64_t q_rank = ranks.q_lora_rank;
    const Rows q_down = writer.matrix(there + "q_a_proj.weight", q_rank, hidden);
    writer.put_matrix(here + rank.latent_down + ".weight", stacked({q_down, kv_down}), hidden);
    writer.put_vector(here + "q_a_layernorm.weight",
                      writer.vector(there + "q_a_layernorm.weight", q_rank));
    const Rows up = writer.matrix(there + "q_b_proj.weight", heads * qk, q_rank);
    writer.put_matrix(here + "q_b_proj.weight", share_of(up, rank.attention), q_rank);
  } else {
    writer.put_matrix(here + "kv_a_proj_with_mqa.weight", kv_down, hidden);
    const Rows q = writer.matrix(there + "q_proj.weight", heads * qk, hidden);
    writer.put_matrix(here + "q_proj.weight", share_of(q, rank.attention), hidden);
  }
  writer.put_vector(here + "kv_a_layernorm.weight",
                    writer.vector(there + "kv_a_layernorm.weight", ranks.kv_lora_rank));
  const Rows kv_up =
      writer.matrix(there + "kv_b_proj.weight", heads * (ranks.qk_nope_head_dim + ranks.v_head_dim),
                    ranks.kv_lora_rank);
  writer.put_matrix(here + "kv_b_proj.weight", share_of(kv_up, rank.attention), ranks.kv_lora_rank);
  const std::int64_t all = heads * ranks.v_head_dim;
  writer.put_matrix(here + "o_proj.weight", writer.matrix(there + "o_proj.weight", hidden, all),
                    all / rank.attention.count,
                    rank.attention.index * (all / rank.attention.count));
}

/// The groups of key heads, each with its value heads, are cut apart whole; so are the heads that
/// the convolution holds apart.
void write_linear_attention(const ModelConfig& config, const ServingRank& rank,
                            const std::string& hf, const std::string& local, RankWriter& writer) {
  const DeltaNetConfig& net = config.delta_net;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t keys = net.key_heads * net.key_head_dim;
  const std::int64_t values = net.value_heads * net.value_head_dim;
  const std::int64_t width = net.conv_kernel_dim;
  const std::string here = local + "linear_attn.";
  const std::string there = hf + "linear_attn.";
  for (const char* const name : {"dt_bias", "A_log"}) {
    writer.put_vector(here + name,
                      share_of(writer.vector(there + name, net.value_heads), rank.attention));
  }
  writer.keep_in_f32();
  const Rows kernel = writer.kernel(there + "conv1d.weight", 2 * keys + values, width);
  writer.put_kernel(here + "conv1d.weight",
                    stacked({share_of(slice_of(kernel, 0, keys), rank.attention),
                             share_of(slice_of(kernel, keys, keys), rank.attention),
                             share_of(slice_of(kernel, 2 * keys, values), rank.attention)}),
                    width);
  // A group's rows in the order of the checkpoint: q, k, then v and z of all its value heads.
  const std::int64_t own = net.key_heads / rank.attention.count;
  const auto groups = [&](const std::string& name, std::int64_t group_rows) {
    const Rows all = writer.matrix(there + name, net.key_heads * group_rows, hidden);
    Rows mine;
    for (std::int64_t group = 0; group < net.key_heads; ++group) {
      if (group / own != rank.attention.index) continue;
      const Rows rows = slice_of(all, group * group_rows, group_rows);
      mine.insert(mine.end(), rows.begin(), rows.end());
    }
    writer.put_matrix(here + name, mine, hidden);
  };
  const std::int64_t group_values = net.value_heads / net.key_heads;
  groups("in_proj_qkvz.weight", 2 * net.key_head_dim + 2 * group_values * net.value_head_dim);
  groups("in_proj_ba.weight", 2 * group_values);
  writer.put_vector(here + "norm.weight", writer.vector(there + "norm.weight", net.value_head_dim));
  const std::int64_t columns = values / rank.attention.count;
  writer.put_matrix(here + "out_proj.weight",
                    writer.matrix(there + "out_proj.weight", hidden, values), columns,
                    rank.attention.index * columns);
}

void write_mlp(const ModelConfig& config, const ServingRank& rank, const std::string& hf,
               const std::string& local, std::int64_t width, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const auto both = [&](const Rows& gate, const Rows& up) {
    return stacked({share_of(gate, rank.mlp), share_of(up, rank.mlp)});
  };
  const MlpRows mlp = mlp_rows(config, hf, width, writer);
  writer.put_matrix(local + "gate_up_proj.weight", both(mlp.gate, mlp.up), hidden);
  if (config.mlp_bias) {
    writer.put_vector(local + "gate_up_proj.bias", both(writer.vector(hf + "gate_proj.bias", width),
                                                        writer.vector(hf + "up_proj.bias", width)));
  }
  const std::int64_t columns = width / rank.mlp.count;
  writer.put_matrix(local + "down_proj.weight", mlp.down, columns, rank.mlp.index * columns);
  if (config.mlp_bias) {
    writer.put_vector(local + "down_proj.bias", writer.vector(hf + "down_proj.bias", hidden));
  }
}

/// Each slot's [gate; up] and down, slot after slot, from whole lists of rows.
void write_slots(const ModelConfig& config, const ServingRank& rank, std::int64_t index,
                 const std::string& local, RankWriter& writer) {
  const std::string hf = layer_of(index);
  const ExpertsConfig& experts = config.experts;
  const std::int64_t width = experts.intermediate_size;
  std::vector<MlpRows> mlps;
  for (const std::int64_t expert : rank.slots.at(index)) {
    mlps.push_back(expert_rows(config, hf, expert, writer));
  }
  if (rank.shared_in_slots) {
    const std::int64_t all = experts.shared_intermediate_size;
    const MlpRows shared = mlp_rows(config, hf + "mlp." + shared_of(config), all, writer);
    for (std::int64_t first = 0; first < all; first += width) {
      MlpRows one{slice_of(shared.gate, first, width), slice_of(shared.up, first, width),
                  shared.down};
      for (Row& row : one.down) row.column = first;
      mlps.push_back(one);
    }
  }
  if (mlps.empty()) return;
  std::vector<Rows> w13;
  std::vector<Rows> w2;
  for (const MlpRows& mlp : mlps) {
    w13.push_back(share_of(rank.up_first ? mlp.up : mlp.gate, rank.expert));
    w13.push_back(share_of(rank.up_first ? mlp.gate : mlp.up, rank.expert));
    w2.push_back(mlp.down);
  }
  const std::int64_t columns = width / rank.expert.count;
  const std::string at = local + "mlp.experts." + rank.experts;
  writer.put_parts(at + "w13_weight", stacked(w13), std::ssize(mlps), config.hidden_size);
  writer.put_parts(at + "w2_weight", stacked(w2), std::ssize(mlps), columns,
                   rank.expert.index * columns);
}

/// Row after row of gate, each followed by its row of up.
Rows alternating(const Rows& gate, const Rows& up) {
  Rows rows;
  for (std::size_t i = 0; i < gate.size() && i < up.size(); ++i) {
    rows.push_back(gate[i]);
    rows.push_back(up[i]);
  }
  return rows;
}

/// Ranks that share an expert add up their outputs, so that only the first may add its bias.
void write_gpt_oss_experts(const ModelConfig& config, const ServingRank& rank, std::int64_t index,
                           const std::string& local, RankWriter& writer) {
  const std::string hf = layer_of(index);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t slots = std::ssize(rank.slots.at(index));
  writer.put_matrix(local + "mlp.router.weight",
                    writer.matrix(hf + "mlp.router.weight", config.experts.count, hidden), hidden);
  writer.put_vector(local + "mlp.router.bias",
                    writer.vector(hf + "mlp.router.bias", config.experts.count));
  std::vector<Rows> w13;
  std::vector<Rows> w13_bias;
  std::vector<Rows> w2;
  std::vector<Rows> w2_bias;
  for (const std::int64_t expert : rank.slots.at(index)) {
    const MlpRows mlp = expert_rows(config, hf, expert, writer);
    const MlpRows bias = expert_bias_rows(config, hf, expert, writer);
    w13.push_back(alternating(share_of(mlp.gate, rank.expert), share_of(mlp.up, rank.expert)));
    w13_bias.push_back(
        alternating(share_of(bias.gate, rank.expert), share_of(bias.up, rank.expert)));
    w2.push_back(mlp.down);
    w2_bias.push_back(rank.expert.index == 0 ? bias.down : Rows(mlp.down.size()));
  }
  const std::int64_t columns = config.experts.intermediate_size / rank.expert.count;
  const std::string at = local + "mlp.experts." + rank.experts;
  const std::string like = hf + "mlp.experts.";
  writer.put_parts(at + "w13_weight", stacked(w13), slots, hidden);
  writer.put_vectors(at + "w13_" + rank.gpt_oss_bias, stacked(w13_bias), slots,
                     like + "gate_up_proj_bias");
  writer.put_parts(at + "w2_weight", stacked(w2), slots, columns, rank.expert.index * columns);
  writer.put_vectors(at + "w2_" + rank.gpt_oss_bias, stacked(w2_bias), slots,
                     like + "down_proj_bias");
}

void write_experts(const ModelConfig& config, const ServingRank& rank, std::int64_t index,
                   const std::string& local, RankWriter& writer) {
  const std::string hf = layer_of(index);
  if (is_gpt_oss(config)) return write_gpt_oss_experts(config, rank, index, local, writer);
  const ExpertsConfig& experts = config.experts;
  writer.put_matrix(local + "mlp.gate.weight",
                    writer.matrix(hf + "mlp.gate.weight", experts.count, config.hidden_size),
                    config.hidden_size);
  if (experts.router_f32) writer.keep_in_f32();
  if (experts.score_bias) {
    const std::string bias = "mlp." + score_bias_of(config);
    writer.put_vector(local + bias, writer.vector(hf + bias, experts.count));
    writer.keep_in_f32();
  }
  if (experts.shared_intermediate_size > 0 && !rank.shared_in_slots) {
    const std::string shared = "mlp." + shared_of(config);
    write_mlp(config, rank, hf + shared, local + shared, experts.shared_intermediate_size, writer);
  }
  if (experts.shared_intermediate_size > 0 && is_next(config)) {
    const std::string gate = "mlp.shared_expert_gate.weight";
    writer.put_matrix(local + gate, writer.matrix(hf + gate, 1, config.hidden_size),
                      config.hidden_size);
  }
  write_slots(config, rank, index, local, writer);
}

}  // namespace

void write_serving_layer(const ModelConfig& config, const ServingRank& rank, std::int64_t index,
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
    write_experts(config, rank, index, local, writer);
  } else {
    write_mlp(config, rank, hf + "mlp.", local + "mlp.", config.intermediate_size, writer);
  }
  for (const char* const norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
    writer.put_vector(local + norm, writer.vector(hf + norm, config.hidden_size));
  }
}

bool heads_fit(const ModelConfig& config, std::int64_t ranks, RankWriter& writer) {
  const std::int64_t kv = config.num_key_value_heads;
  const bool ok =
      writer.require(config.num_attention_heads % ranks == 0, "tp must divide num_attention_heads");
  if (!writer.require(!is_next(config) || config.delta_net.key_heads % ranks == 0,
                      "tp must divide linear_num_key_heads")) {
    return false;
  }
  return writer.require(is_latent(config) || (ranks >= kv ? ranks % kv == 0 : kv % ranks == 0),
                        "tp must divide num_key_value_heads, or be a multiple of it") &&
         ok;
}

bool rows_fit(const ModelConfig& config, std::int64_t ranks, RankWriter& writer) {
  bool ok = writer.require(is_sparse(config, 0) || config.intermediate_size % ranks == 0,
                           "tp must divide intermediate_size");
  ok &= writer.require(
      config.experts.count == 0 || config.experts.shared_intermediate_size % ranks == 0,
      "tp must divide the width of the shared experts");
  ok &= writer.require(padded_up(config.vocab_size, 64) % ranks == 0,
                       "tp must divide vocab_size rounded up to a multiple of 64");
  return ok;
}

bool gpt_oss_fits(const ModelConfig& config, const LayoutSpec& spec, bool up_first,
                  RankWriter& writer) {
  return writer.require(
      !is_gpt_oss(config) || (writer.count("redundant") == 0 && spec.physical.empty() && !up_first),
      "gpt_oss has no redundant experts, and alternates gate and up");
}

std::optional<std::map<std::int64_t, std::vector<std::int64_t>>> all_slots(
    const ModelConfig& config, const LayoutSpec& spec, bool mtp, RankWriter& writer) {
  const std::int64_t experts = config.experts.count;
  const std::int64_t slots = experts + writer.count("redundant");
  std::map<std::int64_t, std::vector<std::int64_t>> all;
  std::vector<std::int64_t> plain;
  for (std::int64_t slot = 0; slot < slots; ++slot) plain.push_back(slot % experts);
  const std::int64_t layers = config.num_hidden_layers + (mtp ? config.mtp_layers : 0);
  for (std::int64_t i = 0; i < layers; ++i) {
    if (is_sparse(config, i)) all[i] = plain;
  }
  const std::int64_t given = std::ssize(spec.physical);
  if (given == 0) return all;
  const bool counts_sparse = given == std::ssize(all);
  if (!writer.require(given == 1 || counts_sparse || given == layers,
                      "physical= needs one map, or one for each layer")) {
    return std::nullopt;
  }
  std::size_t next = 0;
  for (auto& [layer, map] : all) {
    if (given == 1) {
      map = spec.physical.front();
    } else {
      map = spec.physical[counts_sparse ? next : static_cast<std::size_t>(layer)];
    }
    ++next;
    bool good = std::ssize(map) == slots;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      good &= std::find(map.begin(), map.end(), expert) != map.end();
    }
    for (const std::int64_t expert : map) good &= expert >= 0 && expert < experts;
    if (!writer.require(good, "physical= must name each expert, in experts + redundant slots")) {
      return std::nullopt;
    }
  }
  return all;
}

}  // namespace weir::oracle::internal
