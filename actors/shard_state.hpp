#pragma once
// What a member shard may be asked for, and when: the exchange is checked by its members too.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/roster.hpp"
#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The decisions of a trainer shard: which version lies in which of its slots. A plain value
/// without clock or messages. Every error leaves it as it was.
class TrainerState {
 public:
  TrainerState(const ShardId& shard, std::uint32_t slots);

  void seated(std::uint64_t seat) noexcept { status_.seat = seat; }
  /// Errors: `refused` (for another seat), `invalid` (this shard is not among its sources).
  Result<void> accept(std::uint64_t seat, const Plan& plan) const;
  /// Whether an order is for this member as it is now. Errors: `refused`.
  Result<void> obey(std::uint64_t seat) const;
  /// The host program wants to write `version`. Errors (`invalid`): not above all that it has.
  Result<void> wants(std::uint64_t version) const;
  /// It may. Errors (`invalid`): a slot that it does not have.
  Result<void> acquired(std::uint64_t version, std::uint32_t slot);
  [[nodiscard]] bool writes(std::uint64_t version) const;
  /// The bytes of `version` stand. Errors (`refused`): it did not begin to write them.
  Result<void> staged(std::uint64_t version);

  [[nodiscard]] const MemberStatus& status() const noexcept { return status_; }

 private:
  ShardId shard_;
  MemberStatus status_;
};

/// The decisions of a rollout shard: it fetches into a slot, installs what it has fetched whole,
/// and runs only with what is installed. A plain value without clock or messages. Every error
/// leaves it as it was.
class RolloutState {
 public:
  RolloutState(const ShardId& shard, Placement placement);

  void seated(std::uint64_t seat) noexcept { status_.seat = seat; }
  /// Errors: `refused` (for another seat), `invalid` (not exactly one part, for this shard).
  Result<void> accept(std::uint64_t seat, const Plan& plan) const;
  /// Whether an order is for this member as it is now. Errors: `refused`.
  Result<void> obey(std::uint64_t seat) const;
  /// Errors: `refused` (a fetch or an engine order is running; it would write what the engine
  /// reads), `invalid` (no such slot).
  Result<void> begin_fetch(std::uint64_t version, std::uint32_t slot);
  void end_fetch(bool whole);
  /// Errors (`refused`): an engine order is running.
  Result<void> begin_pause();
  /// Errors (`refused`): it runs, a fetch is running, or that version does not lie whole in that
  /// slot.
  Result<void> begin_install(std::uint64_t version, std::uint32_t slot);
  /// Errors (`refused`): another version is installed, or an engine order is running.
  Result<void> begin_resume(std::uint64_t version);
  /// The running engine order is done, well or not. After a failed installation the live weights
  /// are not whole.
  void end_order(bool well);

  [[nodiscard]] bool fetching() const noexcept { return fetching_; }
  [[nodiscard]] bool ordered() const noexcept { return order_ != Order::none; }
  [[nodiscard]] const MemberStatus& status() const noexcept { return status_; }

 private:
  enum class Order : std::uint8_t { none, pause, install, resume };

  [[nodiscard]] bool is_live(std::uint32_t slot) const noexcept;

  ShardId shard_;
  MemberStatus status_;
  std::vector<std::uint64_t> contents_;  ///< Whole versions by slot; 0 for none.
  bool fetching_ = false;
  Order order_ = Order::none;
  std::uint64_t version_ = 0;  ///< That the fetch or order is about.
  std::uint32_t slot_ = 0;
};

}  // namespace weir
