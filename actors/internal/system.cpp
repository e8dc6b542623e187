#include "actors/internal/system.hpp"

namespace weir {

ActorSystemConfig::ActorSystemConfig() {
  add_message_type<Payload>("weir::Payload");
  add_message_type<MemberStatus>("weir::MemberStatus");
  add_message_type<Seated>("weir::Seated");
  add_message_type<Acquired>("weir::Acquired");
  add_message_type<PlanHeld>("weir::PlanHeld");
  add_message_type<FetchOrder>("weir::FetchOrder");
  add_message_type<Standing>("weir::Standing");
  add_message_type<Fetched>("weir::Fetched");
  add_message_type<EngineOrder>("weir::EngineOrder");
  add_message_type<Ending>("weir::Ending");
}

ActorSystemConfig& ActorSystemConfig::use_network(Duration silence_max) {
  load<caf::io::middleman>();
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", 2);
  // Unlimited by default, which lets an actor that sends to itself starve the others.
  set("scheduler.max-throughput", 100);
  // Messages are small: handing them to more threads costs three times what it saves.
  set("middleman.workers", 0);
  set("middleman.heartbeat-interval", caf::timespan{heartbeat_interval});
  set("middleman.connection-timeout", caf::timespan{silence_max});
  // Peers that do not speak this protocol are turned away in the handshake.
  set("middleman.app-identifiers", std::vector<std::string>{"weir-3"});
  return *this;
}

ActorSystemConfig& ActorSystemConfig::use_virtual_time() {
  set("scheduler.policy", caf::atom("testing"));
  return *this;
}

Result<Payload> to_payload(const std::string& encoded, const std::string& what) {
  if (encoded.size() > payload_bytes_max) {
    return failure(ErrorCode::refused, what + " takes " + std::to_string(encoded.size()) +
                                           " bytes, more than the limit of " +
                                           std::to_string(payload_bytes_max) +
                                           " in one message: use more ranks or fewer pieces");
  }
  return Payload{{encoded.begin(), encoded.end()}};
}

}  // namespace weir
