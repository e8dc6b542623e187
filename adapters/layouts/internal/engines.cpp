#include "adapters/layouts/internal/engines.hpp"

#include <algorithm>
#include <array>

#include "runtime/assert.hpp"

namespace weir {
namespace {

constexpr std::array all_engines = {&hf_engine, &fsdp2_engine, &megatron_engine, &vllm_engine};

std::vector<std::string> option_names(const Engine& engine) {
  std::vector<std::string> names;
  for (const EngineOption& option : engine.options) names.emplace_back(option.name);
  if (engine.takes_layers) names.emplace_back("layers");
  names.emplace_back("dtype");
  return names;
}

bool in_bounds(std::int64_t value, std::int64_t least) {
  return value >= least && value <= option_max;
}

}  // namespace

std::span<const Engine* const> engines() noexcept {
  return all_engines;
}

Result<const Engine*> engine_named(std::string_view name) {
  std::vector<std::string> known;
  for (const Engine* engine : engines()) {
    if (engine->name == name) return engine;
    known.emplace_back(engine->name);
  }
  return failure(ErrorCode::invalid,
                 "unknown layout '" + std::string(name) + "': use " + alternatives(known));
}

Result<void> check_option_name(const Engine& engine, std::string_view name) {
  const std::vector<std::string> names = option_names(engine);
  if (std::find(names.begin(), names.end(), name) != names.end()) return {};
  return failure(ErrorCode::invalid, "layout " + std::string(engine.name) + " has no option '" +
                                         std::string(name) + "': use " + alternatives(names));
}

std::string number_advice() {
  return "use a whole number from 1 to " + std::to_string(option_max);
}

std::string layers_advice() {
  return "use whole numbers from 0 to " + std::to_string(option_max) +
         ", one for each pipeline chunk, joined by '-', as in layers=2-1-1-2";
}

std::string dtype_advice() {
  return "use f32 or bf16";
}

Result<LayoutSpec> settled(const Engine& engine, const LayoutSpec& spec) {
  LayoutSpec all = spec;
  for (const EngineOption& option : engine.options) {
    all.options.try_emplace(std::string(option.name), option.fallback);
  }
  for (const auto& [name, value] : all.options) {
    if (auto known = check_option_name(engine, name); !known) return failure(known);
    if (!in_bounds(value, 1)) {
      return failure(ErrorCode::invalid,
                     name + "=" + std::to_string(value) + " is out of bounds: " + number_advice());
    }
  }
  if (!spec.layers.empty()) {
    if (auto known = check_option_name(engine, "layers"); !known) return failure(known);
  }
  for (const std::int64_t count : spec.layers) {
    if (!in_bounds(count, 0)) {
      return failure(ErrorCode::invalid,
                     "layers: " + std::to_string(count) + " is out of bounds: " + layers_advice());
    }
  }
  if (spec.dtype && *spec.dtype != ElementType::f32 && *spec.dtype != ElementType::bf16) {
    return failure(ErrorCode::invalid,
                   "dtype=" + std::string(name_of(*spec.dtype)) + ": " + dtype_advice());
  }
  return all;
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
