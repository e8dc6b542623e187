#include "actors/shard_state.hpp"

#include <algorithm>

namespace weir {
namespace {

tl::unexpected<Error> refuse(const ShardId& shard, const char* what, std::uint64_t version,
                             const char* why) {
  return failure(ErrorCode::refused, text_of(shard) + " can't " + what + " version " +
                                         std::to_string(version) + ": " + why);
}

tl::unexpected<Error> refuse_second_plan(const ShardId& shard) {
  return failure(ErrorCode::refused, text_of(shard) + " was sent a second plan");
}

}  // namespace

Result<void> TrainerState::accept(const Plan& plan) {
  if (planned_) return refuse_second_plan(shard_);
  const auto is_this = [this](const PlanSource& source) { return source.shard == shard_; };
  if (std::none_of(plan.sources.begin(), plan.sources.end(), is_this)) {
    return failure(ErrorCode::invalid,
                   text_of(shard_) + " is not a source of the plan that it was sent");
  }
  planned_ = true;
  return {};
}

Result<void> TrainerState::begin_update(std::uint64_t version) {
  if (!planned_) return refuse(shard_, "update to", version, "it has no plan yet");
  if (updating_) return refuse(shard_, "update to", version, "another update is running");
  if (version <= last_) {
    return refuse(shard_, "update to", version, "versions only rise");
  }
  updating_ = true;
  last_ = version;
  return {};
}

Result<void> RolloutState::accept(const Plan& plan) {
  if (phase_ != Phase::joining) return refuse_second_plan(shard_);
  if (plan.parts.size() != 1 || plan.parts.front().target != shard_) {
    return failure(ErrorCode::invalid,
                   text_of(shard_) + " was sent a plan that is not just its own part");
  }
  phase_ = Phase::preparing;
  return {};
}

Result<void> RolloutState::begin_fetch(std::uint64_t version) {
  if (phase_ == Phase::joining || phase_ == Phase::preparing) {
    return refuse(shard_, "fetch", version, "its part of the plan is not prepared");
  }
  if (phase_ == Phase::fetching || phase_ == Phase::verifying) {
    return refuse(shard_, "fetch", version, "it is busy with the one before");
  }
  if (version <= fetching_) return refuse(shard_, "fetch", version, "versions only rise");
  phase_ = Phase::fetching;
  fetching_ = version;
  return {};
}

Result<void> RolloutState::commit(std::uint64_t version) {
  if (phase_ != Phase::fetched || version != fetching_) {
    return refuse(shard_, "commit", version, "it has not fetched it whole");
  }
  phase_ = Phase::committed;
  serving_ = version;
  return {};
}

Result<void> RolloutState::begin_verify(std::uint64_t version) {
  if (phase_ != Phase::committed || version != serving_) {
    return refuse(shard_, "verify", version, "it is not what it serves");
  }
  phase_ = Phase::verifying;
  return {};
}

}  // namespace weir
