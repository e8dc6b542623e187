#pragma once
// A stand-in for an engine that trains: steps of a given time, each of which makes a new version
// and publishes it.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/member.hpp"
#include "adapters/cli/async_board.hpp"
#include "adapters/cli/async_shard.hpp"
#include "adapters/cli/shard_memory.hpp"
#include "adapters/cli/stop_switch.hpp"
#include "runtime/clock.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"
#include "runtime/staging.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {

/// All of them outlive the training, but for the values.
struct TrainingParts {
  const ShardMemory& published;  ///< What belongs into a slot.
  std::vector<Region*> slots;
  const ShardMemory* kept = nullptr;  ///< What belongs into the live weights; null where pinned.
  Region* live = nullptr;             ///< Null where pinned: the slot is.
  AsyncBoard& board;
  const Clock& clock;
  Workers& workers;
};

/// Threading: `run` from one thread.
class Training {
 public:
  /// Errors: live weights that can't be converted to what is published.
  static Result<std::unique_ptr<Training>> make(const AsyncShard& shard,
                                                const TrainingParts& parts);

  /// Trains until `stop` or until the member has ended. Errors: what can't be helped by going on
  /// with the next version.
  Result<void> run(Member& member, StopSwitch& stop);

 private:
  Training(const AsyncShard& shard, const TrainingParts& parts)
      : shard_(shard), parts_(parts), record_(parts.board.record(shard.base.shard)) {}

  /// Forward and backward, at whose end all ranks of the replica meet, as they do in a reduction of
  /// gradients: none begins an update before all have made the one before it. Ranks that are away
  /// are not waited for long. False when it was stopped.
  bool step(std::uint64_t version, StopSwitch& stop);
  /// The optimizer's update, where the live weights are not the slot.
  Result<void> update(std::uint64_t version);
  Result<void> fill(std::uint64_t version, std::uint32_t slot, Member& member);

  const AsyncShard shard_;
  const TrainingParts parts_;
  ShardRecord& record_;
  std::unique_ptr<Stager> stager_;  ///< Null where pinned.
};

}  // namespace weir::cli
