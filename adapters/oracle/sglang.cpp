// SGLang's decoder, written down as lists of rows: who is in which group of ranks.

#include <iterator>
#include <string>
#include <vector>

#include "adapters/oracle/internal/serving_model.hpp"

namespace weir::oracle::internal {
namespace {

/// The last stages take one more, where stages do not divide the layers.
std::vector<std::int64_t> layers_of_stages(const ModelConfig& config, const LayoutSpec& spec,
                                           std::int64_t stages) {
  if (!spec.layers.empty()) return spec.layers;
  std::vector<std::int64_t> layers;
  const std::int64_t left = config.num_hidden_layers % stages;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    layers.push_back(config.num_hidden_layers / stages + (stage >= stages - left ? 1 : 0));
  }
  return layers;
}

struct Options {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  std::int64_t ep = 1;
  bool up_first = false;
  bool fused = false;
};

bool options_fit(const ModelConfig& config, const LayoutSpec& spec, const Options& options,
                 RankWriter& writer) {
  const std::int64_t redundant = writer.count("redundant");
  const ExpertsConfig& experts = config.experts;
  bool ok = writer.require(options.tp % options.dp == 0, "dp must divide tp");
  ok &= writer.require(options.tp % options.ep == 0, "ep must divide tp");
  if (!ok) return false;
  ok &= heads_fit(config, options.tp / options.dp, writer);
  ok &= rows_fit(config, options.tp, writer);
  ok &= layers_fit(config, spec, options.pp, writer);
  ok &= writer.require(!config.mlp_bias, "MLPs have no biases");
  ok &= writer.require(!is_next(config) || (!config.qkv_bias && !config.output_bias),
                       "qwen3_next has no biases");
  const bool output = config.family == "llama" || config.family == "qwen3" ||
                      config.family == "qwen3_moe" || is_gpt_oss(config);
  ok &= writer.require(!config.output_bias || output, "this family has no bias of o_proj");
  if (experts.count == 0) {
    return writer.require(options.ep == 1 && redundant == 0 && spec.physical.empty() &&
                              !options.up_first && !options.fused,
                          "ep, redundant, physical, gate_up and shared are for experts") &&
           ok;
  }
  ok &= gpt_oss_fits(config, spec, options.up_first, writer);
  ok &= writer.require(!is_gpt_oss(config) || options.ep == 1, "gpt_oss has no ep here");
  ok &= writer.require((experts.count + redundant) % options.ep == 0, "ep must divide the slots");
  ok &= writer.require(experts.intermediate_size % (options.tp / options.ep) == 0,
                       "tp / ep must divide moe_intermediate_size");
  return writer.require(
             !options.fused || (experts.shared_intermediate_size > 0 &&
                                experts.shared_intermediate_size % experts.intermediate_size == 0),
             "shared=fused needs shared experts as wide as routed ones") &&
         ok;
}

}  // namespace

void write_sglang(const Model& model, const LayoutSpec& spec, std::uint32_t rank,
                  RankWriter& writer) {
  const ModelConfig& config = model.config;
  writer.allow({"tp", "pp", "dp", "ep", "redundant", "gate_up", "shared", "mtp"},
               {.layers = true, .physical = true});
  const Options options{writer.option("tp"),
                        writer.option("pp"),
                        writer.option("dp"),
                        writer.option("ep"),
                        writer.second("gate_up", "w13", "w31"),
                        writer.second("shared", "apart", "fused")};
  const bool mtp = writer.second("mtp", "drop", "keep") && config.mtp_layers > 0;
  if (!writer.require(rank < options.tp * options.pp, "the rank is not below tp * pp")) return;
  if (!require_decoder(model, writer)) return;
  if (!options_fit(config, spec, options, writer)) return;

  // The ranks of a stage stand in a row; groups are neighbours.
  const std::int64_t place = rank % options.tp;
  const std::int64_t attention_group = options.tp / options.dp;
  const std::int64_t expert_group = options.tp / options.ep;
  ServingStage stage;
  stage.rank.attention = {attention_group, place % attention_group};
  stage.rank.mlp = {options.tp, place};
  stage.rank.expert = {expert_group, place % expert_group};
  stage.rank.up_first = options.up_first;
  stage.rank.shared_in_slots = options.fused;
  stage.rank.latent_down = "fused_qkv_a_proj_with_mqa";
  stage.rank.hybrid_attention = "";
  stage.rank.gpt_oss_bias = "weight_bias";
  if (config.experts.count > 0) {
    const auto slots_of_layers = all_slots(config, spec, mtp, writer);
    if (!slots_of_layers) return;
    for (const auto& [layer, slots] : *slots_of_layers) {
      const std::int64_t own = std::ssize(slots) / options.ep;
      for (std::int64_t i = 0; i < std::ssize(slots); ++i) {
        if (i / own != place / expert_group) continue;
        stage.rank.slots[layer].push_back(slots[static_cast<std::size_t>(i)]);
      }
    }
  }
  stage.embedding = stage.rank.attention;
  stage.head = stage.rank.mlp;
  stage.layers_of_stages = layers_of_stages(config, spec, options.pp);
  stage.stage = rank / options.tp;
  stage.mtp = mtp;
  stage.mtp_block = "decoder.";
  stage.last_stages_own_table = "lm_head.weight";
  write_serving_model(config, stage, writer);
}

}  // namespace weir::oracle::internal
