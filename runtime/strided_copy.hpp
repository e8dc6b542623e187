#pragma once
// Executes one planned copy between two blocks of memory that this process can address.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Whether every byte that `copy` reads lies below `source_region_bytes` and every byte that it
/// writes below `target_region_bytes`, computed without overflow. Plans come from peers: this is
/// checked once when a copy is prepared, and never trusted. Errors: `invalid`.
Result<void> check_bounds(const Copy& copy, std::uint64_t source_region_bytes,
                          std::uint64_t target_region_bytes);

/// Copies (and converts, where the types differ) between the two regions' memory.
/// `copy` has passed `check_bounds` for these sizes. The memory must not overlap.
/// Uses non-temporal stores for long runs, where the target will not be read soon.
/// Threading: any number of calls with disjoint targets at once.
void copy_strided(const Copy& copy, std::span<const std::byte> source,
                  std::span<std::byte> target) noexcept;

/// The part of a copy with indices in [begin, end) of dimension `dim`, which must be within it.
Copy slice(const Copy& copy, int dim, std::int64_t begin, std::int64_t end) noexcept;

/// Cuts a copy along its outermost dimensions into parts of at most about `part_bytes_max`
/// target bytes each, which together do exactly what it does. Used to share work by bytes.
std::vector<Copy> split(const Copy& copy, std::uint64_t part_bytes_max);

}  // namespace weir
