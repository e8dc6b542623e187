#pragma once
// Member shards: the actors that speak for a trainer's or a rollout's process.

#include <functional>

#include "actors/internal/protocol.hpp"
#include "runtime/buggify.hpp"

namespace weir {

/// What a shard actor needs to live.
struct ShardConfig {
  ShardId shard;
  std::uint32_t slots = 1;
  Placement placement = Placement::in_place;  ///< Rollout shards only.
  Payload manifest;
  FinderActor finder;
  EngineActor engine;
  TransportWorkerActor transport;  ///< Rollout shards only.
  Duration connect_deadline{};
  Duration reconnect_deadline{};
  Buggify buggify;  ///< Empty but in simulations.
  /// Called once, on an actor's thread, when the shard has ended: with success when the exchange
  /// ended in good order, else with the reason.
  std::function<void(Result<void>)> on_end;
};

/// Joins at once, then does what the exchange asks until it ends. A shard whose exchange is lost
/// stops what it was ordered, and looks for the exchange again. It ends when it is refused, when
/// the exchange says so or is not found again, and takes its engine and transport actors with it.
TrainerHostActor spawn_trainer(caf::actor_system& system, const ShardConfig& config);
RolloutActor spawn_rollout(caf::actor_system& system, const ShardConfig& config);

}  // namespace weir
