#pragma once
// The connections to one peer, and what is to be read over them. Plain data, which the engine's
// lock guards.

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transports/rdma/internal/device.hpp"
#include "transports/rdma/internal/memory.hpp"
#include "transports/rdma/internal/steps.hpp"
#include "transports/rdma/internal/ticket.hpp"
#include "transports/transport.hpp"

namespace weir::rdma {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

struct Link;
struct Transfer;

/// A peer's region, as its ticket states it.
struct SourceRegion {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> keys;  ///< By endpoint.

  friend bool operator==(const SourceRegion&, const SourceRegion&) noexcept = default;
};

/// What a fetch reads from one peer.
struct Lane {
  Transfer* transfer = nullptr;
  std::shared_ptr<Link> link;
  std::vector<SourceRegion> regions;  ///< By `Copy::source`.
  std::vector<Step> steps;

  // Of an outstanding start:
  std::uint32_t next = 0;            ///< The first step that was never posted.
  std::vector<std::uint32_t> again;  ///< Steps that were lost with a connection.
  bool queued = false;               ///< In the link's queue.

  [[nodiscard]] bool exhausted() const noexcept { return again.empty() && next == steps.size(); }
};

struct Target {
  std::span<std::byte> bytes;
  std::shared_ptr<const Registration> memory;  ///< Null where every step is packed.
};

/// A prepared fetch. `lanes` and `targets` are constant once it is started.
struct Transfer {
  std::vector<Target> targets;
  std::vector<Lane> lanes;
  std::uint64_t copies = 0;

  // The engine's:
  FetchDone done;              ///< Set while a start is outstanding.
  std::size_t in_flight = 0;   ///< Steps posted or being unpacked.
  std::size_t reporting = 0;   ///< Calls of `done` that have not returned.
  std::uint64_t bytes = 0;     ///< Written into targets.
  bool stopped = false;        ///< Cancelled or failed: nothing more is posted.
  std::optional<Error> error;  ///< The first one.
};

/// A step that was handed to a device.
struct Posted {
  Lane* lane = nullptr;
  std::uint32_t step = 0;
  std::optional<std::uint32_t> slot;  ///< Of the bounce buffers.
  bool failed = false;
  bool finished = false;
};

enum class RailState : std::uint8_t {
  idle,        ///< No connection.
  connecting,  ///< The connector is at it.
  up,
  lost,      ///< To be disconnected by the connector.
  draining,  ///< Disconnected; the device still has to give back what was posted.
};

/// One connection to a peer: from one of our devices to one of its endpoints.
struct Rail {
  Link* link = nullptr;
  std::size_t device = 0;
  std::size_t endpoint = 0;

  RailState state = RailState::idle;
  rdma_cm_id* id = nullptr;  ///< The connector's; others post to it while the rail is up.
  std::uint32_t number = 0;  ///< Of the last connection, never used twice; 0 before the first.
  std::deque<Posted> posted;
  std::uint32_t first_sequence = 0;  ///< Of `posted.front()`.
  std::uint32_t reads_in_flight = 0;
  std::uint64_t bytes_in_flight = 0;

  TimePoint deadline{};     ///< Of connecting or draining.
  TimePoint progress_at{};  ///< Of the last completion, or the first post after an idle time.
  TimePoint rested_at{};    ///< Not to be connected before that.
  Duration pause{};         ///< How long it was rested last.
  bool progressed = false;  ///< Something was read since it was connected last.
  bool noted = false;       ///< That it is rested was told.
};

/// A peer's transport, as its tickets name it.
struct Link {
  std::uint64_t instance = 0;
  std::uint32_t pid = 0;
  std::vector<Endpoint> endpoints;  ///< Without keys.
  std::vector<Rail> rails;
  std::deque<Lane*> queue;            ///< Lanes with steps to post, which take turns.
  bool starved = false;               ///< Waits for a bounce buffer.
  Error error;                        ///< Why a rail was lost last, or not connected.
  std::vector<SourceRegion> reached;  ///< Those that a READ has been answered from.

  /// "process 12 at 10.77.0.2", for messages.
  [[nodiscard]] std::string text(const Rail& rail) const {
    return "process " + std::to_string(pid) + " at " + text_of(endpoints[rail.endpoint].address);
  }
};

inline bool has_reached(const Link& link, const SourceRegion& region) {
  return std::find(link.reached.begin(), link.reached.end(), region) != link.reached.end();
}

}  // namespace weir::rdma
