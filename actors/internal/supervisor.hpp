#pragma once
// The supervisor: runs planner, ledger and coordinators, and answers the exchange's owner.

#include "actors/internal/protocol.hpp"

namespace weir {

/// `plan` is answered when all members hold their parts; `publish` when every replica has committed
/// and verified the version. The first `fail` (a member's trouble, or an abort) ends the exchange:
/// every open and later request is answered with it, and all members are told. `end` tells the
/// members that have not heard of an end, and ends the exchange's actors.
SupervisorActor spawn_supervisor(caf::actor_system& system, const ExchangeOptions& options,
                                 const PlannerActor& planner);

}  // namespace weir
