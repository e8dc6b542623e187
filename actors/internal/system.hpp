#pragma once
// How CAF is set up, in code: no command line and no file of CAF's own is read.

#include "actors/internal/protocol.hpp"

namespace weir {

/// The settings that exchanges and members share. `testing` replaces threads by CAF's testing
/// scheduler, in whose virtual time one thread runs everything, and leaves the network out.
class ActorSystemConfig : public caf::actor_system_config {
 public:
  explicit ActorSystemConfig(bool testing);
};

/// A manifest or plan in its wire form. Errors: `refused` when it is over the limit.
Result<Payload> to_payload(const std::string& encoded, const std::string& what);

}  // namespace weir
