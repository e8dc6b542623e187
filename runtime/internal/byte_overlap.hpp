#pragma once
// Proves that no byte of a target's memory is claimed twice, exactly, for strided pieces too.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/box.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir::internal {

/// The bytes that a piece claims of its region: `size` at `offset + i * stride[0] + …` for every
/// index below `extent`. All sums fit in 63 bits (`check` has seen to it).
struct ByteLattice {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  Dims extent;
  Dims stride;

  /// The first byte after the last one.
  [[nodiscard]] std::int64_t end() const noexcept;
};

/// Whether two lattices share a byte; whether one holds a byte twice. Exact: finding indices whose
/// bytes meet is a search over the strides from the largest to the smallest, which layouts whose
/// strides nest decide in a few steps. Nothing after `search_steps_max` steps, which only strides
/// that no layout has can take.
std::optional<bool> share_bytes(const ByteLattice& a, const ByteLattice& b);
std::optional<bool> repeats_bytes(const ByteLattice& lattice);

inline constexpr std::uint32_t search_steps_max = 1U << 16;

/// How often two pieces of one manifest whose byte ranges interleave may be compared.
inline constexpr std::uint64_t comparisons_max = std::uint64_t{1} << 24;

/// The manifest's pieces (as indices), by region and offset, proved to claim each byte at most
/// once. Errors: `invalid` (names both tensors, their boxes and the shard), `refused` (a limit
/// above).
Result<std::vector<std::uint32_t>> disjoint_order(const Manifest& manifest);

}  // namespace weir::internal
