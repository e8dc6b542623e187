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

/// How many steps a search may take. Exact proofs are searches for indices whose bytes meet, over
/// the strides from the largest to the smallest: where strides nest, as in every layout there is,
/// that takes a handful of steps. Only strides made for it could take this many (about a second).
inline constexpr std::uint64_t search_steps_max = std::uint64_t{1} << 26;

/// Whether two lattices share a byte; whether one holds a byte twice. Takes from `steps_left`;
/// nothing when it is used up.
std::optional<bool> share_bytes(const ByteLattice& a, const ByteLattice& b,
                                std::uint64_t& steps_left);
std::optional<bool> repeats_bytes(const ByteLattice& lattice, std::uint64_t& steps_left);

/// The manifest's pieces (as indices) by region and offset, proved to claim each byte at most once:
/// pieces whose byte ranges meet are compared as lattices, so that those that interleave, such as
/// columns of one matrix, are told from those that overlap.
/// Errors: `invalid` (names both tensors, their boxes and the shard); `refused` after
/// `steps_max` steps.
Result<std::vector<std::uint32_t>> disjoint_order(const Manifest& manifest,
                                                  std::uint64_t steps_max = search_steps_max);

}  // namespace weir::internal
