#pragma once
// Who is there just now and what each holds: what ledger and coordinators decide by.

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Where a rollout shard's fetches go while its engine generates.
enum class Placement : std::uint8_t {
  in_place,       ///< Into the live weights: one slot; the engine is paused while it is written.
  second_buffer,  ///< Into the slot that is not live: two slots, which change roles.
  staging,        ///< Into one slot that is never live; `install` copies it into the live weights.
};

/// What lies in one of a trainer shard's slots.
enum class SlotState : std::uint8_t { empty, writing, whole };
struct SlotReport {
  SlotState state = SlotState::empty;
  std::uint64_t version = 0;

  friend bool operator==(const SlotReport&, const SlotReport&) = default;
};

/// What a member says of itself when it joins, so that an exchange without memory knows all that
/// it has to know. A peer's word: checked by `check`.
struct MemberStatus {
  std::uint64_t seat = 0;  ///< Its last one; 0 for a process that never had one.
  // Trainer shards:
  std::vector<SlotReport> slots;
  // Rollout shards:
  Placement placement = Placement::in_place;
  std::uint64_t installed = 0;  ///< The version in its live weights; 0 when they are not whole.
  std::uint32_t installed_slot = 0;
  bool running = false;      ///< Its engine may generate.
  std::uint64_t served = 0;  ///< The newest version that its engine ever generated with.
};

/// No exchange lives long enough to give one; a member that says so would make the numbers wrap.
inline constexpr std::uint64_t seat_max = std::uint64_t{1} << 62;

/// Errors (`invalid`) say what can't be: a seat above `seat_max`, slots that the manifest does not
/// have, an installed version in a slot beyond it, a placement that does not fit the number of
/// slots.
Result<void> check(const MemberStatus& status, const Manifest& manifest);

/// A member that holds its part of the plan.
struct MemberInfo {
  ShardId shard;
  std::uint64_t seat = 0;          ///< Given at every join; never used again.
  MemberStatus status;             ///< As of then.
  std::uint64_t bytes_needed = 0;  ///< Rollout shards: what a fetch writes.
  std::uint32_t slots = 1;
  std::vector<RegionInfo> regions;  ///< Of all slots: slot s has those from s·size/slots on.
};

/// One side's replica.
struct ReplicaId {
  Side side = Side::trainer;
  std::uint32_t replica = 0;

  friend bool operator==(const ReplicaId&, const ReplicaId&) noexcept = default;
  friend auto operator<=>(const ReplicaId&, const ReplicaId&) noexcept = default;
};

/// The members just now, as a value. Copied at every change, never changed.
struct Roster {
  std::uint32_t trainer_ranks = 1;
  std::uint32_t rollout_ranks = 1;
  std::vector<ShardId> sources;  ///< In the order of the plan's sources.
  std::map<ShardId, MemberInfo> members;
  /// Replicas with equal numbers have equal manifests, so that a shard of the one can stand in for
  /// the shard of the same rank of the other.
  std::map<ReplicaId, std::uint32_t> patterns;

  [[nodiscard]] const MemberInfo* find(const ShardId& shard) const;
  [[nodiscard]] std::uint32_t ranks(Side side) const noexcept {
    return side == Side::trainer ? trainer_ranks : rollout_ranks;
  }
  /// Whether all its shards are there.
  [[nodiscard]] bool whole(const ReplicaId& replica) const;
  /// The newest seat of its shards; 0 when none is there. Whatever was said of a replica under
  /// another term was said of other members.
  [[nodiscard]] std::uint64_t term(const ReplicaId& replica) const;
};

/// The shards of a replica that together hold a version, each in that slot.
struct Holder {
  Side side = Side::trainer;
  std::uint32_t replica = 0;
  std::uint32_t slot = 0;

  friend bool operator==(const Holder&, const Holder&) noexcept = default;
  friend auto operator<=>(const Holder&, const Holder&) noexcept = default;
};

std::string text_of(const Holder& holder);

/// That much of a slot of any size.
inline constexpr std::uint64_t everything = ~std::uint64_t{0};

/// A claim on a version: its bytes stay as they are in `holders` until it ends.
struct Lease {
  std::uint64_t number = 0;  ///< Never used again.
  std::uint64_t version = 0;
  std::vector<Holder> holders;  ///< Trainers first.
  /// Where it began before the version was READY: by source of the plan, so many bytes of the
  /// slot's regions, one after another, are there; `everything` once all are. Else empty: all are.
  std::vector<std::uint64_t> stands = {};
};

/// From where a rollout shard reads what its plan has from one source.
struct Route {
  std::uint32_t source = 0;  ///< The plan's source of that number, unless there is a peer.
  std::uint32_t slot = 0;
  bool peer = false;  ///< From `Routes::peer`, at the offsets of its own memory.

  friend bool operator==(const Route&, const Route&) = default;
};
struct Routes {
  std::vector<Route> by_source;  ///< For each of the plan's sources.
  ShardId peer;                  ///< The same rank of a replica that has committed the version.
};

/// How the shard `target` reads a leased version: each source itself where it is among the holders,
/// else the same rank of a trainer replica of equal pattern, else the same rank of a rollout
/// replica of equal pattern. Errors: `unavailable` (names a source that nobody stands in for).
Result<Routes> routes_for(const Roster& roster, const Lease& lease, const ShardId& target);

}  // namespace weir
