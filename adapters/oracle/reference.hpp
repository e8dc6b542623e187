#pragma once
// A rank's memory as its engine would fill it, and the check that it holds just that, straight
// from the oracle's rows: no pieces, manifests or plans are involved.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/element_type.hpp"
#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir::oracle {

/// Where one local tensor, dense and row-major, lies in the rank's region.
struct LocalPlace {
  std::string name;
  std::uint64_t offset = 0;  ///< Bytes.
};

/// One rank's memory, to be filled or compared.
struct RankMemory {
  const Model& model;  ///< Borrowed for the call.
  LayoutSpec spec;
  std::uint32_t rank = 0;
  /// Every local tensor of the rank once, in any order.
  std::vector<LocalPlace> places;
  /// The bytes of version 0 of canonical tensor number `tensor` of the model, whole, dense and in
  /// the model's type. Called once for each tensor that the rank keeps something of, by the
  /// calling thread; the bytes must outlive the call.
  std::function<std::span<const std::byte>(std::size_t tensor)> canonical;
  /// What f32 and bf16 values pass through on their way here: the trainer's `dtype`, for a rollout
  /// rank that gets them from a trainer which keeps them in that type.
  std::optional<ElementType> passed_through;
};

/// Fills every local tensor for `version` (`seeded_version.hpp` says what that is), padding with
/// zeros. Bytes of the region between local tensors are left alone. Where the local type is not
/// the model's, bf16 is widened exactly and f32 rounded to the nearest, ties to even
/// (a NaN stays a NaN).
/// Scratch memory: three blocks of 64 KiB a worker, and the rows, 24 bytes each. Not from within a
/// task of `workers`.
/// Errors (`invalid`): those of `rank_of`; a place that is missing, unknown, given twice, outside
/// the region or over another one; canonical bytes that are not as many as the tensor has.
Result<void> fill_rank(const RankMemory& memory, std::uint64_t version, std::span<std::byte> region,
                       Workers& workers);

/// Compares every byte of every local tensor, padding too, with what `fill_rank` would write, and
/// returns how many bytes that were. Threading and scratch memory are the same.
/// Errors (`invalid`): those of `fill_rank`, and the first difference, in the order of `rank_of`:
/// its local tensor, row and column, the canonical element that belongs there, the value that it
/// should have and the one that was found.
Result<std::uint64_t> compare_rank(const RankMemory& memory, std::uint64_t version,
                                   std::span<const std::byte> region, Workers& workers);

}  // namespace weir::oracle
