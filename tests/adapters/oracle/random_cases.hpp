#pragma once
// Random layouts of random models for property tests: mostly ones that fit together and sometimes
// ones that do not. The same seed gives the same cases with every standard library.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "tests/adapters/oracle/decoder_model.hpp"
#include "tests/adapters/oracle/random_models.hpp"

namespace weir::oracle {

inline std::int64_t random_tp(Dice& dice) {
  const std::int64_t choices[] = {1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 8, 12};
  return choices[dice.between(0, 11)];
}

inline void choose_pipeline(Dice& dice, LayoutSpec& spec, ModelConfig& config) {
  const std::int64_t pp = dice.between(1, 4);
  const std::int64_t vpp = pp > 1 || dice.one_in(20) ? dice.between(1, 3) : 1;
  if (pp > 1) spec.options["pp"] = pp;
  if (vpp > 1) spec.options["vpp"] = vpp;
  if (dice.one_in(2)) {
    if (!dice.one_in(10)) config.num_hidden_layers = pp * vpp;
    config.experts.first_layer = std::min(config.experts.first_layer, config.num_hidden_layers);
    return;
  }
  // Uneven chunks, some of them empty, and rarely one layer too many.
  spec.layers.assign(static_cast<std::size_t>(pp * vpp), 0);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    ++spec.layers[static_cast<std::size_t>(dice.between(0, pp * vpp - 1))];
  }
  if (dice.one_in(15)) ++spec.layers[0];
}

/// A model and a layout of it.
struct RandomCase {
  Model model;
  LayoutSpec spec;
};

/// A divisor of `total`, or rarely any small number.
inline std::int64_t random_divisor(Dice& dice, std::int64_t total) {
  if (dice.one_in(12)) return dice.between(1, 4);
  return std::gcd(total, dice.between(1, 12));
}

inline void choose_mtp(Dice& dice, LayoutSpec& spec) {
  if (dice.one_in(2)) spec.choices["mtp"] = dice.one_in(2) ? "keep" : "drop";
}

inline void choose_megatron(Dice& dice, LayoutSpec& spec, ModelConfig& config) {
  choose_pipeline(dice, spec, config);
  if (!dice.one_in(8)) spec.options["vocab_multiple"] = dice.between(1, 40);
  if (dice.one_in(4)) spec.options["dp"] = dice.between(1, 3);
  if (dice.one_in(6)) spec.options["cp"] = dice.between(1, 2);
  choose_mtp(dice, spec);
  const ExpertsConfig& experts = config.experts;
  if (experts.count == 0 && !dice.one_in(30)) return;
  if (dice.one_in(2)) spec.options["ep"] = random_divisor(dice, experts.count);
  if (dice.one_in(2)) spec.options["etp"] = random_divisor(dice, experts.intermediate_size);
  if (config.family == "gpt_oss" && !dice.one_in(6)) spec.options["etp"] = 1;
  if (dice.one_in(4)) {
    const auto etp = spec.options.find("etp");
    const std::int64_t ranks = etp != spec.options.end()     ? etp->second
                               : spec.options.contains("tp") ? spec.options.at("tp")
                                                             : 1;
    spec.options["glu_interleave"] = random_divisor(dice, experts.intermediate_size / ranks);
  }
  if (dice.one_in(3)) spec.choices["experts"] = dice.one_in(2) ? "grouped" : "sequential";
}

/// Redundant slots, be it as the engine fills them or by a map.
inline void choose_slots(Dice& dice, LayoutSpec& spec, const ModelConfig& config) {
  const std::int64_t experts = config.experts.count;
  if (dice.one_in(2)) spec.options["redundant"] = dice.between(0, 4);
  if (!dice.one_in(3) || experts == 0) return;
  const auto redundant = spec.options.find("redundant");
  const std::int64_t slots = experts + (redundant == spec.options.end() ? 0 : redundant->second);
  const std::int64_t layers = config.num_hidden_layers;
  std::int64_t maps = 1;
  if (dice.one_in(2)) maps = dice.one_in(2) ? layers : layers - config.experts.first_layer;
  if (spec.choices.contains("mtp") && spec.choices.at("mtp") == "keep" && maps > 1) {
    maps += config.mtp_layers;
  }
  if (dice.one_in(20)) maps = dice.between(1, 4);
  spec.physical.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, maps)));
  for (std::vector<std::int64_t>& map : spec.physical) {
    const std::int64_t turn = dice.between(0, experts);
    for (std::int64_t i = 0; i < slots; ++i) {
      // Every expert once, beginning anywhere and in another order where their number is odd, and
      // then any of them.
      const std::int64_t step = experts % 2 == 1 ? 2 : 1;
      map.push_back(i < experts ? (turn + i * step) % experts : dice.between(0, experts - 1));
    }
  }
  if (dice.one_in(20)) spec.physical.back()[0] = dice.between(0, experts);
}

inline void choose_serving(Dice& dice, LayoutSpec& spec, std::int64_t tp, ModelConfig& config) {
  const bool vllm = spec.name == "vllm";
  if (dice.one_in(3)) {
    spec.options["pp"] = dice.between(1, 4);
    if (dice.one_in(3)) {
      spec.layers.assign(static_cast<std::size_t>(spec.options["pp"]), 0);
      for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        ++spec.layers[static_cast<std::size_t>(dice.between(0, spec.options["pp"] - 1))];
      }
    }
  }
  std::int64_t dp = 1;
  if (dice.one_in(3))
    spec.options["dp"] = dp = vllm ? dice.between(1, 3) : random_divisor(dice, tp);
  choose_mtp(dice, spec);
  const ExpertsConfig& experts = config.experts;
  if (experts.count == 0 && !dice.one_in(30)) return;
  if (dice.one_in(4)) spec.choices["gate_up"] = dice.one_in(2) ? "w13" : "w31";
  if (vllm) {
    if (dice.one_in(4) || (tp * dp == 1 && !dice.one_in(10))) return;
    spec.options["ep"] = dice.one_in(15) ? dice.between(1, 4) : tp * dp;
    if (dice.one_in(3)) {
      spec.choices["placement"] = "round_robin";
    } else {
      choose_slots(dice, spec, config);
    }
    return;
  }
  if (dice.one_in(2)) spec.options["ep"] = random_divisor(dice, std::gcd(tp, experts.count));
  if (dice.one_in(3)) spec.choices["shared"] = "fused";
  if (dice.one_in(3)) choose_slots(dice, spec, config);
}

/// A layout by that name, of a model with about those numbers; what the layout needs of them is
/// changed in `config`.
inline LayoutSpec random_layout(Dice& dice, const std::string& name, std::int64_t tp,
                                ModelConfig& config) {
  LayoutSpec spec;
  spec.name = name;
  if (name == "fsdp2") {
    spec.options["dp"] = dice.between(1, dice.one_in(4) ? 40 : 6);
    if (dice.one_in(3)) spec.options["hsdp"] = dice.between(1, 3);
  }
  if (name == "hf" || name == "fsdp2") {
    const bool each = config.experts.count > 0 && config.family != "gpt_oss";
    if (dice.one_in(each ? 2 : 20)) spec.choices["experts"] = "packed";
  } else if (tp > 1 || dice.one_in(2)) {
    spec.options["tp"] = tp;
  }
  if (name == "megatron") choose_megatron(dice, spec, config);
  if (name == "vllm" || name == "sglang") choose_serving(dice, spec, tp, config);
  if (dice.one_in(4)) spec.dtype = dice.one_in(2) ? ElementType::f32 : ElementType::bf16;
  return spec;
}

inline RandomCase random_case(Dice& dice) {
  const char* const names[] = {"megatron", "megatron", "vllm",  "vllm",
                               "sglang",   "sglang",   "fsdp2", "hf"};
  const std::string name = names[dice.between(0, 7)];
  const std::int64_t tp = random_tp(dice);
  ModelConfig config = random_config(dice, tp);
  LayoutSpec spec = random_layout(dice, name, tp, config);
  if ((name == "hf" || name == "fsdp2") && !dice.one_in(4)) return {random_tensors(dice), spec};
  RandomCase made{decoder_model(config), spec};
  std::vector<Tensor>& tensors = made.model.tensors;
  const auto victim = static_cast<std::size_t>(dice.between(0, std::ssize(tensors) - 1));
  if (dice.one_in(50)) tensors[victim].type = ElementType::f16;
  if (dice.one_in(50)) tensors[victim].type = ElementType::f32;
  for (Tensor& tensor : tensors) {
    const bool bias = tensor.kind == TensorKind::buffer;
    if (bias && dice.one_in(8)) tensor.type = ElementType::bf16;
  }
  if (dice.one_in(80)) ++tensors[victim].shape[0];
  if (dice.one_in(80)) tensors.push_back({"unknown", made.model.config.type, Dims{2}});
  if (dice.one_in(80)) tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(victim));
  return made;
}

/// Everything that a person needs to see what case it is.
inline std::string text_of(const RandomCase& random) {
  const ModelConfig& c = random.model.config;
  std::string text =
      text_of(random.spec) + " of " + (c.family.empty() ? "tensors" : c.family) + " hidden " +
      std::to_string(c.hidden_size) + " layers " + std::to_string(c.num_hidden_layers) + " heads " +
      std::to_string(c.num_attention_heads) + "/" + std::to_string(c.num_key_value_heads) +
      " head_dim " + std::to_string(c.head_dim) + " ffn " + std::to_string(c.intermediate_size) +
      " vocab " + std::to_string(c.vocab_size);
  if (c.tie_word_embeddings) text += " tied";
  if (c.qkv_bias) text += " qkv_bias";
  if (c.output_bias) text += " output_bias";
  if (c.mlp_bias) text += " mlp_bias";
  if (c.qk_norm) text += " qk_norm";
  if (c.mtp_layers > 0) text += " mtp " + std::to_string(c.mtp_layers);
  if (c.experts.count > 0) {
    text += " experts " + std::to_string(c.experts.count) + " of " +
            std::to_string(c.experts.intermediate_size) + " from " +
            std::to_string(c.experts.first_layer) + " shared " +
            std::to_string(c.experts.shared_intermediate_size);
    text += " in " + std::to_string(c.experts.groups);
    if (c.experts.score_bias) text += " score_bias";
    if (c.experts.router_f32) text += " router_f32";
  }
  if (c.latent.kv_lora_rank > 0) {
    text += " kv_lora " + std::to_string(c.latent.kv_lora_rank) + " q_lora " +
            std::to_string(c.latent.q_lora_rank) + " nope " +
            std::to_string(c.latent.qk_nope_head_dim) + " v " + std::to_string(c.latent.v_head_dim);
  }
  if (c.delta_net.full_attention_interval > 0) {
    text += " interval " + std::to_string(c.delta_net.full_attention_interval) + " linear heads " +
            std::to_string(c.delta_net.key_heads) + "/" + std::to_string(c.delta_net.value_heads) +
            " of " + std::to_string(c.delta_net.key_head_dim) + "/" +
            std::to_string(c.delta_net.value_head_dim);
  }
  // The tensors are those of the config, or else a list of their own.
  if (!c.family.empty() && random.model.tensors == decoder_model(c).tensors) return text;
  for (const Tensor& tensor : random.model.tensors) {
    text += "\n  " + tensor.name + " " + std::string(name_of(tensor.type)) + " " +
            text_of(tensor.shape);
  }
  return text;
}

}  // namespace weir::oracle
