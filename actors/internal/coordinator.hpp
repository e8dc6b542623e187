#pragma once
// The replica coordinator: brings one rollout replica to a version, all shards or none.

#include <vector>

#include "actors/internal/protocol.hpp"

namespace weir {

/// `advance` takes a lease, has every shard fetch, then every shard commit, ends the lease, and is
/// answered. `verify` is answered with the time that the slowest shard took. What goes wrong goes
/// to the supervisor instead, and leaves the request open.
/// `shards` are all those of replica `replica`, by rank.
CoordinatorActor spawn_coordinator(caf::actor_system& system, const SupervisorActor& supervisor,
                                   const LedgerActor& ledger, std::uint32_t replica,
                                   const std::vector<Member>& shards);

}  // namespace weir
