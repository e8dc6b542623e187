// vLLM: tensor, pipeline, data and expert parallelism.
//
// Which rank is which. A replica is all ranks that share one set of experts: rank =
// (dp_rank x pp + pp_rank) x tp + tp_rank. Each data-parallel rank has attention, plain MLPs and
// shared experts of its own, cut over tp. Experts are cut over all tp x dp ranks of a stage: each
// expert's rows or, with ep (`--enable-expert-parallel`), whole experts.

#include <array>
#include <string>
#include <vector>

#include "adapters/layouts/internal/serving.hpp"

namespace weir {
namespace {

constexpr std::array<std::string_view, 2> placement_words = {"linear", "round_robin"};
constexpr std::array choices = {EngineChoice{.name = "placement", .words = placement_words},
                                EngineChoice{.name = "gate_up", .words = serving::gate_up_words},
                                EngineChoice{.name = "mtp", .words = serving::mtp_words}};

constexpr serving::Names names = {.experts = "mlp.experts.routed_experts.",
                                  .latent_down = "fused_qkv_a_proj",
                                  .mtp_block = "mtp_block.",
                                  .absorbed_key = "mla_attn.mla_attn.W_UK_T",
                                  .absorbed_value = "mla_attn.mla_attn.W_UV",
                                  .joint_embedding = "model.embedding.weight",
                                  .joint_attention = "attn."};

constexpr std::array<std::string_view, 2> output_biased = {"llama", "gpt_oss"};

Result<void> check_biases(const ModelConfig& config) {
  if (config.family == "gpt_oss" && !(config.qkv_bias && config.output_bias)) {
    return failure(ErrorCode::invalid,
                   "vLLM has biases in all of gpt_oss's attention, and this model lacks some: give "
                   "it attention_bias");
  }
  return serving::check_biases(config, {.engine = "vLLM", .output = output_biased, .mlp = true});
}

std::optional<std::string> objection(const ModelConfig& config, std::int64_t tp) {
  if (auto text = serving::head_objection(config, tp)) return text;
  if (auto text = indivisible_mlp(config, tp)) return text;
  return indivisible(serving::padded_vocabulary(config), tp, "rows of the padded vocabulary");
}

Result<LayoutSize> size(const LayoutSpec& spec) {
  const std::int64_t sharers = option(spec, "tp") * option(spec, "dp");
  const std::int64_t ep = option(spec, "ep");
  if (ep != 1 && ep != sharers) {
    return failure(ErrorCode::invalid,
                   "ep=" + std::to_string(ep) + ": vLLM spreads experts over all tp x dp ranks, " +
                       "use ep=" + std::to_string(sharers) + " or leave ep out");
  }
  const bool redundant = option(spec, "redundant") > 0 || !spec.physical.empty();
  if (redundant && ep == 1) {
    return failure(ErrorCode::invalid,
                   "redundant= and physical= place whole experts: give ep= as well");
  }
  if (chosen(spec, "placement", "round_robin") && (redundant || ep == 1)) {
    return failure(ErrorCode::invalid,
                   "placement=round_robin needs ep=, and neither redundant= nor physical=");
  }
  const std::int64_t pp = option(spec, "pp");
  if (auto fits = check_layer_numbers(spec, pp, "pp"); !fits) return failure(fits);
  return layout_size(spec, sharers * pp, 1);
}

Result<void> check_experts(const ModelConfig& config, const LayoutSpec& spec) {
  const std::int64_t ep = option(spec, "ep");
  if (config.experts.count == 0) {
    return check_no_experts({{"ep", ep > 1},
                             {"redundant", option(spec, "redundant") > 0},
                             {"physical", !spec.physical.empty()},
                             {"placement", !chosen(spec, "placement", "linear")},
                             {"gate_up", !chosen(spec, "gate_up", "w13")}});
  }
  if (auto fits = serving::check_joint_experts(config, spec); !fits) return fits;
  if (chosen(spec, "placement", "round_robin") && config.experts.groups == 1) {
    return failure(ErrorCode::invalid,
                   "placement=round_robin: vLLM deals experts out in turn only where they are in "
                   "several groups (n_group), and places this model's in runs: leave it out");
  }
  if (ep > 1) {
    // Only experts one by one may be shared out unevenly.
    return has_joint_experts(config) ? check_divides("ep", ep, config.experts.count, "experts")
                                     : Result<void>();
  }
  return check_divides("tp x dp", option(spec, "tp") * option(spec, "dp"),
                       config.experts.intermediate_size, "rows of an expert");
}

/// Those that are left over go to the stages before the last one, from the back.
std::vector<std::int64_t> spare_stages(std::int64_t stages) {
  std::vector<std::int64_t> spare;
  for (std::int64_t stage = stages - 2; stage >= 0; --stage) spare.push_back(stage);
  return spare;
}

Result<RankLayout> lay_out_rank(const TensorIndex& index, const LayoutSpec& spec,
                                std::uint32_t number) {
  const ModelConfig& config = index.model().config;
  const std::int64_t tp = option(spec, "tp");
  const std::int64_t pp = option(spec, "pp");
  const std::int64_t sharers = tp * option(spec, "dp");
  const auto tp_objection = [&](std::int64_t other) { return objection(config, other); };
  if (auto fits = check_tp(config.num_attention_heads, tp, tp_objection); !fits)
    return failure(fits);
  if (auto fits = check_experts(config, spec); !fits) return failure(fits);
  if (auto fits = check_biases(config); !fits) return failure(fits);

  const Part dense{.count = tp, .index = number % tp};
  const std::int64_t stage = number / tp % pp;
  const Part sharer{.count = sharers, .index = number / (tp * pp) * tp + dense.index};
  const auto layers = serving::stage_layers(config, spec, stage, spare_stages(pp));
  if (!layers) return failure(layers);
  const bool spread = option(spec, "ep") > 1;
  const auto slots = serving::slots_of(
      config, spec,
      {.part = spread ? sharer : Part{}, .round_robin = chosen(spec, "placement", "round_robin")});
  if (!slots) return failure(slots);
  return serving::lay_out(index, spec,
                          {.config = config,
                           .names = names,
                           .attention = dense,
                           .embedding = dense,
                           .head = dense,
                           .mlp = dense,
                           .expert_rows = spread ? Part{} : sharer,
                           .slots = *slots,
                           .up_first = chosen(spec, "gate_up", "w31"),
                           .layers = *layers,
                           .first_stage = stage == 0,
                           .last_stage = stage == pp - 1,
                           .mtp = config.mtp_layers > 0 && chosen(spec, "mtp", "keep")});
}

}  // namespace

constexpr Engine vllm_engine{.name = "vllm",
                             .options = serving::options,
                             .choices = choices,
                             .takes_layers = true,
                             .takes_physical = true,
                             .families = serving::families,
                             .size = size,
                             .lay_out = lay_out_rank};

}  // namespace weir
