#pragma once
// How planned copies become RDMA READs: in steps of bounded bytes and bounded numbers of READs.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/plan.hpp"
#include "transports/internal/runs.hpp"

namespace weir::rdma {

/// Steps are small enough that rails share a fetch evenly and a cancel takes effect soon, and so
/// large that what a step costs us (about 1 us) is little beside moving it (10 us at 400 Gb/s).
inline constexpr std::uint64_t step_bytes_max = std::uint64_t{512} << 10;
/// Half of what a connection has under way, so that the next step is posted while one moves.
inline constexpr std::uint32_t reads_per_step_max = 32;
/// Steps that are unpacked use a buffer of this size: a quarter of a usual second-level cache.
inline constexpr std::uint64_t bounce_bytes = std::uint64_t{256} << 10;

/// A READ costs a network card about as much as moving 2 KiB (10 to 20 million READs a second
/// beside 25 to 50 GB/s), so that gaps of up to that are read along.
inline constexpr std::uint64_t gap_bytes_max = 2048;
/// Runs at least this long are read straight into the target: at twice that cost, a READ of its own
/// is cheaper than going through a buffer, which moves each byte twice more through memory.
inline constexpr std::uint64_t straight_run_bytes_min = 4096;

/// A part of a copy that is posted at once.
struct Step {
  Copy copy;
  bool packed = false;      ///< By way of a bounce buffer; else straight into the target.
  std::uint32_t reads = 0;  ///< 1 to `reads_per_step_max`.
  std::uint64_t bytes = 0;  ///< Over the wire.
};

/// Cuts a checked copy into steps that together do exactly what it does. No READ is longer than
/// `message_bytes_max`, which is at least 4096.
std::vector<Step> cut_to_steps(const Copy& copy, std::uint64_t message_bytes_max);

/// The runs of a step: to the bounce buffer of a packed one, to the target region of others.
Runs runs_of(const Step& step);

/// Calls `body(source_offset, local_offset, bytes)` for each READ.
template <class Body>
void for_each_read(const Runs& runs, std::uint64_t message_bytes_max, const Body& body) {
  for_each_run(runs, [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t at = 0; at < runs.run_bytes; at += message_bytes_max) {
      body(from + at, to + at, std::min(message_bytes_max, runs.run_bytes - at));
    }
  });
}

/// What is left to do for a packed step: the same copy out of its bounce buffer.
Copy from_bounce(const Step& step);

}  // namespace weir::rdma
