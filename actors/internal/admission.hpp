#pragma once
// The admission actor: samples go out to replicas and come back to the trainer through it.

#include <memory>

#include "actors/internal/protocol.hpp"
#include "actors/sampling_state.hpp"

namespace weir {

/// Answers the owner's `Sampling` calls by the decisions of `state`, in the order in which they and
/// the coordinators' words come in. The supervisor tells it of a version before it tells any
/// coordinator, and of a life before it starts that life's coordinators; coordinators speak to it
/// directly, and before they ask shards to pause or resume. So whatever an engine does about an
/// order is told here after the order itself.
///
/// Draining holds no pause from here: nothing in a switch waits for this actor or for the owner. It
/// stops assigning samples when the pause is ordered, and the engine's pause hook, which is told
/// `InFlight::drain`, ends when what the engine had begun is generated, within `pause_deadline`.
/// The other way (the coordinator asks here, and waits for the last `finish`) would let an owner
/// that is slow, or whose queue is full, keep a replica from the version that the queue waits for.
///
/// `state` is the supervisor's, which gives it to this actor's successor should this one fail: no
/// sample is lost with it. Only whoever waits is answered `unavailable`, and forgotten. When other
/// actors of the exchange fail, this one goes on. With the exchange's process the owner dies too,
/// and with it all samples.
AdmissionActor spawn_admission(caf::actor_system& system,
                               const std::shared_ptr<SamplingState>& state);

}  // namespace weir
