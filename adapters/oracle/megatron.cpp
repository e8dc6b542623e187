// Megatron-Core's decoder with Transformer Engine names, written down as lists of rows: who is in
// which group of ranks, and who has which layers.

#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "adapters/oracle/internal/megatron_layer.hpp"

namespace weir::oracle::internal {
namespace {

struct Groups {
  MegatronRank rank;
  std::int64_t cp = 1;
  std::int64_t pp = 1;
  std::int64_t vpp = 1;
  std::int64_t pp_rank = 0;
  std::int64_t stage = 1;  ///< Ranks of a stage.
};

/// The least number of ranks that whole groups of both sizes fill.
std::int64_t common(std::int64_t dense, std::int64_t expert) {
  std::int64_t ranks = dense;
  while (ranks % expert != 0) ranks += dense;
  return ranks;
}

/// Counts the ranks of a stage out, in Megatron's order, until it is `place`'s turn: for attention
/// and MLPs the tensor rank goes fastest, for experts the expert tensor rank, then the expert rank.
void find_place(Groups& groups, std::int64_t place) {
  std::int64_t at = 0;
  while (at <= place) {
    for (std::int64_t t = 0; t < groups.rank.tp; ++t, ++at) {
      if (at == place) groups.rank.tp_rank = t;
    }
  }
  at = 0;
  while (at <= place) {
    for (std::int64_t e = 0; e < groups.rank.ep; ++e) {
      for (std::int64_t t = 0; t < groups.rank.etp; ++t, ++at) {
        if (at != place) continue;
        groups.rank.ep_rank = e;
        groups.rank.etp_rank = t;
      }
    }
  }
}

bool experts_fit(const ModelConfig& config, const Groups& groups, RankWriter& writer) {
  const ExpertsConfig& experts = config.experts;
  const MegatronRank& rank = groups.rank;
  if (experts.count == 0) {
    return writer.require(
        rank.ep == 1 && rank.etp == rank.tp && rank.glu_block == 0 && !rank.sequential,
        "ep, etp, glu_interleave and experts are for models with experts");
  }
  bool ok = writer.require(experts.count % rank.ep == 0, "ep must divide the experts");
  ok &= writer.require(!is_gpt_oss(config) || rank.etp == 1, "experts with biases need etp=1");
  ok &= writer.require(experts.intermediate_size % rank.etp == 0,
                       "etp must divide moe_intermediate_size");
  ok &= writer.require(experts.shared_intermediate_size % rank.tp == 0,
                       "tp must divide the width of the shared experts");
  if (!ok || rank.glu_block == 0) return ok;
  return writer.require(experts.intermediate_size / rank.etp % rank.glu_block == 0,
                        "glu_interleave must divide the rows of a rank's expert");
}

/// As many for each chunk as the first one needs to have; the last one has what is left.
std::vector<std::int64_t> even_layers(const ModelConfig& config, std::int64_t chunks) {
  std::int64_t each = 1;
  while (each * chunks < config.num_hidden_layers) ++each;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(chunks), each);
  layers.back() = config.num_hidden_layers - each * (chunks - 1);
  return layers;
}

bool fits(const Model& model, const LayoutSpec& spec, const Groups& groups, RankWriter& writer) {
  const ModelConfig& config = model.config;
  if (!require_decoder(model, writer)) return false;
  const std::int64_t tp = groups.rank.tp;
  const std::int64_t chunks = groups.pp * groups.vpp;
  const std::int64_t fused_rows =
      (config.num_attention_heads * (config.output_gate ? 2 : 1) + 2 * config.num_key_value_heads) *
      config.head_dim;
  bool ok = writer.require(!is_next(config) || config.delta_net.key_heads % tp == 0,
                           "tp must divide linear_num_key_heads");
  const int biased = (config.qkv_bias ? 1 : 0) + (config.output_bias ? 1 : 0) +
                     (config.mlp_bias || is_gpt_oss(config) ? 1 : 0);
  const bool everywhere = biased == 3 && (config.experts.count == 0 || is_gpt_oss(config));
  ok &= writer.require(biased == 0 || (biased == 1 && config.qkv_bias) || everywhere,
                       "biases must be on all linear layers, on q, k and v alone, or on none");
  ok &= writer.require(groups.pp_rank < groups.pp, "the rank is beyond the last stage");
  ok &= writer.require(groups.vpp == 1 || groups.pp > 1, "vpp above 1 needs pp above 1");
  ok &= writer.require(config.num_attention_heads % tp == 0, "tp must divide num_attention_heads");
  ok &= writer.require(is_latent(config) || fused_rows % tp == 0,
                       "tp must divide the rows of linear_qkv");
  ok &= writer.require(is_sparse(config, 0) || config.intermediate_size % tp == 0,
                       "tp must divide intermediate_size");
  ok &= experts_fit(config, groups, writer);
  if (spec.layers.empty()) {
    ok &= writer.require(groups.vpp == 1 || config.num_hidden_layers % chunks == 0,
                         "pp * vpp must divide num_hidden_layers; or state layers=");
    ok &= writer.require(even_layers(config, chunks).back() > 0,
                         "the last stage would have no layer; state layers=");
  } else {
    bool sane = std::ssize(spec.layers) == chunks;
    for (const std::int64_t layers : spec.layers) sane &= layers >= 0;
    ok &= writer.require(sane && std::accumulate(spec.layers.begin(), spec.layers.end(),
                                                 std::int64_t{0}) == config.num_hidden_layers,
                         "layers= needs pp * vpp counts that add up to num_hidden_layers");
  }
  return ok;
}

Groups groups_of(std::uint32_t rank, RankWriter& writer) {
  Groups groups;
  groups.rank.tp = writer.option("tp");
  groups.rank.ep = writer.option("ep");
  groups.rank.etp = writer.option("etp", groups.rank.tp);
  groups.rank.glu_block = writer.count("glu_interleave");
  groups.rank.sequential = writer.second("experts", "grouped", "sequential");
  groups.cp = writer.option("cp");
  groups.pp = writer.option("pp");
  groups.vpp = writer.option("vpp");
  groups.stage = common(groups.rank.tp * groups.cp, groups.rank.etp * groups.rank.ep);
  groups.pp_rank = rank / groups.stage;
  find_place(groups, rank % groups.stage);
  return groups;
}

/// A layer of MTP has what joins the hidden state with the next token's embedding, a decoder layer,
/// and a norm.
void write_mtp(const ModelConfig& config, const MegatronRank& rank, std::int64_t number,
               const std::string& local, RankWriter& writer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t index = config.num_hidden_layers + number;
  const std::string hf = layer_of(index);
  if (!writer.require(hidden % rank.tp == 0, "tp must divide hidden_size, for MTP")) return;
  writer.put_vector(local + "enorm.weight", writer.vector(hf + "enorm.weight", hidden));
  writer.put_vector(local + "hnorm.weight", writer.vector(hf + "hnorm.weight", hidden));
  const Rows join = writer.matrix(hf + "eh_proj.weight", hidden, 2 * hidden);
  writer.put_matrix(local + "eh_proj.weight", part_of(join, rank.tp_rank, rank.tp), 2 * hidden);
  write_megatron_layer(config, rank, index, local + "transformer_layer.", writer);
  writer.put_vector(local + "final_layernorm.weight",
                    writer.vector(hf + "shared_head.norm.weight", hidden));
}

}  // namespace

void write_megatron(const Model& model, const LayoutSpec& spec, std::uint32_t number,
                    RankWriter& writer) {
  const ModelConfig& config = model.config;
  writer.allow({"tp", "cp", "ep", "etp", "pp", "vpp", "dp", "vocab_multiple", "glu_interleave",
                "experts", "mtp"},
               {.layers = true});
  writer.option("dp");
  const std::int64_t multiple = writer.option("vocab_multiple", 128);
  const bool mtp = !writer.second("mtp", "keep", "drop") && config.mtp_layers > 0;
  const Groups groups = groups_of(number, writer);
  if (!fits(model, spec, groups, writer)) return;
  if (mtp && !writer.require(config.hidden_size % groups.rank.tp == 0,
                             "tp must divide hidden_size, for MTP")) {
    return;
  }

  const std::int64_t chunks = groups.pp * groups.vpp;
  const std::int64_t vocabulary = padded_up(config.vocab_size, multiple * groups.rank.tp);
  const auto put_vocabulary = [&](const std::string& local, const std::string& table) {
    const std::int64_t count = vocabulary / groups.rank.tp;
    writer.put_padded(local, {table, config.vocab_size, config.hidden_size},
                      groups.rank.tp_rank * count, count);
  };

  // Chunks take layers in turn: all stages of virtual stage 0, then all stages of 1, and so on.
  std::int64_t layer = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t layers =
        (spec.layers.empty() ? even_layers(config, chunks)
                             : spec.layers)[static_cast<std::size_t>(chunk)];
    const std::int64_t first_layer = layer;
    layer += layers;
    if (chunk % groups.pp != groups.pp_rank) continue;
    const std::string prefix =
        groups.vpp > 1 ? "model" + std::to_string(chunk / groups.pp) + "." : "";
    const bool last = chunk == chunks - 1;
    if (chunk == 0 || (last && mtp)) {
      put_vocabulary(prefix + "embedding.word_embeddings.weight", embedding_of(config));
    }
    for (std::int64_t i = 0; i < layers; ++i) {
      write_megatron_layer(config, groups.rank, first_layer + i,
                           prefix + "decoder.layers." + std::to_string(i) + ".", writer);
    }
    if (!last) continue;
    writer.put_vector(prefix + "decoder.final_layernorm.weight",
                      writer.vector("model.norm.weight", config.hidden_size));
    for (std::int64_t i = 0; mtp && i < config.mtp_layers; ++i) {
      write_mtp(config, groups.rank, i, prefix + "mtp.layers." + std::to_string(i) + ".", writer);
    }
    if (!config.tie_word_embeddings) {
      put_vocabulary(prefix + "output_layer.weight", "lm_head.weight");
    } else if (groups.pp > 1) {
      put_vocabulary(prefix + "output_layer.weight", embedding_of(config));
    }
  }
}

}  // namespace weir::oracle::internal
