#include "adapters/layouts/internal/tensor_index.hpp"

#include "runtime/assert.hpp"

namespace weir {

TensorIndex::TensorIndex(const Model& model) : model_(model) {
  places_.reserve(model.tensors.size());
  for (std::uint32_t i = 0; i < model.tensors.size(); ++i) {
    places_.emplace(model.tensors[i].name, i);
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

}  // namespace weir
