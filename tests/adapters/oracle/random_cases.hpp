#pragma once
// Random models and layouts for property tests: small, uneven, mostly ones that fit together and
// sometimes ones that do not. The same seed gives the same cases with every standard library.

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "tests/adapters/oracle/decoder_model.hpp"

namespace weir::oracle {

/// The seed of a property test: `WEIR_SEED`, or always the same.
inline std::uint64_t seed_from_environment() {
  const char* text = std::getenv("WEIR_SEED");
  return text == nullptr ? 20'260'801 : std::strtoull(text, nullptr, 10);
}

/// Small random numbers from one seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  /// From `low` to `high`, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

/// A decoder whose numbers suit `tp`, save one time in ten.
inline ModelConfig random_config(Dice& dice, std::int64_t tp) {
  const bool suits = !dice.one_in(10);
  ModelConfig config;
  config.family = dice.one_in(3) ? "llama" : dice.one_in(2) ? "qwen2" : "qwen3";
  config.hidden_size = dice.between(1, 6);
  config.num_hidden_layers = dice.between(1, 6);
  // Groups that divide tp, are divided by it, or (megatron minds less) neither.
  config.num_key_value_heads = dice.between(1, 6);
  if (suits && dice.one_in(2)) config.num_key_value_heads = std::gcd(tp, dice.between(1, 12));
  const std::int64_t step = suits ? std::lcm(tp, config.num_key_value_heads) : 1;
  config.num_attention_heads = step * dice.between(1, step > 8 ? 1 : 3);
  if (dice.one_in(2)) config.num_attention_heads *= config.num_key_value_heads;
  config.head_dim = dice.between(1, 5);
  // The fused rows are divided by tp if the doubled groups' rows are.
  const std::int64_t kv = 2 * config.num_key_value_heads;
  if (suits && dice.one_in(2)) config.head_dim = tp / std::gcd(tp, kv) * dice.between(1, 2);
  config.intermediate_size = suits ? tp * dice.between(1, 4) : dice.between(1, 30);
  config.vocab_size = dice.between(1, 150);
  config.tie_word_embeddings = dice.one_in(3);
  config.qkv_bias = dice.one_in(3);
  config.output_bias = dice.one_in(4);
  config.mlp_bias = dice.one_in(4);
  config.qk_norm = dice.one_in(2);
  config.type = dice.one_in(3) ? ElementType::f32 : ElementType::bf16;
  return config;
}

/// Tensors of any rank, type and kind, as no engine has them.
inline Model random_tensors(Dice& dice) {
  Model model;
  const std::int64_t count = dice.between(1, 6);
  for (std::int64_t i = 0; i < count; ++i) {
    Dims shape = Dims::filled(static_cast<int>(dice.between(0, rank_max)), 0);
    for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = dice.between(1, dim == 0 ? 20 : 5);
    model.tensors.push_back({"tensor." + std::to_string(i),
                             static_cast<ElementType>(dice.between(0, element_type_count - 1)),
                             shape, dice.one_in(4) ? TensorKind::buffer : TensorKind::parameter});
  }
  return model;
}

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
  if (name == "megatron" || name == "vllm") {
    if (tp > 1 || dice.one_in(2)) spec.options["tp"] = tp;
  }
  if (name == "megatron") {
    choose_pipeline(dice, spec, config);
    if (!dice.one_in(8)) spec.options["vocab_multiple"] = dice.between(1, 40);
    if (dice.one_in(4)) spec.options["dp"] = dice.between(1, 3);
  }
  if (dice.one_in(4)) spec.dtype = dice.one_in(2) ? ElementType::f32 : ElementType::bf16;
  return spec;
}

inline RandomCase random_case(Dice& dice) {
  const char* const names[] = {"megatron", "megatron", "vllm", "vllm", "fsdp2", "hf"};
  const std::string name = names[dice.between(0, 5)];
  const std::int64_t tp = random_tp(dice);
  ModelConfig config = random_config(dice, tp);
  LayoutSpec spec = random_layout(dice, name, tp, config);
  if ((name == "hf" || name == "fsdp2") && !dice.one_in(4)) return {random_tensors(dice), spec};
  RandomCase made{decoder_model(config), spec};
  std::vector<Tensor>& tensors = made.model.tensors;
  const auto victim = static_cast<std::size_t>(dice.between(0, std::ssize(tensors) - 1));
  if (dice.one_in(50)) tensors[victim].type = ElementType::f16;
  if (dice.one_in(50)) tensors[victim].type = ElementType::f32;
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
  // The tensors are those of the config, or else a list of their own.
  if (!c.family.empty() && random.model.tensors == decoder_model(c).tensors) return text;
  for (const Tensor& tensor : random.model.tensors) {
    text += "\n  " + tensor.name + " " + std::string(name_of(tensor.type)) + " " +
            text_of(tensor.shape);
  }
  return text;
}

}  // namespace weir::oracle
