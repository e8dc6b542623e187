#include "adapters/layouts/internal/engines.hpp"

#include <algorithm>
#include <array>

#include "adapters/layouts/internal/description.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

constexpr std::array all_engines = {&hf_engine, &fsdp2_engine, &megatron_engine, &vllm_engine,
                                    &sglang_engine};

std::vector<std::string> option_names(const Engine& engine) {
  std::vector<std::string> names;
  for (const EngineOption& option : engine.options) names.emplace_back(option.name);
  for (const EngineChoice& choice : engine.choices) names.emplace_back(choice.name);
  if (engine.takes_layers) names.emplace_back("layers");
  if (engine.takes_physical) names.emplace_back("physical");
  names.emplace_back("dtype");
  names.emplace_back("quant");
  return names;
}

bool in_bounds(std::int64_t value, std::int64_t least) {
  return value >= least && value <= option_max;
}

}  // namespace

std::span<const Engine* const> engines() noexcept {
  return all_engines;
}

Result<std::shared_ptr<const Engine>> engine_named(std::string_view name) {
  if (name.ends_with(".toml")) return described_engine(std::string(name));
  std::vector<std::string> known;
  for (const Engine* engine : engines()) {
    // Engines of the table outlive everything.
    if (engine->name == name) return std::shared_ptr<const Engine>(std::shared_ptr<void>(), engine);
    known.emplace_back(engine->name);
  }
  known.emplace_back("the name of a .toml file that describes one");
  return failure(ErrorCode::invalid,
                 "unknown layout '" + std::string(name) + "': use " + alternatives(known));
}

Result<LayoutSize> size_in(const Engine& engine, const LayoutSpec& spec) {
  if (engine.description != nullptr) return described_size(*engine.description, spec);
  return engine.size(spec);
}

Result<RankLayout> rank_in(const Engine& engine, const TensorIndex& index, const LayoutSpec& spec,
                           std::uint32_t rank) {
  if (engine.description != nullptr) {
    return described_rank(*engine.description, index, spec, rank);
  }
  return engine.lay_out(index, spec, rank);
}

Result<void> check_option_name(const Engine& engine, std::string_view name) {
  const std::vector<std::string> names = option_names(engine);
  if (std::find(names.begin(), names.end(), name) != names.end()) return {};
  return failure(ErrorCode::invalid, "layout " + std::string(engine.name) + " has no option '" +
                                         std::string(name) + "': use " + alternatives(names));
}

std::string number_advice(std::int64_t least) {
  return "use a whole number from " + std::to_string(least) + " to " + std::to_string(option_max);
}

std::string layers_advice() {
  return "use whole numbers from 0 to " + std::to_string(option_max) +
         ", one for each pipeline chunk, joined by '-', as in layers=2-1-1-2";
}

std::string physical_advice() {
  return "use numbers of experts from 0 to " + std::to_string(option_max) +
         ", one for each physical slot, joined by '-', as in physical=0-1-2-3-0; maps of several "
         "layers are joined by '/', or in a file: physical=@maps.json";
}

std::string dtype_advice() {
  return "use f32 or bf16";
}

std::string quant_advice() {
  std::vector<std::string> words;
  for (int quant = 0; quant < weight_quant_count; ++quant) {
    words.emplace_back(name_of(static_cast<WeightQuant>(quant)));
  }
  return "use " + alternatives(words);
}

const EngineChoice* choice_named(const Engine& engine, std::string_view name) noexcept {
  const auto found = std::ranges::find(engine.choices, name, &EngineChoice::name);
  return found == engine.choices.end() ? nullptr : &*found;
}

const EngineOption* option_named(const Engine& engine, std::string_view name) noexcept {
  const auto found = std::ranges::find(engine.options, name, &EngineOption::name);
  return found == engine.options.end() ? nullptr : &*found;
}

namespace {

Result<void> settle_options(const Engine& engine, LayoutSpec& spec) {
  for (const EngineOption& option : engine.options) {
    const auto like = spec.options.find(std::string(option.like));
    spec.options.try_emplace(std::string(option.name),
                             like == spec.options.end() ? option.fallback : like->second);
  }
  for (const auto& [name, value] : spec.options) {
    if (auto known = check_option_name(engine, name); !known) return known;
    const EngineOption* option = option_named(engine, name);
    const std::int64_t least = option == nullptr ? 1 : option->least;
    if (option == nullptr || !in_bounds(value, least)) {
      return failure(ErrorCode::invalid, name + "=" + std::to_string(value) +
                                             " is out of bounds: " + number_advice(least));
    }
  }
  return {};
}

Result<void> settle_choices(const Engine& engine, LayoutSpec& spec) {
  for (const EngineChoice& choice : engine.choices) {
    spec.choices.try_emplace(std::string(choice.name), choice.words.front());
  }
  for (const auto& [name, word] : spec.choices) {
    if (auto known = check_option_name(engine, name); !known) return known;
    const EngineChoice* choice = choice_named(engine, name);
    if (choice != nullptr && std::ranges::find(choice->words, word) != choice->words.end()) {
      continue;
    }
    std::string text = name + "=" + word + ": use ";
    if (choice == nullptr) return failure(ErrorCode::invalid, text + "a whole number");
    return failure(ErrorCode::invalid,
                   text + alternatives({choice->words.begin(), choice->words.end()}));
  }
  return {};
}

Result<void> check_lists(const Engine& engine, const LayoutSpec& spec) {
  if (!spec.layers.empty()) {
    if (auto known = check_option_name(engine, "layers"); !known) return known;
  }
  if (!spec.physical.empty()) {
    if (auto known = check_option_name(engine, "physical"); !known) return known;
  }
  for (const std::int64_t count : spec.layers) {
    if (!in_bounds(count, 0)) {
      return failure(ErrorCode::invalid,
                     "layers: " + std::to_string(count) + " is out of bounds: " + layers_advice());
    }
  }
  for (const std::vector<std::int64_t>& map : spec.physical) {
    const auto wrong = std::ranges::find_if(map, [](auto expert) { return !in_bounds(expert, 0); });
    if (wrong != map.end()) {
      return failure(ErrorCode::invalid, "physical: " + std::to_string(*wrong) +
                                             " is out of bounds: " + physical_advice());
    }
  }
  return {};
}

}  // namespace

Result<LayoutSpec> settled(const Engine& engine, const LayoutSpec& spec) {
  LayoutSpec all = spec;
  if (auto good = settle_options(engine, all); !good) return failure(good);
  if (auto good = settle_choices(engine, all); !good) return failure(good);
  if (auto good = check_lists(engine, all); !good) return failure(good);
  if (spec.dtype && *spec.dtype != ElementType::f32 && *spec.dtype != ElementType::bf16) {
    return failure(ErrorCode::invalid,
                   "dtype=" + std::string(name_of(*spec.dtype)) + ": " + dtype_advice());
  }
  return all;
}

bool chosen(const LayoutSpec& spec, const std::string& name, std::string_view word) {
  const auto found = spec.choices.find(name);
  WEIR_ASSERT(found != spec.choices.end());
  return found->second == word;
}

std::int64_t option(const LayoutSpec& spec, const std::string& name) {
  const auto found = spec.options.find(name);
  WEIR_ASSERT(found != spec.options.end());
  return found->second;
}

Result<LayoutSize> layout_size(const LayoutSpec& spec, std::int64_t ranks, std::int64_t replicas) {
  if (ranks > option_max) {
    return failure(ErrorCode::invalid, spec.name + " would have " + std::to_string(ranks) +
                                           " ranks: use at most " + std::to_string(option_max));
  }
  return LayoutSize{.ranks = static_cast<std::uint32_t>(ranks),
                    .replicas = static_cast<std::uint32_t>(replicas)};
}

std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t index = 0; index < words.size(); ++index) {
    if (index > 0) text += index + 1 == words.size() ? " or " : ", ";
    text += words[index];
  }
  return text;
}

}  // namespace weir
