#pragma once
// The replica coordinator: brings one rollout replica to a version, all shards or none.

#include "actors/internal/protocol.hpp"

namespace weir {

/// Whom a coordinator speaks to, and in which life of the exchange's actors.
struct CoordinatorPeers {
  SupervisorActor supervisor;
  LedgerActor ledger;
  AdmissionActor admission;
  std::uint64_t life = 0;
};

/// Follows what is announced, by the decisions of `ReplicaState`. What it has to tell (the replica
/// has switched, is out of service, a shard can't be counted on) goes to the supervisor; admission
/// is told of pauses and resumptions before the shards are. `verify` is answered with the time that
/// the slowest shard took.
CoordinatorActor spawn_coordinator(caf::actor_system& system, const ExchangeOptions& options,
                                   const CoordinatorPeers& peers, std::uint32_t replica);

}  // namespace weir
