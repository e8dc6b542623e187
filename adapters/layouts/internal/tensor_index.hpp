#pragma once
// A model's tensors by name, looked up once for every piece of every rank.

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "adapters/model/model.hpp"

namespace weir {

/// Borrows the model, which must outlive it and stay as it is.
class TensorIndex {
 public:
  explicit TensorIndex(const Model& model);

  [[nodiscard]] const Model& model() const noexcept { return model_; }
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const;
  /// The tensor must be there.
  [[nodiscard]] std::uint32_t of(std::string_view name) const;

 private:
  const Model& model_;
  std::unordered_map<std::string_view, std::uint32_t> places_;
};

}  // namespace weir
