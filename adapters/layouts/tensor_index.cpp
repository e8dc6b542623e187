#include "adapters/layouts/internal/tensor_index.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "runtime/assert.hpp"

namespace weir {
namespace {

constexpr std::string_view experts_infix = "mlp.experts.";
constexpr std::array<std::pair<std::string_view, std::uint32_t GatedMlp::*>, 3> projections = {
    {{".gate_proj.weight", &GatedMlp::gate},
     {".up_proj.weight", &GatedMlp::up},
     {".down_proj.weight", &GatedMlp::down}}};

}  // namespace

TensorIndex::TensorIndex(const Model& model) : model_(model) {
  places_.reserve(model.tensors.size());
  const auto count = static_cast<std::size_t>(model.config.experts.count);
  for (std::uint32_t i = 0; i < model.tensors.size(); ++i) {
    const std::string_view name = model.tensors[i].name;
    places_.emplace(name, i);
    const std::size_t infix = name.find(experts_infix);
    if (infix == std::string_view::npos) continue;
    const std::string_view behind = name.substr(infix + experts_infix.size());
    std::size_t expert = 0;
    const auto number = std::from_chars(behind.data(), behind.data() + behind.size(), expert);
    if (number.ec != std::errc() || expert >= count) continue;
    std::vector<GatedMlp>& experts = experts_[name.substr(0, infix)];
    if (experts.empty()) experts.resize(count);
    for (const auto& [projection, place] : projections) {
      if (std::string_view(number.ptr, name.end()) == projection) experts[expert].*place = i;
    }
  }
}

std::optional<std::uint32_t> TensorIndex::find(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

std::uint32_t TensorIndex::of(std::string_view name) const {
  const auto found = find(name);
  WEIR_ASSERT(found.has_value());
  return *found;
}

GatedMlp TensorIndex::mlp(std::string_view prefix) const {
  const auto named = [&](std::string_view suffix) {
    return of(std::string(prefix).append(suffix));
  };
  return {named("gate_proj.weight"), named("up_proj.weight"), named("down_proj.weight")};
}

std::span<const GatedMlp> TensorIndex::experts(std::string_view layer) const {
  const auto found = experts_.find(layer);
  WEIR_ASSERT(found != experts_.end());
  return found->second;
}

}  // namespace weir
