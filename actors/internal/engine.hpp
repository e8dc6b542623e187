#pragma once
// The host program's hooks as an actor: requests go in, and `done` comes back as a reply.

#include "actors/internal/protocol.hpp"
#include "actors/member.hpp"

namespace weir {

/// Replies `version` when the hook says so, or the hook's error. Ends with the shard it is linked
/// to; hooks that are still at work then may call `done` whenever they like.
EngineActor spawn_engine(caf::actor_system& system, const MemberHooks& hooks);

}  // namespace weir
