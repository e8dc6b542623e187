#pragma once
// A model's tensors by name, looked up once for every piece of every rank.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "adapters/model/model.hpp"

namespace weir {

/// The three weights of one gated MLP: indices into `Model::tensors`.
struct GatedMlp {
  std::uint32_t gate = 0;
  std::uint32_t up = 0;
  std::uint32_t down = 0;
};

/// Borrows the model, which must outlive it and stay as it is.
class TensorIndex {
 public:
  explicit TensorIndex(const Model& model);

  [[nodiscard]] const Model& model() const noexcept { return model_; }
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const;
  /// The tensor must be there.
  [[nodiscard]] std::uint32_t of(std::string_view name) const;
  /// "gate_proj.weight", "up_proj.weight" and "down_proj.weight" behind that prefix.
  [[nodiscard]] GatedMlp mlp(std::string_view prefix) const;
  /// The routed experts of the layer with that canonical name ("model.layers.7."), in order; a
  /// large model's are found once for all ranks, for they are nearly all of its tensors. The layer
  /// must have experts that are tensors of their own.
  [[nodiscard]] std::span<const GatedMlp> experts(std::string_view layer) const;

 private:
  const Model& model_;
  std::unordered_map<std::string_view, std::uint32_t> places_;
  std::unordered_map<std::string_view, std::vector<GatedMlp>> experts_;  ///< By their layer's name.
};

}  // namespace weir
