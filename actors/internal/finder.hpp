#pragma once
// How a member reaches its exchange over the network.

#include <cstdint>
#include <string>

#include "actors/internal/protocol.hpp"

namespace weir {

/// Tries until it succeeds or the deadline of the request has passed: members may be started before
/// their exchange, and look for it again when it was restarted. Ends with the shard that it serves
/// (which links to it).
FinderActor spawn_finder(caf::actor_system& system, const std::string& host, std::uint16_t port);

}  // namespace weir
