#pragma once
// Staging: live weights are copied, byte for byte or converted, to a slot that readers may read
// while the trainer goes on.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir {

/// A copy of every byte of region i to region i of a slot.
std::vector<Copy> snapshot_copies(const std::vector<Region*>& live);

/// A copy of every piece of `live` to the piece of the same number of `slot`, which has the same
/// box of the same tensor, converted where the types differ. Pieces of `slot` must not overlap.
/// Errors (`invalid`, naming the tensor): other pieces, types that can't be converted, a manifest
/// that does not pass `check`.
Result<std::vector<Copy>> convert_copies(const Manifest& live, const Manifest& slot);

/// Fills slots from live memory on worker threads, one slot at a time.
/// Threading: `start` from any thread. What is copied must not change until `done`.
class Stager {
 public:
  /// Bytes of the slot that are there, rising from call to call, the last time all of them. Called
  /// from worker threads, one call at a time; it must not block, nor call `start`.
  using Progress = std::function<void(std::uint64_t bytes_done)>;
  /// Called exactly once per start, when nothing is written any more: from a worker thread, or, for
  /// `invalid` and `refused`, from within `start`. It may start the next one; it must not destroy
  /// the stager.
  using Done = std::function<void(Result<std::uint64_t> bytes)>;

  /// `copies` name regions of `live` and, as their targets, regions of one slot; which source of a
  /// plan they are from does not count. `slots` are the regions of `slot_count` slots of equal
  /// shape, one after another. Workers and regions outlive the stager.
  Stager(const std::vector<Copy>& copies, std::vector<Region*> live, std::vector<Region*> slots,
         std::uint32_t slot_count, Workers& workers);
  /// Stops what runs and waits until nothing is written and all callbacks have returned. Not from a
  /// task of the workers.
  ~Stager();
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  /// Fills the slot. `progress` may be empty. Errors, told to `done`: `invalid` (no such slot;
  /// copies or slots that the constructor's regions do not have room for), `refused` (another start
  /// is running), `unavailable` (the stager was destroyed).
  void start(std::uint32_t slot, Progress progress, Done done);

 private:
  [[nodiscard]] Result<void> check_all(const std::vector<Copy>& copies) const;
  void cut(const std::vector<Copy>& copies);
  [[nodiscard]] std::size_t regions_in_slot() const noexcept;
  void work(std::uint32_t slot);
  void finish();

  std::vector<Region*> live_;
  std::vector<Region*> slots_;
  std::uint32_t slot_count_;
  Workers& workers_;
  Result<void> checked_;
  std::vector<Copy> parts_;
  std::vector<std::size_t> share_ends_;  ///< Parts in shares of about equal bytes.
  std::uint64_t bytes_ = 0;              ///< Of one slot.

  std::mutex progress_mutex_;  ///< Guards the next one, and is held while progress is told.
  std::uint64_t bytes_done_ = 0;

  std::mutex mutex_;  ///< Guards all that follows. Never taken with the other.
  std::condition_variable returned_;
  Progress progress_;  ///< Changes only while nothing runs.
  Done done_;
  std::size_t next_share_ = 0;
  std::size_t lanes_ = 0;       ///< Tasks of the running start that have not ended; 0: none runs.
  std::size_t starts_out_ = 0;  ///< Starts whose `done` has not returned.
  bool ending_ = false;
};

}  // namespace weir
