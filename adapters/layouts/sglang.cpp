// SGLang: tensor, pipeline and expert parallelism, and attention in data-parallel groups of ranks.
//
// Which rank is which: rank = pp_rank x tp + tp_rank. With dp (`--enable-dp-attention`) the tp
// ranks of a stage are dp groups of tp / dp neighbours, each of which has all of attention and of
// the embedding. Experts are dealt out to ep groups of tp / ep neighbours, and each expert's rows
// are cut over the ranks of its group. Plain MLPs, shared experts and the head are cut over all tp.

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "adapters/layouts/internal/serving.hpp"

namespace weir {
namespace {

/// Whether shared experts are an MLP of their own, or further slots behind the routed ones.
constexpr std::array<std::string_view, 2> shared_words = {"apart", "fused"};
constexpr std::array choices = {EngineChoice{.name = "gate_up", .words = serving::gate_up_words},
                                EngineChoice{.name = "shared", .words = shared_words},
                                EngineChoice{.name = "mtp", .words = serving::mtp_words}};

constexpr serving::Names names = {.experts = "mlp.experts.",
                                  .latent_down = "fused_qkv_a_proj_with_mqa",
                                  .mtp_block = "decoder.",
                                  .absorbed_key = "w_kc",
                                  .absorbed_value = "w_vc",
                                  .hybrid_attention = "",
                                  .joint_bias = "weight_bias"};

constexpr std::array<std::string_view, 4> output_biased = {"llama", "qwen3", "qwen3_moe",
                                                           "gpt_oss"};

Result<LayoutSize> size(const LayoutSpec& spec) {
  const std::int64_t tp = option(spec, "tp");
  for (const char* name : {"dp", "ep"}) {
    if (auto fits = check_divides(name, option(spec, name), tp, "ranks of tp"); !fits) {
      return failure(fits);
    }
  }
  const std::int64_t pp = option(spec, "pp");
  if (auto fits = check_layer_numbers(spec, pp, "pp"); !fits) return failure(fits);
  return layout_size(spec, tp * pp, 1);
}

Result<void> check_tensor_parallel(const ModelConfig& config, const LayoutSpec& spec) {
  const std::int64_t dp = option(spec, "dp");
  return check_tp(
      std::min(config.num_attention_heads * dp, option_max), option(spec, "tp"),
      [&](std::int64_t tp) -> std::optional<std::string> {
        if (tp % dp != 0) {
          return "dp=" + std::to_string(dp) + " does not divide tp=" + std::to_string(tp);
        }
        if (auto text = serving::head_objection(config, tp / dp, dp > 1 ? "tp / dp" : "tp"))
          return text;
        if (auto text = indivisible_mlp(config, tp)) return text;
        return indivisible(serving::padded_vocabulary(config), tp, "rows of the padded vocabulary");
      });
}

Result<void> check_experts(const ModelConfig& config, const LayoutSpec& spec) {
  const ExpertsConfig& experts = config.experts;
  const std::int64_t ep = option(spec, "ep");
  const bool fused = chosen(spec, "shared", "fused");
  if (experts.count == 0) {
    return check_no_experts({{"ep", ep > 1},
                             {"redundant", option(spec, "redundant") > 0},
                             {"physical", !spec.physical.empty()},
                             {"shared", fused},
                             {"gate_up", !chosen(spec, "gate_up", "w13")}});
  }
  if (auto fits = serving::check_joint_experts(config, spec); !fits) return fits;
  if (has_joint_experts(config) && ep > 1) {
    return failure(ErrorCode::invalid, "ep=" + std::to_string(ep) +
                                           ": SGLang cuts each expert of " + config.family +
                                           " over all tp ranks, leave ep out");
  }
  if (fused && (experts.shared_intermediate_size == 0 ||
                experts.shared_intermediate_size % experts.intermediate_size != 0)) {
    return failure(ErrorCode::invalid,
                   "shared=fused needs shared experts that are as wide as routed ones: leave it "
                   "out");
  }
  const std::int64_t slots = experts.count + option(spec, "redundant");
  if (auto fits = check_divides("ep", ep, slots, "slots of experts"); !fits) return fits;
  return check_divides("tp / ep", option(spec, "tp") / ep, experts.intermediate_size,
                       "rows of an expert");
}

/// Those that are left over go to the last stages.
std::vector<std::int64_t> spare_stages(std::int64_t stages) {
  std::vector<std::int64_t> spare;
  for (std::int64_t stage = stages - 1; stage >= 0; --stage) spare.push_back(stage);
  return spare;
}

Result<RankLayout> lay_out_rank(const TensorIndex& index, const LayoutSpec& spec,
                                std::uint32_t number) {
  const ModelConfig& config = index.model().config;
  const std::int64_t tp = option(spec, "tp");
  const std::int64_t pp = option(spec, "pp");
  if (auto fits = check_tensor_parallel(config, spec); !fits) return failure(fits);
  if (auto fits = check_experts(config, spec); !fits) return failure(fits);
  const serving::Biases biases{.engine = "SGLang", .output = output_biased};
  if (auto fits = serving::check_biases(config, biases); !fits) return failure(fits);

  const Part dense{.count = tp, .index = number % tp};
  const std::int64_t stage = number / tp;
  const std::int64_t group = tp / option(spec, "dp");
  const std::int64_t expert_group = tp / option(spec, "ep");
  const Part attention{.count = group, .index = dense.index % group};
  const auto layers = serving::stage_layers(config, spec, stage, spare_stages(pp));
  if (!layers) return failure(layers);
  const auto slots = serving::slots_of(
      config, spec, {.part = {.count = option(spec, "ep"), .index = dense.index / expert_group}});
  if (!slots) return failure(slots);
  return serving::lay_out(
      index, spec,
      {.config = config,
       .names = names,
       .attention = attention,
       .embedding = attention,
       .head = dense,
       .mlp = dense,
       .expert_rows = {.count = expert_group, .index = dense.index % expert_group},
       .slots = *slots,
       .up_first = chosen(spec, "gate_up", "w31"),
       .fused_shared = chosen(spec, "shared", "fused"),
       .layers = *layers,
       .first_stage = stage == 0,
       .last_stage = stage == pp - 1,
       .mtp = config.mtp_layers > 0 && chosen(spec, "mtp", "keep"),
       .tied_copy_is_head = true});
}

}  // namespace

constexpr Engine sglang_engine{.name = "sglang",
                               .options = serving::options,
                               .choices = choices,
                               .takes_layers = true,
                               .takes_physical = true,
                               .families = serving::families,
                               .size = size,
                               .lay_out = lay_out_rank};

}  // namespace weir
