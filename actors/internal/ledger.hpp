#pragma once
// The ledger: which versions there are, where they lie, who may write and who may read.

#include "actors/internal/protocol.hpp"

namespace weir {

/// `acquire` is answered when the trainer shard may write, after its deadline at the cost of those
/// who still read. `lease` is answered when the reader may read; a lease that is neither confirmed
/// nor released within its deadline is taken away. What it has to tell (versions that are READY,
/// leases that were taken away) goes to the supervisor.
LedgerActor spawn_ledger(caf::actor_system& system, const ExchangeOptions& options,
                         const SupervisorActor& supervisor);

}  // namespace weir
