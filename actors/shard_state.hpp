#pragma once
// What a member shard may be asked for, and when: the exchange is checked by its members too.

#include <cstdint>
#include <string>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The decisions of a trainer shard: it takes its plan once, then updates to rising versions, one
/// at a time. A plain value without clock or messages. Every error leaves it as it was.
class TrainerState {
 public:
  explicit TrainerState(const ShardId& shard) : shard_(shard) {}

  /// Errors: `refused` (a second plan), `invalid` (this shard is not among its sources).
  Result<void> accept(const Plan& plan);
  /// Errors (`refused`): no plan yet, an update is running, `version` is not greater than the last.
  Result<void> begin_update(std::uint64_t version);
  /// The running update ended, well or not.
  void end_update() noexcept { updating_ = false; }

 private:
  ShardId shard_;
  bool planned_ = false;
  bool updating_ = false;
  std::uint64_t last_ = 0;
};

/// The decisions of a rollout shard: it takes its part of the plan once; then, for rising versions,
/// fetches, commits what it has fetched whole, and verifies what it has committed.
/// A plain value without clock or messages. Every error leaves it as it was.
class RolloutState {
 public:
  explicit RolloutState(const ShardId& shard) : shard_(shard) {}

  /// Errors: `refused` (a second plan), `invalid` (not exactly one part, for this shard).
  Result<void> accept(const Plan& plan);
  /// The part has been bound to memory: fetches may begin.
  void prepared() noexcept { phase_ = Phase::idle; }
  /// Errors (`refused`): not prepared, something else is running, `version` is not greater than the
  /// last one fetched.
  Result<void> begin_fetch(std::uint64_t version);
  /// The running fetch ended. After a failed one the target bytes are undefined, and nothing can be
  /// committed until another one succeeds.
  void end_fetch(bool whole) noexcept { phase_ = whole ? Phase::fetched : Phase::idle; }
  /// Errors (`refused`): `version` is not what was fetched.
  Result<void> commit(std::uint64_t version);
  /// Errors (`refused`): `version` is not what was committed, or is being verified.
  Result<void> begin_verify(std::uint64_t version);
  void end_verify() noexcept { phase_ = Phase::committed; }

  /// 0 before the first commit.
  [[nodiscard]] std::uint64_t serving() const noexcept { return serving_; }

 private:
  enum class Phase : std::uint8_t {
    joining,
    preparing,
    idle,
    fetching,
    fetched,
    committed,
    verifying
  };

  ShardId shard_;
  Phase phase_ = Phase::joining;
  std::uint64_t fetching_ = 0;  ///< The newest version whose fetch was begun.
  std::uint64_t serving_ = 0;
};

}  // namespace weir
