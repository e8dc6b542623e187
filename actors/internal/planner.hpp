#pragma once
// The planner: members join it, and it hands each its part of the plan.

#include <vector>

#include "actors/internal/protocol.hpp"

namespace weir {

/// Whom it tells who is there, at every change.
struct PlannerAudience {
  SupervisorActor supervisor;
  LedgerActor ledger;
  std::vector<CoordinatorActor> coordinators;
};

/// `plan` is answered once all that are waited for hold their parts, or with what went wrong: the
/// planner's error, or the deadline (unless `patient`) with the names of those missing. A member
/// that is refused is told why, and the others go on. `acquire` and `staged` of members go to the
/// ledger. `end` tells all members, and is answered when they have heard of it or `end_deadline`
/// has passed. `options` have passed `check`.
PlannerActor spawn_planner(caf::actor_system& system, const ExchangeOptions& options,
                           const PlannerAudience& audience, bool patient);

}  // namespace weir
