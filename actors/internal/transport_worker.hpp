#pragma once
// A transport as an actor: the thin shell that turns requests into fetches of chunks, and
// callbacks into replies.

#include <cstdint>
#include <vector>

#include "actors/internal/protocol.hpp"
#include "runtime/buggify.hpp"
#include "runtime/region.hpp"
#include "transports/transport.hpp"

namespace weir {

struct TransportWorkerOptions {
  /// No more bytes than this are in flight at once, a single element apart. Half of it is a chunk.
  std::uint64_t window_bytes_max = std::uint64_t{256} << 20;
  /// The targets are so many slots: sets of regions of equal sizes, one after another.
  std::uint32_t slots = 1;
  Buggify buggify = {};  ///< Empty but in simulations.
};

/// Takes the one part of the plan that it is given, then fetches it as often as asked, one fetch at
/// a time. Bindings to memory are made with the part, for the sources that the plan names, else
/// when a chunk is first read along a route; they are kept for the last few routes of each source.
///
/// `prepare` answers the part's target bytes. Errors: `invalid` (a copy outside its regions, not
/// one part), `refused` (a fetch is running).
/// Of a version that is being written, `fetch` reads what stands, as the order and then `stand`
/// say, holding no credit for the rest; it ends when all sources stand whole. A source that writes
/// nothing for 5 s while the fetch waits for it has failed.
/// `fetch` is answered when nothing is written any more, whole or with the first source that
/// failed. Errors: `invalid` (routes or slots that are not there), `refused` (nothing is prepared,
/// another fetch is running), `timeout` (the order's deadline), `unavailable` (cancelled). What is
/// there then still counts when the same order comes again, until another part is prepared.
///
/// Transport and targets outlive the actor. Its end cancels what is in flight and waits for it, so
/// that nothing is written after; while a fetch runs, only an exit message ends it.
TransportWorkerActor spawn_transport_worker(caf::actor_system& system, Transport& transport,
                                            const std::vector<Region*>& targets,
                                            const TransportWorkerOptions& options);

}  // namespace weir
