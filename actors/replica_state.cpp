#include "actors/replica_state.hpp"

#include <algorithm>
#include <utility>

#include "runtime/assert.hpp"
#include "runtime/manifest.hpp"

namespace weir {
namespace {

std::string version_text(std::uint64_t version) {
  return "version " + std::to_string(version);
}

}  // namespace

ReplicaState::ReplicaState(std::uint32_t replica, std::vector<std::uint64_t> bytes_needed)
    : replica_(replica),
      bytes_needed_(std::move(bytes_needed)),
      phases_(bytes_needed_.size(), Phase::serving) {}

Result<void> ReplicaState::begin(std::uint64_t version) {
  if (!all(Phase::serving)) {
    return failure(ErrorCode::refused, "rollout replica " + std::to_string(replica_) +
                                           " can't fetch " + version_text(version) +
                                           " before it is done with " + version_text(version_));
  }
  if (version <= version_) {
    return failure(ErrorCode::refused, "rollout replica " + std::to_string(replica_) +
                                           " can't go from " + version_text(version_) + " to " +
                                           version_text(version));
  }
  version_ = version;
  bytes_moved_ = 0;
  phases_.assign(phases_.size(), Phase::fetching);
  return {};
}

Result<bool> ReplicaState::fetched(std::uint32_t rank, std::uint64_t version, std::uint64_t bytes) {
  if (rank < rank_count() && bytes != bytes_needed_[rank]) {
    return failure(ErrorCode::invalid, text_of(ShardId{Side::rollout, replica_, rank}) + " moved " +
                                           std::to_string(bytes) + " of the " +
                                           std::to_string(bytes_needed_[rank]) + " bytes of " +
                                           version_text(version));
  }
  auto stepped = step(rank, version, Phase::fetching, Phase::fetched, "has fetched");
  if (!stepped) return failure(stepped);
  bytes_moved_ += bytes;
  return all(Phase::fetched);
}

Result<bool> ReplicaState::committed(std::uint32_t rank, std::uint64_t version) {
  if (count(Phase::fetching) != 0) {
    return failure(ErrorCode::refused, text_of(ShardId{Side::rollout, replica_, rank}) +
                                           " says that it has committed " + version_text(version) +
                                           " before all shards have fetched it");
  }
  auto stepped = step(rank, version, Phase::fetched, Phase::committed, "has committed");
  if (!stepped) return failure(stepped);
  return all(Phase::committed);
}

Result<void> ReplicaState::verify(std::uint64_t version) {
  if (!all(Phase::committed) || version != version_) {
    return failure(ErrorCode::refused, "rollout replica " + std::to_string(replica_) +
                                           " can't verify " + version_text(version) +
                                           ", which it has not committed");
  }
  phases_.assign(phases_.size(), Phase::verifying);
  return {};
}

Result<bool> ReplicaState::verified(std::uint32_t rank, std::uint64_t version) {
  auto stepped = step(rank, version, Phase::verifying, Phase::serving, "has verified");
  if (!stepped) return failure(stepped);
  return all(Phase::serving);
}

std::size_t ReplicaState::count(Phase phase) const noexcept {
  return static_cast<std::size_t>(std::count(phases_.begin(), phases_.end(), phase));
}

Result<void> ReplicaState::step(std::uint32_t rank, std::uint64_t version, Phase from, Phase to,
                                const char* report) {
  if (rank >= rank_count() || version != version_ || phases_[rank] != from) {
    return failure(ErrorCode::refused, text_of(ShardId{Side::rollout, replica_, rank}) +
                                           " says that it " + report + " " + version_text(version) +
                                           ", which it was not asked for");
  }
  phases_[rank] = to;
  return {};
}

std::string ReplicaState::doing(std::uint32_t rank) const {
  WEIR_ASSERT(rank < rank_count());
  switch (phases_[rank]) {
    case Phase::serving:
      if (version_ == 0) return "waiting for the first version";
      return "serving " + version_text(version_);
    case Phase::fetching:
      return "fetching " + version_text(version_);
    case Phase::fetched:
      return count(Phase::fetching) != 0 ? "holding " + version_text(version_) + " for the commit"
                                         : "committing " + version_text(version_);
    case Phase::committed:
      return "serving " + version_text(version_);
    case Phase::verifying:
      return "verifying " + version_text(version_);
  }
  return {};
}

}  // namespace weir
