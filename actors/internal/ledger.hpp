#pragma once
// The ledger: has trainer shards stage versions, and grants leases on whole ones.

#include <vector>

#include "actors/internal/protocol.hpp"

namespace weir {

/// `publish` is answered when the version is READY, or with why it was refused. What goes wrong
/// with a trainer shard goes to the supervisor instead, and leaves the request open.
LedgerActor spawn_ledger(caf::actor_system& system, const SupervisorActor& supervisor,
                         const std::vector<Member>& trainers);

}  // namespace weir
