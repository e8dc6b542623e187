#pragma once
// The supervisor: runs planner, ledger, coordinators and admission, and answers the exchange's
// owner.

#include "actors/internal/protocol.hpp"

namespace weir {

/// Members come in by it: `join`, `acquire` and `staged` go to the planner of the moment. When one
/// of its actors ends, all are started anew without memory, and the members are asked to join
/// again; only admission goes on, or, should it be the one, its successor with what it knew. The
/// owner's words on samples go to admission. `plan` is answered when all that are waited for hold
/// their parts; `publish` when every replica has committed and verified the version, or with the
/// first trouble. `fail` ends the exchange: every open and later request is answered with it, and
/// all members are told. `end` tells the members that have not heard of an end, and ends the
/// exchange's actors. `options` have passed `check`.
SupervisorActor spawn_supervisor(caf::actor_system& system, const ExchangeOptions& options);

}  // namespace weir
