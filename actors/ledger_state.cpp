#include "actors/ledger_state.hpp"

#include <algorithm>

namespace weir {
namespace {

std::string version_text(std::uint64_t version) {
  return "version " + std::to_string(version);
}

}  // namespace

LedgerState::LedgerState(const std::vector<ShardId>& trainers) : trainers_(trainers) {
  std::sort(trainers_.begin(), trainers_.end());
}

Result<void> LedgerState::begin(std::uint64_t version) {
  if (version <= last_) {
    return failure(ErrorCode::invalid, "can't publish " + version_text(version) +
                                           ": it must be greater than the last one, " +
                                           std::to_string(last_));
  }
  if (staging_) {
    return failure(ErrorCode::refused, "can't publish " + version_text(version) + " while " +
                                           version_text(*staging_) + " is being staged");
  }
  if (!leases_.empty()) {
    return failure(ErrorCode::refused,
                   "can't publish " + version_text(version) + " while rollout " + "replica " +
                       std::to_string(leases_.begin()->second) + " reads " + version_text(*ready_));
  }
  last_ = version;
  staging_ = version;
  ready_.reset();
  staged_.clear();
  return {};
}

Result<bool> LedgerState::staged(std::uint64_t version, const ShardId& trainer) {
  if (staging_ != version) {
    return failure(ErrorCode::refused, text_of(trainer) + " reports " + version_text(version) +
                                           ", which is not being staged");
  }
  if (!std::binary_search(trainers_.begin(), trainers_.end(), trainer)) {
    return failure(ErrorCode::refused, text_of(trainer) + " reports " + version_text(version) +
                                           ", but is no trainer of this exchange");
  }
  if (!staged_.insert(trainer).second) {
    return failure(ErrorCode::refused,
                   text_of(trainer) + " reports " + version_text(version) + " twice");
  }
  if (staged_.size() < trainers_.size()) return false;
  ready_ = staging_;
  staging_.reset();
  return true;
}

Result<std::uint64_t> LedgerState::lease(std::uint64_t version, std::uint32_t replica) {
  if (ready_ != version) {
    return failure(ErrorCode::refused, "rollout replica " + std::to_string(replica) +
                                           " can't read " + version_text(version) +
                                           ": it is not ready");
  }
  for (const auto& [number, holder] : leases_) {
    if (holder == replica) {
      return failure(ErrorCode::refused, "rollout replica " + std::to_string(replica) + " reads " +
                                             version_text(version) + " already");
    }
  }
  leases_.emplace(next_lease_, replica);
  return next_lease_++;
}

Result<void> LedgerState::release(std::uint64_t lease) {
  if (leases_.erase(lease) == 0) {
    return failure(ErrorCode::refused, "there is no lease " + std::to_string(lease));
  }
  return {};
}

std::string LedgerState::doing(const ShardId& trainer) const {
  if (staging_ && !staged_.contains(trainer)) return "updating to " + version_text(*staging_);
  if (staging_) return "holding its part of " + version_text(*staging_);
  if (ready_) return "holding " + version_text(*ready_);
  return "waiting for the first version";
}

}  // namespace weir
