#pragma once
// The planner: members join it, and it hands each its part of the plan.

#include "actors/internal/protocol.hpp"

namespace weir {

/// `plan` is answered once all members hold their parts, or with what went wrong: the planner's
/// error, a member's, a death, or the deadline with the names of those missing. A member that is
/// refused is told why, and the others go on. `end` tells all members, and is answered when they
/// have heard of it or `end_deadline` has passed. `options` have passed `check`.
PlannerActor spawn_planner(caf::actor_system& system, const ExchangeOptions& options);

}  // namespace weir
