#pragma once
// How a plan part is fetched: cut into chunks, each read along a route, counted once, and resumed
// after a fault. Plain values without clock or messages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "actors/roster.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What is moved at once: copies from one source of the plan. They name regions of slot 0.
struct Chunk {
  std::uint32_t source = 0;
  std::uint64_t bytes = 0;  ///< Target bytes.
  /// Of the slot's regions, one after another, it reads no byte from here on.
  std::uint64_t reach = 0;
  std::vector<Copy> copies;
};

/// With two chunks in flight neither the wire nor whoever issues the next one idles; and no chunk
/// is so large that much of a version that is being written has to wait for it.
constexpr std::uint64_t chunk_bytes_max(std::uint64_t window_bytes_max) noexcept {
  return std::min(window_bytes_max / 2, std::uint64_t{16} << 20);
}

/// The part in chunks of at most `bytes_max` target bytes; a single element that has more is a
/// chunk of its own. Together they do exactly what the part's copies do. Those of one source are in
/// the order of its memory, in which a version is written. The order of all interleaves the
/// sources so that all end at about the same time, and begins with another source for each
/// target. `sources` are the plan's; the plan has passed `check_part`.
std::vector<Chunk> chunks_of(const PlanPart& part, const std::vector<PlanSource>& sources,
                             std::uint64_t bytes_max);

/// The memory that is written: `slots` sets of regions of these sizes.
struct TargetShape {
  std::uint32_t slots = 1;
  std::vector<std::uint64_t> region_bytes;  ///< Of one slot.
};

/// Whether the plan has exactly one part, and every byte that its copies read and write lies in
/// slot 0 of its source and of the target. Errors (`invalid`) name what does not.
Result<void> check_part(const Plan& plan, const TargetShape& target);

/// From where each source's chunks are read, and which slot they are written to.
struct FetchRoutes {
  std::uint32_t target_slot = 0;
  std::vector<Route> by_source;  ///< One for each of the plan's sources.
  std::uint32_t peer_slots = 1;
  ShardId peer;
  std::vector<RegionInfo> peer_regions;  ///< Of all its slots.
  std::vector<std::uint64_t> stands;     ///< As in a `Lease`.
};

/// A peer's word: every slot and number is in range, and what stands in for a source, or for our
/// own memory, has regions of the same sizes. `sources` have passed `check_part`. Errors:
/// `invalid`.
Result<void> check(const FetchRoutes& routes, const std::vector<PlanSource>& sources,
                   const TargetShape& target);

/// Who is read by that route, with the regions of all its slots.
PlanSource read_by(const Route& route, const FetchRoutes& routes,
                   const std::vector<PlanSource>& sources);

/// The chunk's copies as they are read along a route from one source, number 0, whose regions are
/// those of one slot. A peer is read where we write: it holds the same bytes at the same places.
std::vector<Copy> copies_along(const Chunk& chunk, bool peer);

/// For whom and into what a fetch runs: only under the very same claim does what is there count.
struct FetchClaim {
  std::uint64_t seat = 0;
  std::uint64_t lease = 0;
  std::uint64_t version = 0;
  std::uint32_t target_slot = 0;

  friend bool operator==(const FetchClaim&, const FetchClaim&) noexcept = default;
};

/// Which chunks are done, in flight, or to do. The bytes in flight stay within the window; a chunk
/// that is larger flies alone.
class FetchState {
 public:
  FetchState() = default;
  FetchState(std::vector<Chunk> chunks, std::uint64_t window_bytes_max);

  /// Goes on where it was under an equal claim, begins anew under any other. Nothing is in flight.
  /// `routes` have passed `check`.
  void begin(const FetchClaim& claim, const FetchRoutes& routes);
  /// More of the version stands; `stands` as in a `Lease`, for as many sources.
  void stand(const std::vector<std::uint64_t>& stands);
  /// Takes the next chunk that stands, and that the window has room for, as started under `start`,
  /// a number that was never used before. Nothing where there is none, or it has to wait for others
  /// to end or for more to stand.
  std::optional<std::size_t> start_next(std::uint64_t start);
  /// A start has ended, with all bytes there or not. Returns its chunk; nothing when it is not in
  /// flight: a second word on the same start counts nothing.
  std::optional<std::size_t> end(std::uint64_t start, bool moved);

  [[nodiscard]] const std::vector<Chunk>& chunks() const noexcept { return chunks_; }
  /// Chunks by start.
  [[nodiscard]] const std::map<std::uint64_t, std::size_t>& in_flight() const noexcept {
    return in_flight_;
  }
  [[nodiscard]] std::uint64_t bytes_in_flight() const noexcept { return bytes_in_flight_; }
  /// Every chunk is done, and the version stands whole where it was read.
  [[nodiscard]] bool whole() const noexcept {
    return chunks_done_ == chunks_.size() && !waits_for();
  }
  /// A source of the plan of which not all stands.
  [[nodiscard]] std::optional<std::uint32_t> waits_for() const noexcept;
  /// Under the present claim, each chunk counted once.
  [[nodiscard]] std::uint64_t bytes_done() const noexcept { return bytes_done_; }
  [[nodiscard]] std::uint64_t chunks_done() const noexcept { return chunks_done_; }

 private:
  enum class Progress : std::uint8_t { to_do, in_flight, done };

  [[nodiscard]] bool stands(const Chunk& chunk) const {
    return chunk.reach <= stands_[chunk.source];
  }

  std::vector<Chunk> chunks_;
  std::uint64_t window_bytes_max_ = 0;
  std::optional<FetchClaim> claim_;
  std::vector<Route> routes_;
  std::vector<std::uint64_t> stands_;  ///< By source of the plan: of what is read for it.
  std::vector<Progress> progress_;     ///< By chunk.
  std::size_t first_to_do_ = 0;        ///< No chunk before it is to do.
  std::map<std::uint64_t, std::size_t> in_flight_;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t chunks_done_ = 0;
};

}  // namespace weir
