#pragma once
// One rollout replica: its shards switch to a version together, or not at all.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.hpp"

namespace weir {

/// The decisions of a replica coordinator: two phases, so that no shard commits before every shard
/// holds the whole version; then each verifies. Every shard answers each phase once.
/// A plain value without clock or messages. Every error leaves it as it was.
class ReplicaState {
 public:
  /// `bytes_needed[rank]` is what a fetch must write into that shard.
  ReplicaState(std::uint32_t replica, std::vector<std::uint64_t> bytes_needed);

  /// Starts fetching `version` on all shards. Errors (`refused`): not all shards are serving, or
  /// `version` is not greater than the one they serve.
  Result<void> begin(std::uint64_t version);
  /// Returns whether all shards have fetched, so that all may commit. Errors: `refused` (not
  /// fetching, another version), `invalid` (another number of bytes than the plan has).
  Result<bool> fetched(std::uint32_t rank, std::uint64_t version, std::uint64_t bytes);
  /// Returns whether all shards have committed. Errors (`refused`): not all have fetched, another
  /// version, committed already.
  Result<bool> committed(std::uint32_t rank, std::uint64_t version);
  /// Starts verifying on all shards. Errors (`refused`): not all have committed, another version.
  Result<void> verify(std::uint64_t version);
  /// Returns whether all shards have verified. Errors (`refused`): not verifying, another version.
  Result<bool> verified(std::uint32_t rank, std::uint64_t version);

  /// Written into all shards by the last fetches.
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept { return bytes_moved_; }
  [[nodiscard]] std::uint32_t rank_count() const noexcept {
    return static_cast<std::uint32_t>(phases_.size());
  }
  /// What a shard is busy with, for messages: "fetching version 3".
  [[nodiscard]] std::string doing(std::uint32_t rank) const;

 private:
  enum class Phase : std::uint8_t { serving, fetching, fetched, committed, verifying };

  [[nodiscard]] std::size_t count(Phase phase) const noexcept;
  [[nodiscard]] bool all(Phase phase) const noexcept { return count(phase) == phases_.size(); }
  /// Moves a shard on, or says which report came from whom and why it can't be.
  Result<void> step(std::uint32_t rank, std::uint64_t version, Phase from, Phase to,
                    const char* report);

  std::uint32_t replica_;
  std::vector<std::uint64_t> bytes_needed_;
  std::vector<Phase> phases_;
  std::uint64_t version_ = 0;  ///< That the phases speak of; 0 before the first.
  std::uint64_t bytes_moved_ = 0;
};

}  // namespace weir
