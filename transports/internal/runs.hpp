#pragma once
// How a strided copy reads memory that this process can't address: as runs of bytes that the
// kernel, or the memory's owner, brings over.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/box.hpp"
#include "runtime/plan.hpp"

namespace weir {

/// Runs of equal length at regular places of both sides, outermost loop first. Bytes throughout.
struct Runs {
  std::uint64_t source_offset = 0;
  std::uint64_t target_offset = 0;
  std::uint64_t run_bytes = 0;
  std::uint32_t rank = 0;
  std::array<std::uint64_t, rank_max> extent{};
  std::array<std::uint64_t, rank_max> source_stride{};
  std::array<std::uint64_t, rank_max> target_stride{};

  /// Of all runs together.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t bytes = run_bytes;
    for (std::uint32_t dim = 0; dim < rank; ++dim) bytes *= extent[dim];
    return bytes;
  }
};

/// Calls `body(source_offset, target_offset)` for each run, the last loop fastest.
template <class Body>
void for_each_run(const Runs& runs, const Body& body) {
  std::array<std::uint64_t, rank_max> index{};
  std::uint64_t source = runs.source_offset;
  std::uint64_t target = runs.target_offset;
  for (;;) {
    body(source, target);
    std::uint32_t dim = runs.rank;
    for (; dim > 0; --dim) {
      const std::uint32_t loop = dim - 1;
      source += runs.source_stride[loop];
      target += runs.target_stride[loop];
      if (++index[loop] < runs.extent[loop]) break;
      source -= runs.source_stride[loop] * runs.extent[loop];
      target -= runs.target_stride[loop] * runs.extent[loop];
      index[loop] = 0;
    }
    if (dim == 0) return;
  }
}

/// A copy as runs that are dense on both sides; nothing where it converts.
std::optional<Runs> direct_runs(const Copy& copy);

/// A copy by way of a buffer: what is read into it, one run after another from its start, and the
/// same copy with the buffer as its source.
struct PackedCopy {
  Runs runs;
  Copy from_packed;
};

/// Gaps of up to `gap_bytes_max` between elements or runs are read along with them, where a
/// shorter list of runs is worth more than the bytes.
PackedCopy pack(const Copy& copy, std::uint64_t gap_bytes_max);

/// Cuts a copy into parts that need at most `buffer_bytes` (at least 8) of buffer each.
std::vector<Copy> cut_to_fit(const Copy& copy, std::uint64_t gap_bytes_max,
                             std::uint64_t buffer_bytes);

}  // namespace weir
