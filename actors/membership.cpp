#include "actors/membership.hpp"

#include "runtime/assert.hpp"

namespace weir {
namespace {

std::uint64_t member_count(const ExchangeOptions& options) noexcept {
  return std::uint64_t{options.trainer_replicas} * options.trainer_ranks +
         std::uint64_t{options.rollout_replicas} * options.rollout_ranks;
}

}  // namespace

Result<void> check(const ExchangeOptions& options) {
  if (options.trainer_replicas == 0 || options.trainer_ranks == 0) {
    return failure(ErrorCode::invalid,
                   "the exchange has no trainer shards: set trainer_replicas and trainer_ranks to "
                   "at least 1");
  }
  if (options.rollout_replicas == 0 || options.rollout_ranks == 0) {
    return failure(ErrorCode::invalid,
                   "the exchange has no rollout shards: set rollout_replicas and rollout_ranks to "
                   "at least 1");
  }
  // Each product is of two 32-bit numbers, so neither overflows; their sum could by one bit.
  const std::uint64_t trainers = std::uint64_t{options.trainer_replicas} * options.trainer_ranks;
  if (trainers > members_max || member_count(options) > members_max) {
    return failure(ErrorCode::invalid, "the exchange has more members than the limit of " +
                                           std::to_string(members_max));
  }
  if (options.join_deadline <= Duration::zero()) {
    return failure(ErrorCode::invalid, "join_deadline must be longer than nothing");
  }
  if (options.publish_deadline <= Duration::zero()) {
    return failure(ErrorCode::invalid, "publish_deadline must be longer than nothing");
  }
  if (options.silence_max < silence_max_least) {
    return failure(ErrorCode::invalid, "silence_max must be at least 1 s");
  }
  return {};
}

Membership::Membership(const ExchangeOptions& options)
    : trainer_ranks_(options.trainer_ranks), rollout_ranks_(options.rollout_ranks) {
  const auto expect = [this](Side side, std::uint32_t replicas, std::uint32_t ranks) {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) members_[{side, replica, rank}] = {};
    }
  };
  expect(Side::trainer, options.trainer_replicas, options.trainer_ranks);
  expect(Side::rollout, options.rollout_replicas, options.rollout_ranks);
}

Result<void> Membership::join(const ShardId& shard, std::uint32_t replica_ranks) {
  const auto found = members_.find(shard);
  if (found == members_.end()) {
    return failure(ErrorCode::refused, text_of(shard) +
                                           " is not a member of this exchange: its replica or rank "
                                           "is beyond the number that the exchange was told");
  }
  const std::uint32_t expected = shard.side == Side::trainer ? trainer_ranks_ : rollout_ranks_;
  if (replica_ranks != expected) {
    return failure(ErrorCode::refused,
                   text_of(shard) + " says that its replica has " + std::to_string(replica_ranks) +
                       " ranks, but the exchange expects " + std::to_string(expected));
  }
  if (found->second.phase != Phase::missing) {
    return failure(ErrorCode::refused, text_of(shard) +
                                           " has joined already: two members must not "
                                           "have the same side, replica and rank");
  }
  found->second.phase = Phase::joined;
  ++joined_;
  return {};
}

void Membership::planned(const Plan& plan) {
  WEIR_ASSERT(all_joined() && !planned_);
  planned_ = true;
  digest_ = plan.digest;
  for (const PlanPart& part : plan.parts) {
    const auto found = members_.find(part.target);
    WEIR_ASSERT(found != members_.end());
    for (const Copy& copy : part.copies) found->second.bytes_needed += target_bytes(copy);
  }
}

Result<void> Membership::hold(const ShardId& shard, const Digest& digest, std::uint64_t bytes) {
  const auto found = members_.find(shard);
  if (found == members_.end() || !planned_ || found->second.phase != Phase::joined) {
    return failure(ErrorCode::refused, text_of(shard) + " reports a plan that it was not sent");
  }
  if (digest != digest_) {
    return failure(ErrorCode::invalid, text_of(shard) + " holds plan " + text_of(digest) +
                                           ", but the exchange computed " + text_of(digest_));
  }
  if (bytes != found->second.bytes_needed) {
    return failure(ErrorCode::invalid, text_of(shard) + " prepared " + std::to_string(bytes) +
                                           " bytes, but its part of the plan has " +
                                           std::to_string(found->second.bytes_needed));
  }
  found->second.phase = Phase::holding;
  ++holding_;
  return {};
}

std::string Membership::missing(std::size_t named_max) const {
  std::string text;
  std::size_t named = 0;
  for (const auto& [shard, member] : members_) {
    if (member.phase != Phase::missing) continue;
    if (named == named_max) break;
    if (named != 0) text += ", ";
    text += text_of(shard);
    ++named;
  }
  const std::size_t more = members_.size() - joined_ - named;
  if (more != 0) text += " and " + std::to_string(more) + " more";
  return text;
}

std::string Membership::doing(const ShardId& shard) const {
  const auto found = members_.find(shard);
  WEIR_ASSERT(found != members_.end());
  switch (found->second.phase) {
    case Phase::missing:
      return "joining";
    case Phase::joined:
      return planned_ ? "preparing its part of the plan" : "waiting for the others to join";
    case Phase::holding:
      return "waiting for the others to prepare";
  }
  return {};
}

}  // namespace weir
