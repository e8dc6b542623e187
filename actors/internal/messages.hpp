#pragma once
// What actors say between processes, as values that CAF can write and read.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/caf.hpp"
#include "actors/roster.hpp"
#include "runtime/digest.hpp"
#include "runtime/manifest.hpp"

namespace weir {

/// A manifest or plan as Cap'n Proto bytes (`runtime/codec.hpp`).
struct Payload {
  std::vector<char> bytes;
};

/// A member's place in this life of the exchange.
struct Seated {
  std::uint64_t seat = 0;
};

/// A trainer shard may write that version into that slot.
struct Acquired {
  std::uint64_t version = 0;
  std::uint32_t slot = 0;
};

/// What a shard prepared.
struct PlanHeld {
  Digest digest;
  std::uint64_t bytes = 0;
};

/// A rollout shard is to read a version. `by_source` has one route for each source of its plan.
struct FetchOrder {
  std::uint64_t seat = 0;
  std::uint64_t lease = 0;
  std::uint64_t version = 0;
  std::uint32_t target_slot = 0;
  std::vector<Route> by_source;
  std::uint32_t peer_slots = 1;
  ShardId peer;
  std::vector<RegionInfo> peer_regions;
  std::vector<std::uint64_t> stands;  ///< As in a `Lease`.
  Duration deadline{};
};

/// More stands of the version that it is reading under that lease.
struct Standing {
  std::uint64_t seat = 0;
  std::uint64_t lease = 0;
  std::vector<std::uint64_t> stands;  ///< As in a `Lease`.
};

/// How a fetch ended: whole, or with a source that failed. What is there is kept.
struct Fetched {
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;   ///< Under this lease, each target byte counted once.
  std::uint64_t chunks = 0;  ///< The same for chunks.
  bool whole = false;
  ShardId failed;   ///< Where not whole: who could not be read.
  std::string why;  ///< And what the transport said.
};

/// What an engine is asked to do: pause, install, resume or verify.
struct EngineOrder {
  std::uint64_t seat = 0;
  std::uint64_t version = 0;
  std::uint32_t slot = 0;
  InFlight in_flight = InFlight::keep;
  Duration deadline{};
};

/// Why the exchange ends: an empty text is an orderly end, else it is an error of that code.
struct Ending {
  std::uint8_t code = 0;
  std::string text;
};

/// Within one process: what a coordinator asks of the ledger.
struct LeaseRequest {
  std::uint64_t version = 0;
  std::uint32_t replica = 0;
  std::uint32_t target_slot = 0;
  std::uint64_t term = 0;
  Duration deadline{};  ///< For the lease to be granted, and then for it to be confirmed.
};

/// Within one process: a replica has switched to a version.
struct Committed {
  std::uint32_t replica = 0;
  std::uint64_t version = 0;
  std::uint32_t slot = 0;
  std::uint64_t term = 0;
  std::uint64_t superseded = 0;  ///< Announcements evicted so far.
  std::uint64_t bytes_moved = 0;
  Duration at{};      ///< On the actor system's clock.
  Duration fetch{};   ///< From the lease to its confirmation.
  Duration paused{};  ///< From the first shard's pause to the last one's resumption.
};

/// Within one process: what a coordinator of that life of the exchange's actors says of its
/// replica.
struct ReplicaNews {
  std::uint64_t life = 0;
  std::uint32_t replica = 0;
  std::uint64_t version = 0;  ///< To resume and to serve.
};

/// Within one process: what the trainer gets.
using SampleBatch = std::vector<Delivered>;

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ShardId& x) {
  return f(caf::meta::type_name("ShardId"), x.side, x.replica, x.rank);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Digest& x) {
  return f(x.high, x.low);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RegionInfo::Ticket& x) {
  return f(caf::meta::type_name("Ticket"), x.transport, x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RegionInfo& x) {
  return f(caf::meta::type_name("RegionInfo"), x.kind, x.bytes, x.tickets);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Route& x) {
  return f(caf::meta::type_name("Route"), x.source, x.slot, x.peer);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SlotReport& x) {
  return f(caf::meta::type_name("SlotReport"), x.state, x.version);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, MemberStatus& x) {
  return f(caf::meta::type_name("MemberStatus"), x.seat, x.slots, x.placement, x.installed,
           x.installed_slot, x.running, x.served);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Payload& x) {
  return f(caf::meta::type_name("Payload"), x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Seated& x) {
  return f(caf::meta::type_name("Seated"), x.seat);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Acquired& x) {
  return f(caf::meta::type_name("Acquired"), x.version, x.slot);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PlanHeld& x) {
  return f(caf::meta::type_name("PlanHeld"), x.digest, x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, FetchOrder& x) {
  return f(caf::meta::type_name("FetchOrder"), x.seat, x.lease, x.version, x.target_slot,
           x.by_source, x.peer_slots, x.peer, x.peer_regions, x.stands, x.deadline);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Standing& x) {
  return f(caf::meta::type_name("Standing"), x.seat, x.lease, x.stands);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Fetched& x) {
  return f(caf::meta::type_name("Fetched"), x.version, x.bytes, x.chunks, x.whole, x.failed, x.why);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, EngineOrder& x) {
  return f(caf::meta::type_name("EngineOrder"), x.seat, x.version, x.slot, x.in_flight, x.deadline);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ending& x) {
  return f(caf::meta::type_name("Ending"), x.code, x.text);
}

}  // namespace weir
