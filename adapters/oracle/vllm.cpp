// vLLM's decoder, written down as lists of rows: who is in which group of ranks.

#include <iterator>
#include <string>
#include <vector>

#include "adapters/oracle/internal/serving_model.hpp"

namespace weir::oracle::internal {
namespace {

struct Groups {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  std::int64_t ep = 1;
  std::int64_t tp_rank = 0;
  std::int64_t pp_rank = 0;
  std::int64_t dp_rank = 0;
};

/// Counts ranks out in vLLM's order: data parallel slowest, then stages, then tensor parallel.
Groups groups_of(std::uint32_t rank, RankWriter& writer) {
  Groups groups;
  groups.tp = writer.option("tp");
  groups.pp = writer.option("pp");
  groups.dp = writer.option("dp");
  groups.ep = writer.option("ep");
  if (!writer.require(rank < groups.tp * groups.pp * groups.dp, "the rank is not below tp*pp*dp")) {
    return groups;
  }
  std::int64_t at = 0;
  for (std::int64_t d = 0; d < groups.dp; ++d) {
    for (std::int64_t p = 0; p < groups.pp; ++p) {
      for (std::int64_t t = 0; t < groups.tp; ++t, ++at) {
        if (at != rank) continue;
        groups.dp_rank = d;
        groups.pp_rank = p;
        groups.tp_rank = t;
      }
    }
  }
  return groups;
}

/// What is left over is added from the stage before the last one to the front.
std::vector<std::int64_t> layers_of_stages(const ModelConfig& config, const LayoutSpec& spec,
                                           std::int64_t stages) {
  if (!spec.layers.empty()) return spec.layers;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages),
                                   config.num_hidden_layers / stages);
  std::int64_t next = stages - 2;
  for (std::int64_t left = config.num_hidden_layers % stages; left > 0; --left) {
    ++layers[static_cast<std::size_t>(next--)];
  }
  return layers;
}

/// The slots are dealt out to ranks: in runs, of which the first ones are longer by one where they
/// have to be; or one slot to each rank in turn, like cards.
std::vector<std::int64_t> dealt(const std::vector<std::int64_t>& slots, std::int64_t ranks,
                                std::int64_t rank, bool in_turn) {
  std::vector<std::vector<std::int64_t>> hands(static_cast<std::size_t>(ranks));
  if (in_turn) {
    for (std::size_t i = 0; i < slots.size(); ++i) hands[i % hands.size()].push_back(slots[i]);
  } else {
    std::size_t next = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::int64_t own = std::ssize(slots) / ranks;
      if (r < std::ssize(slots) % ranks) ++own;
      for (; own > 0; --own) hands[static_cast<std::size_t>(r)].push_back(slots[next++]);
    }
  }
  return hands[static_cast<std::size_t>(rank)];
}

bool options_fit(const ModelConfig& config, const LayoutSpec& spec, const Groups& groups,
                 bool round_robin, bool up_first, RankWriter& writer) {
  const bool extra = writer.count("redundant") > 0 || !spec.physical.empty();
  bool ok = writer.require(groups.ep == 1 || groups.ep == groups.tp * groups.dp,
                           "ep must be 1 or tp * dp");
  ok &= writer.require(!extra || groups.ep > 1, "redundant and physical need ep");
  ok &= writer.require(!round_robin || (groups.ep > 1 && !extra),
                       "placement=round_robin needs ep, and no redundant or physical");
  const bool llama = config.family == "llama";
  ok &= writer.require(!config.output_bias || llama || is_gpt_oss(config),
                       "a bias of o_proj is for llama and gpt_oss");
  ok &= writer.require(!is_next(config) || !config.qkv_bias, "qwen3_next has no biases");
  ok &= writer.require(!is_gpt_oss(config) || (config.qkv_bias && config.output_bias),
                       "gpt_oss must have all biases of attention");
  ok &= writer.require(!round_robin || config.experts.groups > 1,
                       "placement=round_robin needs groups of experts");
  if (config.experts.count == 0) {
    return writer.require(groups.ep == 1 && !extra && !round_robin && !up_first,
                          "ep, redundant, physical, placement and gate_up are for experts") &&
           ok;
  }
  ok &= gpt_oss_fits(config, spec, up_first, writer);
  ok &= writer.require(!is_gpt_oss(config) || config.experts.count % groups.ep == 0,
                       "ep must divide the experts");
  return writer.require(
             groups.ep > 1 || config.experts.intermediate_size % (groups.tp * groups.dp) == 0,
             "tp * dp must divide moe_intermediate_size") &&
         ok;
}

}  // namespace

void write_vllm(const Model& model, const LayoutSpec& spec, std::uint32_t rank,
                RankWriter& writer) {
  const ModelConfig& config = model.config;
  writer.allow({"tp", "pp", "dp", "ep", "redundant", "placement", "gate_up", "mtp"},
               {.layers = true, .physical = true});
  const Groups groups = groups_of(rank, writer);
  const bool round_robin = writer.second("placement", "linear", "round_robin");
  const bool up_first = writer.second("gate_up", "w13", "w31");
  const bool mtp = writer.second("mtp", "drop", "keep") && config.mtp_layers > 0;
  if (!require_decoder(model, writer)) return;
  bool ok = options_fit(config, spec, groups, round_robin, up_first, writer);
  ok &= heads_fit(config, groups.tp, writer);
  ok &= rows_fit(config, groups.tp, writer);
  ok &= layers_fit(config, spec, groups.pp, writer);
  if (!ok) return;

  const Share dense{groups.tp, groups.tp_rank};
  const Share all{groups.tp * groups.dp, groups.dp_rank * groups.tp + groups.tp_rank};
  ServingStage stage;
  stage.rank.attention = dense;
  stage.rank.mlp = dense;
  stage.rank.expert = groups.ep > 1 ? Share{} : all;
  stage.rank.up_first = up_first;
  stage.rank.experts = "routed_experts.";
  stage.rank.latent_down = "fused_qkv_a_proj";
  if (config.experts.count > 0) {
    const auto slots_of_layers = all_slots(config, spec, mtp, writer);
    if (!slots_of_layers) return;
    for (const auto& [layer, slots] : *slots_of_layers) {
      stage.rank.slots[layer] =
          groups.ep > 1 ? dealt(slots, all.count, all.index, round_robin) : slots;
    }
  }
  if (is_gpt_oss(config)) stage.table = "model.embedding.weight";
  stage.rank.gpt_oss_attention = "attn.";
  stage.embedding = dense;
  stage.head = dense;
  stage.layers_of_stages = layers_of_stages(config, spec, groups.pp);
  stage.stage = groups.pp_rank;
  stage.mtp = mtp;
  stage.mtp_block = "mtp_block.";
  stage.last_stages_own_table = embedding_of(config);
  write_serving_model(config, stage, writer);
}

}  // namespace weir::oracle::internal
