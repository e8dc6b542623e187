#pragma once
// Staging: live weights are copied, byte for byte or converted, to a slot that readers may read
// while the trainer goes on.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "runtime/conversion.hpp"
#include "runtime/plan.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir {

/// Every byte of region i goes to region i of a slot as it is.
Conversion snapshot_of(const std::vector<Region*>& live);

/// Fills slots from live memory on worker threads, one slot at a time.
/// Threading: `start` from any thread. What is copied must not change until `done`.
class Stager {
 public:
  /// Of the slot's regions, one after another, all that is copied below byte `bytes_there` is
  /// there. It rises from call to call, the last time to all bytes. Called from worker threads, one
  /// call at a time; it must not block, nor call `start`.
  using Progress = std::function<void(std::uint64_t bytes_there)>;
  /// Called exactly once per start, when nothing is written any more: from a worker thread, or, for
  /// `invalid` and `refused`, from within `start`. It may start the next one; it must not destroy
  /// the stager.
  using Done = std::function<void(Result<std::uint64_t> bytes)>;

  /// `conversion` names regions of `live` and, as its targets, regions of one slot. `slots` are the
  /// regions of `slot_count` slots of equal shape, one after another. Workers and regions outlive
  /// the stager.
  Stager(Conversion conversion, std::vector<Region*> live, std::vector<Region*> slots,
         std::uint32_t slot_count, Workers& workers);
  /// Stops what runs and waits until nothing is written and all callbacks have returned. Not from a
  /// task of the workers.
  ~Stager();
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  /// Fills the slot from its first byte on. `progress` may be empty. Errors, told to `done`:
  /// `invalid` (no such slot; a conversion or slots that the constructor's regions do not have room
  /// for), `refused` (another start is running), `unavailable` (the stager was destroyed).
  void start(std::uint32_t slot, Progress progress, Done done);

 private:
  /// Blocks [begin, end) of the recoding of that number.
  struct Blocks {
    std::size_t recoding = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Part {
    std::variant<Copy, Blocks> work;
    std::uint64_t begin = 0;  ///< Of the slot's regions, one after another, it writes none before.
    std::uint64_t bytes = 0;  ///< That it writes.
  };
  /// Parts in shares of about equal bytes.
  struct Share {
    std::size_t end = 0;      ///< The first part that is not in it.
    std::uint64_t begin = 0;  ///< No part from here on writes to any byte of the slot before.
  };

  [[nodiscard]] Result<void> check_all() const;
  void cut();
  void cut_blocks(std::size_t number, const std::vector<std::uint64_t>& region_begins);
  void carry_out(const Part& part, std::span<Region* const> targets) const noexcept;
  [[nodiscard]] std::size_t regions_in_slot() const noexcept;
  void work(std::uint32_t slot);
  void finish();

  Conversion conversion_;
  std::vector<Region*> live_;
  std::vector<Region*> slots_;
  std::uint32_t slot_count_;
  Workers& workers_;
  Result<void> checked_;
  std::vector<Part> parts_;  ///< By the first byte that they write.
  std::vector<Share> shares_;
  std::uint64_t bytes_ = 0;       ///< That are copied.
  std::uint64_t slot_bytes_ = 0;  ///< Of one slot, copied or not.

  std::mutex progress_mutex_;  ///< Guards the next three, and is held while progress is told.
  std::uint64_t bytes_done_ = 0;
  std::vector<bool> shares_done_;
  std::size_t first_undone_ = 0;  ///< All shares before it are done.

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
