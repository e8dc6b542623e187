#include "actors/membership.hpp"

#include <algorithm>
#include <utility>

#include "actors/sampling_state.hpp"
#include "runtime/assert.hpp"
#include "runtime/planner.hpp"

namespace weir {
namespace {

std::uint64_t member_count(const ExchangeOptions& options) noexcept {
  return std::uint64_t{options.trainer_replicas} * options.trainer_ranks +
         std::uint64_t{options.rollout_replicas} * options.rollout_ranks;
}

/// The same for every process that could take this one's place.
Manifest without_tickets(Manifest manifest) {
  for (RegionInfo& region : manifest.regions) region.tickets.clear();
  return manifest;
}

Manifest pattern_of(Manifest manifest) {
  manifest = without_tickets(std::move(manifest));
  manifest.shard.replica = 0;
  return manifest;
}

}  // namespace

Result<void> check(const ExchangeOptions& options) {
  const auto refuse = [](const std::string& why) { return failure(ErrorCode::invalid, why); };
  if (options.trainer_replicas == 0 || options.trainer_ranks == 0) {
    return refuse(
        "the exchange has no trainer shards: set trainer_replicas and trainer_ranks to "
        "at least 1");
  }
  if (options.rollout_replicas == 0 || options.rollout_ranks == 0) {
    return refuse(
        "the exchange has no rollout shards: set rollout_replicas and rollout_ranks to "
        "at least 1");
  }
  if (options.rollout_replicas_min > options.rollout_replicas) {
    return refuse("rollout_replicas_min must not be above rollout_replicas");
  }
  // Each product is of two 32-bit numbers, so neither overflows; their sum could by one bit.
  const std::uint64_t trainers = std::uint64_t{options.trainer_replicas} * options.trainer_ranks;
  if (trainers > members_max || member_count(options) > members_max) {
    return refuse("the exchange has more members than the limit of " + std::to_string(members_max));
  }
  const std::pair<const char*, Duration> durations[] = {
      {"join_deadline", options.join_deadline},
      {"publish_deadline", options.publish_deadline},
      {"lease_deadline", options.lease_deadline},
      {"pause_deadline", options.pause_deadline},
      {"install_deadline", options.install_deadline},
      {"resume_deadline", options.resume_deadline},
      {"retry_delay", options.retry_delay}};
  for (const auto& [name, duration] : durations) {
    if (duration <= Duration::zero()) {
      return refuse(std::string(name) + " must be longer than nothing");
    }
  }
  if (options.silence_max < silence_max_least) return refuse("silence_max must be at least 1 s");
  const auto sampling = SamplingState::create(options.sampling, options.in_flight);
  if (!sampling) return failure(sampling);
  return {};
}

Membership::Membership(const ExchangeOptions& options) : options_(options) {
  if (options_.rollout_replicas_min == 0) options_.rollout_replicas_min = options.rollout_replicas;
  const auto expect = [this](Side side, std::uint32_t replicas, std::uint32_t ranks) {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) places_[{side, replica, rank}] = {};
    }
  };
  expect(Side::trainer, options.trainer_replicas, options.trainer_ranks);
  expect(Side::rollout, options.rollout_replicas, options.rollout_ranks);
}

Result<std::uint64_t> Membership::join(Manifest manifest, MemberStatus status) {
  const ShardId shard = manifest.shard;
  const auto found = places_.find(shard);
  if (found == places_.end()) {
    return failure(ErrorCode::refused, text_of(shard) +
                                           " is not a member of this exchange: its replica or rank "
                                           "is beyond the number that the exchange was told");
  }
  const std::uint32_t expected =
      shard.side == Side::trainer ? options_.trainer_ranks : options_.rollout_ranks;
  if (manifest.replica_ranks != expected) {
    return failure(ErrorCode::refused, text_of(shard) + " says that its replica has " +
                                           std::to_string(manifest.replica_ranks) +
                                           " ranks, but the exchange expects " +
                                           std::to_string(expected));
  }
  if (auto checked = check(status, manifest); !checked) return failure(checked);
  Place& place = found->second;
  if (place.phase != Phase::missing) {
    return failure(ErrorCode::unavailable,
                   text_of(shard) +
                       " is there already: two members must not have the same side, replica and "
                       "rank, and one that has died is noticed within silence_max");
  }
  if (place.planned && without_tickets(*place.manifest) != without_tickets(manifest)) {
    return failure(ErrorCode::refused,
                   text_of(shard) +
                       " has another manifest than the member whose place it takes: start it with "
                       "the same model and layout, or start a new exchange");
  }
  last_seat_ = std::max(last_seat_, status.seat) + 1;
  place.phase = Phase::joined;
  place.seat = last_seat_;
  place.status = std::move(status);
  place.manifest = std::move(manifest);
  return place.seat;
}

void Membership::lost(const ShardId& shard) {
  Place& place = places_.at(shard);
  place.phase = Phase::missing;
  place.status = {};
  if (!place.planned) place.manifest.reset();
}

bool Membership::side_joined(Side side, std::uint32_t replica) const {
  const std::uint32_t ranks =
      side == Side::trainer ? options_.trainer_ranks : options_.rollout_ranks;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (places_.at({side, replica, rank}).phase == Phase::missing) return false;
  }
  return true;
}

std::uint32_t Membership::whole_replicas() const {
  std::uint32_t count = 0;
  for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
    if (side_joined(Side::rollout, replica)) ++count;
  }
  return count;
}

Membership::Planned Membership::plan() {
  Planned planned;
  if (!first_plan_) {
    for (std::uint32_t replica = 0; replica < options_.trainer_replicas; ++replica) {
      if (!side_joined(Side::trainer, replica)) return planned;
    }
    if (whole_replicas() < options_.rollout_replicas_min) return planned;
  }
  std::vector<std::uint32_t> fresh;
  for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
    if (side_joined(Side::rollout, replica) && !places_.at({Side::rollout, replica, 0}).planned) {
      fresh.push_back(replica);
    }
  }
  if (!fresh.empty()) {
    const Result<void> made = plan_for(fresh);
    if (!made) {
      for (auto& [shard, place] : places_) {
        const bool new_here = shard.side == Side::rollout &&
                              std::count(fresh.begin(), fresh.end(), shard.replica) != 0;
        if (new_here || !first_plan_) planned.refused.emplace_back(shard, made.error());
      }
      return planned;
    }
  }
  send_all(planned);
  return planned;
}

/// Everyone who has joined and has a part.
void Membership::send_all(Planned& planned) {
  for (auto& [shard, place] : places_) {
    if (!place.planned || place.phase != Phase::joined) continue;
    place.phase = Phase::sent;
    planned.to_send.push_back(shard);
  }
}

std::vector<ShardId> Membership::readers_before(const ShardId& trainer) const {
  std::vector<ShardId> readers;
  for (const auto& [shard, place] : places_) {
    const bool has_part = place.phase == Phase::sent || place.phase == Phase::holding;
    if (shard.side == Side::rollout && has_part && place.sent_at < places_.at(trainer).seat) {
      readers.push_back(shard);
    }
  }
  return readers;
}

void Membership::sent(const ShardId& shard) {
  places_.at(shard).sent_at = last_seat_;
}

Result<void> Membership::plan_for(const std::vector<std::uint32_t>& replicas) {
  std::vector<Participant> participants;
  for (const auto& [shard, place] : places_) {
    const bool reads = std::count(replicas.begin(), replicas.end(), shard.replica) != 0;
    if (shard.side == Side::trainer || reads) participants.push_back({shard, &*place.manifest});
  }
  Result<Plan> plan = make_plan(participants);
  if (!plan) return failure(plan);
  for (PlanPart& part : plan->parts) {
    Place& place = places_.at(part.target);
    place.planned = true;
    place.digest = plan->digest;
    place.bytes_needed = 0;
    for (const Copy& copy : part.copies) place.bytes_needed += target_bytes(copy);
    place.copies = part.copies;
  }
  if (!first_plan_) {
    for (auto& [shard, place] : places_) {
      if (shard.side == Side::rollout) continue;
      place.planned = true;
      place.digest = plan->digest;
    }
    first_plan_ = std::move(*plan);
  }
  number_patterns();
  return {};
}

/// Replicas of a side whose manifests say the same, rank by rank, get the same number.
void Membership::number_patterns() {
  std::map<Side, std::vector<std::vector<Manifest>>> known;
  patterns_.clear();
  for (const auto& [shard, place] : places_) {
    if (shard.rank != 0 || !place.planned) continue;
    const ReplicaId replica{shard.side, shard.replica};
    std::vector<Manifest> manifests;
    for (auto at = places_.find(shard); at != places_.end() && at->first.side == replica.side &&
                                        at->first.replica == replica.replica;
         ++at) {
      manifests.push_back(pattern_of(*at->second.manifest));
    }
    auto& patterns = known[shard.side];
    const auto same = std::find(patterns.begin(), patterns.end(), manifests);
    patterns_[replica] = static_cast<std::uint32_t>(same - patterns.begin());
    if (same == patterns.end()) patterns.push_back(std::move(manifests));
  }
}

Plan Membership::part_of(const ShardId& shard) const {
  const Place& place = places_.at(shard);
  Plan plan;
  plan.digest = place.digest;
  plan.sources = first_plan_->sources;
  for (PlanSource& source : plan.sources) {
    source.regions = places_.at(source.shard).manifest->regions;
  }
  if (shard.side == Side::rollout) plan.parts = {{shard, place.copies}};
  return plan;
}

Result<void> Membership::hold(const ShardId& shard, std::uint64_t seat, const Digest& digest,
                              std::uint64_t bytes) {
  Place& place = places_.at(shard);
  if (place.seat != seat || (place.phase != Phase::sent && place.phase != Phase::holding)) {
    return failure(ErrorCode::refused, text_of(shard) + " reports a plan that it was not sent");
  }
  if (digest != place.digest) {
    return failure(ErrorCode::invalid, text_of(shard) + " holds plan " + text_of(digest) +
                                           ", but the exchange computed " + text_of(place.digest));
  }
  if (bytes != place.bytes_needed) {
    return failure(ErrorCode::invalid, text_of(shard) + " prepared " + std::to_string(bytes) +
                                           " bytes, but its part of the plan has " +
                                           std::to_string(place.bytes_needed));
  }
  place.phase = Phase::holding;
  formed_ = formed_ || std::all_of(places_.begin(), places_.end(), [](const auto& entry) {
              return !entry.second.planned || entry.second.phase == Phase::holding;
            });
  return {};
}

Roster Membership::roster() const {
  Roster roster;
  roster.trainer_ranks = options_.trainer_ranks;
  roster.rollout_ranks = options_.rollout_ranks;
  if (first_plan_) {
    for (const PlanSource& source : first_plan_->sources) roster.sources.push_back(source.shard);
  }
  roster.patterns = patterns_;
  for (const auto& [shard, place] : places_) {
    if (place.phase != Phase::holding) continue;
    roster.members[shard] = {shard,
                             place.seat,
                             place.status,
                             place.bytes_needed,
                             place.manifest->slots,
                             place.manifest->regions};
  }
  return roster;
}

std::uint64_t Membership::seat(const ShardId& shard) const {
  const Place& place = places_.at(shard);
  return place.phase == Phase::missing ? 0 : place.seat;
}

std::string Membership::missing(std::size_t named_max) const {
  std::vector<ShardId> all;
  for (const auto& [shard, place] : places_) {
    if (place.phase == Phase::missing) all.push_back(shard);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(named_max, all.size()); ++i) {
    if (i != 0) text += ", ";
    text += text_of(all[i]);
  }
  if (all.size() > named_max) text += " and " + std::to_string(all.size() - named_max) + " more";
  return text;
}

std::string Membership::doing(const ShardId& shard) const {
  switch (places_.at(shard).phase) {
    case Phase::missing:
      return "joining";
    case Phase::joined:
      return "waiting for the others to join";
    case Phase::sent:
      return "preparing its part of the plan";
    case Phase::holding:
      return "holding its part of the plan";
  }
  return {};
}

}  // namespace weir
