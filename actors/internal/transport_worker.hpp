#pragma once
// A transport as an actor: the thin shell that turns requests into fetches and callbacks into
// replies.

#include <vector>

#include "actors/internal/protocol.hpp"
#include "runtime/region.hpp"
#include "transports/transport.hpp"

namespace weir {

/// Prepares the one part of the plan that it is given, then fetches it as often as asked, once at a
/// time. Transport and regions outlive the actor. Its end cancels a running fetch and waits for it,
/// so that nothing is written after.
TransportWorkerActor spawn_transport_worker(caf::actor_system& system, Transport& transport,
                                            const std::vector<Region*>& targets);

}  // namespace weir
