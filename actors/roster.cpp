#include "actors/roster.hpp"

#include <algorithm>

namespace weir {

Result<void> check(const MemberStatus& status, const Manifest& manifest) {
  const auto refuse = [&manifest](const std::string& why) {
    return failure(ErrorCode::invalid, text_of(manifest.shard) + " " + why);
  };
  if (status.seat > seat_max) return refuse("reports a seat that no exchange can have given");
  if (manifest.shard.side == Side::trainer) {
    if (status.slots.size() > manifest.slots) {
      return refuse("reports on " + std::to_string(status.slots.size()) + " slots, but has " +
                    std::to_string(manifest.slots));
    }
    for (const SlotReport& slot : status.slots) {
      if (slot.state > SlotState::whole) return refuse("reports a slot in no known state");
      if ((slot.state == SlotState::empty) != (slot.version == 0)) {
        return refuse("reports a slot with and without a version");
      }
    }
    return {};
  }
  if (status.placement > Placement::staging) return refuse("reports no known placement");
  const std::uint32_t slots = status.placement == Placement::second_buffer ? 2 : 1;
  if (manifest.slots != slots) {
    return refuse("has " + std::to_string(manifest.slots) + " slots, but its placement needs " +
                  std::to_string(slots));
  }
  if (status.installed_slot >= slots) return refuse("serves from a slot that it does not have");
  if (status.running && status.installed == 0) return refuse("runs without a version");
  return {};
}

const MemberInfo* Roster::find(const ShardId& shard) const {
  const auto found = members.find(shard);
  return found == members.end() ? nullptr : &found->second;
}

bool Roster::whole(const ReplicaId& replica) const {
  for (std::uint32_t rank = 0; rank < ranks(replica.side); ++rank) {
    if (!members.contains({replica.side, replica.replica, rank})) return false;
  }
  return true;
}

std::uint64_t Roster::term(const ReplicaId& replica) const {
  std::uint64_t newest = 0;
  for (std::uint32_t rank = 0; rank < ranks(replica.side); ++rank) {
    const MemberInfo* member = find({replica.side, replica.replica, rank});
    if (member != nullptr) newest = std::max(newest, member->seat);
  }
  return newest;
}

std::string text_of(const Holder& holder) {
  return (holder.side == Side::trainer ? "trainer replica " : "rollout replica ") +
         std::to_string(holder.replica);
}

Result<Routes> routes_for(const Roster& roster, const Lease& lease, const ShardId& target) {
  const auto pattern_of = [&roster](Side side, std::uint32_t replica) {
    return roster.patterns.at({side, replica});
  };
  const auto number_of = [&roster](const ShardId& shard) {
    const auto found = std::lower_bound(roster.sources.begin(), roster.sources.end(), shard);
    return static_cast<std::uint32_t>(found - roster.sources.begin());
  };
  const Holder* peer = nullptr;
  for (const Holder& holder : lease.holders) {
    if (holder.side == Side::rollout && holder.replica != target.replica && peer == nullptr &&
        pattern_of(Side::rollout, holder.replica) == pattern_of(Side::rollout, target.replica)) {
      peer = &holder;
    }
  }
  Routes routes;
  if (peer != nullptr) routes.peer = {Side::rollout, peer->replica, target.rank};
  for (const ShardId& source : roster.sources) {
    const Holder* best = nullptr;
    for (const Holder& holder : lease.holders) {
      if (holder.side == Side::rollout ||
          pattern_of(Side::trainer, holder.replica) != pattern_of(Side::trainer, source.replica)) {
        continue;
      }
      if (best == nullptr || holder.replica == source.replica) best = &holder;
    }
    if (best != nullptr) {
      routes.by_source.push_back(
          {number_of({Side::trainer, best->replica, source.rank}), best->slot, false});
    } else if (peer != nullptr) {
      routes.by_source.push_back({0, peer->slot, true});
    } else {
      return failure(ErrorCode::unavailable, "nobody holds the part of " + text_of(source) +
                                                 " of version " + std::to_string(lease.version));
    }
  }
  return routes;
}

}  // namespace weir
