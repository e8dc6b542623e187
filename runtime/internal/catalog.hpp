#pragma once
// The tensors that take part in a plan: one number per name, and the proofs about whole
// inventories.

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/internal/roster.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir::internal {

/// A tensor (or alias) of any manifest. Numbers are given in order of first sight.
using TensorNumber = std::uint32_t;

/// What the shards of one pattern list.
struct PatternTensors {
  /// By rank, then by index in the manifest's `tensors`.
  std::vector<std::vector<TensorNumber>> numbers;
  /// By tensor number: an entry that some rank lists, null where no rank does.
  std::vector<const Tensor*> listed;
  /// By tensor number: bit `t` is set where some rank keeps the tensor as element type `t`.
  std::vector<std::uint16_t> types;

  /// By tensor number: how the tensor is encoded, null where it holds plain values.
  std::vector<const Encoding*> encodings;

  [[nodiscard]] bool has(TensorNumber tensor) const noexcept { return listed[tensor] != nullptr; }
};

/// Borrows the roster's manifests.
struct Catalog {
  std::vector<std::string_view> names;  ///< By tensor number.
  /// As the roster's `trainers` and `rollouts`.
  std::vector<PatternTensors> trainers;
  std::vector<PatternTensors> rollouts;
  /// By number of a rollout's tensor: the tensor to copy from, which is the tensor itself or, where
  /// no trainer has it, one that an alias ties to it. Itself for other numbers.
  std::vector<TensorNumber> source_of;
};

/// Proves that names, shapes, kinds, types, encodings, inventories and aliases agree: within each
/// replica, among all that list a tensor, and between each rollout tensor and its source.
Result<Catalog> make_catalog(const Roster& roster);

}  // namespace weir::internal
