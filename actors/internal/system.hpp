#pragma once
// How CAF is set up, in code: no command line and no file of CAF's own is read.

#include "actors/internal/protocol.hpp"

namespace weir {

/// The settings that exchanges and members share, made before the actor system.
class ActorSystemConfig : public caf::actor_system_config {
 public:
  ActorSystemConfig();

  /// Real threads and sockets. A peer without a sign of life for `silence_max` is dead.
  ActorSystemConfig& use_network(Duration silence_max);
  /// CAF's testing scheduler, in whose virtual time one thread runs everything. No network.
  ActorSystemConfig& use_virtual_time();
};

/// A manifest or plan in its wire form. Errors: `refused` when it is over the limit.
Result<Payload> to_payload(const std::string& encoded, const std::string& what);

}  // namespace weir
