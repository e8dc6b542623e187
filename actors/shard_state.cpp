#include "actors/shard_state.hpp"

#include <algorithm>

namespace weir {
namespace {

tl::unexpected<Error> refuse(const ShardId& shard, const char* what, std::uint64_t version,
                             const std::string& why) {
  return failure(ErrorCode::refused, text_of(shard) + " can't " + what + " version " +
                                         std::to_string(version) + ": " + why);
}

Result<void> obeys(const ShardId& shard, const MemberStatus& status, std::uint64_t seat) {
  if (seat != 0 && seat == status.seat) return {};
  return failure(ErrorCode::refused, text_of(shard) + " has seat " + std::to_string(status.seat) +
                                         ", and the order was for seat " + std::to_string(seat));
}

}  // namespace

TrainerState::TrainerState(const ShardId& shard, std::uint32_t slots) : shard_(shard) {
  status_.slots.resize(slots);
}

Result<void> TrainerState::obey(std::uint64_t seat) const {
  return obeys(shard_, status_, seat);
}

Result<void> TrainerState::accept(std::uint64_t seat, const Plan& plan) const {
  if (Result<void> ours = obey(seat); !ours) return ours;
  const auto is_this = [this](const PlanSource& source) { return source.shard == shard_; };
  if (std::none_of(plan.sources.begin(), plan.sources.end(), is_this)) {
    return failure(ErrorCode::invalid,
                   text_of(shard_) + " is not a source of the plan that it was sent");
  }
  return {};
}

Result<void> TrainerState::wants(std::uint64_t version) const {
  std::uint64_t last = 0;
  for (const SlotReport& slot : status_.slots) {
    // What it has begun to write it may begin again.
    if (slot.state == SlotState::whole || slot.version > version) {
      last = std::max(last, slot.version);
    }
  }
  if (version > last) return {};
  return failure(ErrorCode::invalid, "can't publish version " + std::to_string(version) +
                                         ": it must be greater than the last one, " +
                                         std::to_string(last));
}

Result<void> TrainerState::acquired(std::uint64_t version, std::uint32_t slot) {
  if (slot >= status_.slots.size()) {
    return failure(ErrorCode::invalid, text_of(shard_) + " was given slot " + std::to_string(slot) +
                                           ", but has " + std::to_string(status_.slots.size()));
  }
  for (SlotReport& other : status_.slots) {
    if (other.state == SlotState::writing) other = {};
  }
  status_.slots[slot] = {SlotState::writing, version};
  return {};
}

bool TrainerState::writes(std::uint64_t version) const {
  const SlotReport writing{SlotState::writing, version};
  return std::find(status_.slots.begin(), status_.slots.end(), writing) != status_.slots.end();
}

Result<void> TrainerState::staged(std::uint64_t version) {
  for (SlotReport& slot : status_.slots) {
    if (slot.version != version || slot.state == SlotState::empty) continue;
    slot.state = SlotState::whole;
    return {};
  }
  return refuse(shard_, "publish", version, "it did not begin to write it");
}

RolloutState::RolloutState(const ShardId& shard, Placement placement)
    : shard_(shard), contents_(placement == Placement::second_buffer ? 2 : 1) {
  status_.placement = placement;
}

Result<void> RolloutState::obey(std::uint64_t seat) const {
  return obeys(shard_, status_, seat);
}

Result<void> RolloutState::accept(std::uint64_t seat, const Plan& plan) const {
  if (Result<void> ours = obey(seat); !ours) return ours;
  if (plan.parts.size() != 1 || plan.parts.front().target != shard_) {
    return failure(ErrorCode::invalid,
                   text_of(shard_) + " was sent a plan that is not just its own part");
  }
  return {};
}

bool RolloutState::is_live(std::uint32_t slot) const noexcept {
  if (status_.placement == Placement::staging) return false;
  return status_.placement == Placement::in_place ||
         (status_.installed != 0 && slot == status_.installed_slot);
}

Result<void> RolloutState::begin_fetch(std::uint64_t version, std::uint32_t slot) {
  if (slot >= contents_.size()) {
    return failure(ErrorCode::invalid, text_of(shard_) + " has no slot " + std::to_string(slot));
  }
  if (fetching_) return refuse(shard_, "fetch", version, "another fetch is running");
  if (ordered()) return refuse(shard_, "fetch", version, "its engine is busy");
  if (is_live(slot)) {
    if (status_.running) return refuse(shard_, "fetch", version, "its engine reads that memory");
    status_.installed = 0;
  }
  contents_[slot] = 0;
  fetching_ = true;
  version_ = version;
  slot_ = slot;
  return {};
}

void RolloutState::end_fetch(bool whole) {
  fetching_ = false;
  if (whole) contents_[slot_] = version_;
}

Result<void> RolloutState::begin_pause() {
  if (ordered()) {
    return failure(ErrorCode::refused, text_of(shard_) + " can't pause: its engine is busy");
  }
  order_ = Order::pause;
  return {};
}

Result<void> RolloutState::begin_install(std::uint64_t version, std::uint32_t slot) {
  if (ordered()) return refuse(shard_, "install", version, "its engine is busy");
  if (status_.running) return refuse(shard_, "install", version, "its engine is not paused");
  if (fetching_) return refuse(shard_, "install", version, "a fetch is running");
  if (version == 0 || slot >= contents_.size() || contents_[slot] != version) {
    return refuse(shard_, "install", version, "it does not lie whole in that slot");
  }
  order_ = Order::install;
  version_ = version;
  slot_ = slot;
  return {};
}

Result<void> RolloutState::begin_resume(std::uint64_t version) {
  if (ordered()) return refuse(shard_, "resume with", version, "its engine is busy");
  if (version == 0 || status_.installed != version) {
    return refuse(shard_, "resume with", version, "it is not what it has installed");
  }
  order_ = Order::resume;
  return {};
}

void RolloutState::end_order(bool well) {
  switch (order_) {
    case Order::none:
      break;
    case Order::pause:
      if (well) status_.running = false;
      break;
    case Order::install:
      status_.installed = well ? version_ : 0;
      status_.installed_slot = slot_;
      break;
    case Order::resume:
      if (!well) break;
      status_.running = true;
      status_.served = std::max(status_.served, status_.installed);
      break;
  }
  order_ = Order::none;
}

}  // namespace weir
