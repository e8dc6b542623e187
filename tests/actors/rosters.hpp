#pragma once
// Small rosters for tests of what decides by them.

#include <cstdint>
#include <utility>
#include <vector>

#include "actors/roster.hpp"

namespace weir {

/// Trainers of two slots and rollouts, which join and leave. All replicas of a side are alike.
class SmallRoster {
 public:
  SmallRoster(std::uint32_t trainer_replicas, std::uint32_t trainer_ranks,
              std::uint32_t rollout_replicas, std::uint32_t rollout_ranks) {
    roster_.trainer_ranks = trainer_ranks;
    roster_.rollout_ranks = rollout_ranks;
    for (std::uint32_t replica = 0; replica < trainer_replicas; ++replica) {
      roster_.patterns[{Side::trainer, replica}] = 0;
      for (std::uint32_t rank = 0; rank < trainer_ranks; ++rank) {
        roster_.sources.push_back({Side::trainer, replica, rank});
      }
    }
    for (std::uint32_t replica = 0; replica < rollout_replicas; ++replica) {
      roster_.patterns[{Side::rollout, replica}] = 0;
    }
  }

  SmallRoster& trainer(std::uint32_t replica, std::uint32_t rank, std::vector<SlotReport> slots) {
    MemberInfo& member = join({Side::trainer, replica, rank});
    member.slots = static_cast<std::uint32_t>(slots.size());
    member.status.slots = std::move(slots);
    return *this;
  }
  SmallRoster& rollout(std::uint32_t replica, std::uint32_t rank, Placement placement,
                       std::uint64_t installed = 0, bool running = false) {
    MemberInfo& member = join({Side::rollout, replica, rank});
    member.status.placement = placement;
    member.status.installed = installed;
    member.status.running = running;
    member.slots = placement == Placement::second_buffer ? 2 : 1;
    member.bytes_needed = 10;
    return *this;
  }
  SmallRoster& lose(const ShardId& shard) {
    roster_.members.erase(shard);
    return *this;
  }

  [[nodiscard]] const Roster& operator*() const noexcept { return roster_; }
  Roster* operator->() noexcept { return &roster_; }

 private:
  MemberInfo& join(const ShardId& shard) {
    MemberInfo& member = roster_.members[shard];
    member = {};
    member.shard = shard;
    member.seat = ++last_seat_;
    return member;
  }

  Roster roster_;
  std::uint64_t last_seat_ = 0;
};

}  // namespace weir
