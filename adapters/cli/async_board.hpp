#pragma once
// What the processes of an asynchronous demo count, in memory that all of them share: it is still
// there when one of them is killed, and tells each what its peers serve.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "adapters/cli/demo_scene.hpp"
#include "runtime/manifest.hpp"
#include "runtime/mapping.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

/// Atomics in shared memory have to work without a lock.
using Count = std::atomic<std::uint64_t>;
static_assert(Count::is_always_lock_free);

/// Durations of one kind. Written by one thread.
struct Durations {
  Count count{0};
  Count total{0};  ///< Nanoseconds.
  Count longest{0};

  void add(std::chrono::nanoseconds duration) noexcept;
};

/// Decode steps that are this many versions behind, or more, are counted together.
inline constexpr std::size_t behind_most = 7;

/// When a trainer began to write a version. Kept for the last few.
struct Beginning {
  Count version{0};
  Count at{0};  ///< Nanoseconds of the host's clock.
};
inline constexpr std::size_t beginnings_kept = 8;

/// One shard's, over all the processes that ever were that shard. Written by its process alone.
struct ShardRecord {
  Count life{0};  ///< Of the process that has last staged or served a version: 1 for the first.
  /// Trainers: the newest version that stands in a slot. Rollouts: the newest that was ever served.
  Count newest{0};
  /// Rollouts: the version that is served just now; 0 while paused.
  Count serving{0};
  // Trainers:
  Durations waited;  ///< In `begin_update`.
  Durations copied;  ///< From live weights into a slot.
  Beginning begun[beginnings_kept] = {};
  // Rollouts:
  Durations paused;  ///< From one decode step's end to the next one's begin.
  Durations
      brought;  ///< From the first trainer's beginning of a version to its first service here.
  Count steps{0};
  Count steps_behind[behind_most + 1] = {};  ///< By published minus served version.
  Count fetch_nanoseconds{0};                ///< With bytes of a version under way.
  Count overlap_nanoseconds{0};              ///< Of those, with generation going on.
  Count compared{0};  ///< Times that live bytes were compared with the reference.
  Count compared_bytes{0};
};

/// The shared memory. Threading: the records are; the object is immutable after it is made.
class AsyncBoard {
 public:
  /// The parent's. Errors: those of `Region::allocate`.
  static Result<std::unique_ptr<AsyncBoard>> make(const Scene& scene);
  /// A child's, which was handed down the descriptor. Errors: those of `Mapping::map`; `invalid`.
  static Result<std::unique_ptr<AsyncBoard>> open(int descriptor);

  /// To be handed down to children; owned by the board.
  [[nodiscard]] int descriptor() const noexcept { return region_->descriptor(); }
  [[nodiscard]] std::span<ShardRecord> records() noexcept { return records_; }
  /// Number of a shard's record: trainers first, replica by replica.
  [[nodiscard]] std::size_t index_of(const ShardId& shard) const noexcept;
  [[nodiscard]] ShardRecord& record(const ShardId& shard) noexcept {
    return records_[index_of(shard)];
  }
  /// All shards of one replica.
  [[nodiscard]] std::span<ShardRecord> replica(Side side, std::uint32_t replica) noexcept;
  /// The newest version that all shards of a trainer replica have staged.
  [[nodiscard]] std::uint64_t published() const noexcept;
  /// When the first trainer began to write the version, if that is still known.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> begun_at(
      std::uint64_t version) const noexcept;

 private:
  struct Shape {
    std::uint32_t trainer_replicas = 0;
    std::uint32_t trainer_ranks = 0;
    std::uint32_t rollout_replicas = 0;
    std::uint32_t rollout_ranks = 0;

    [[nodiscard]] std::size_t trainers() const noexcept {
      return std::size_t{trainer_replicas} * trainer_ranks;
    }
    [[nodiscard]] std::size_t shards() const noexcept {
      return trainers() + std::size_t{rollout_replicas} * rollout_ranks;
    }
  };
  /// Records begin on a cache line of their own.
  static constexpr std::size_t records_offset = 64;

  AsyncBoard() = default;

  std::unique_ptr<Region> region_;    ///< The parent's.
  std::unique_ptr<Mapping> mapping_;  ///< A child's.
  Shape shape_;
  std::span<ShardRecord> records_;
};

}  // namespace weir::cli
