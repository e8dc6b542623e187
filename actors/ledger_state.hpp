#pragma once
// The versions of an exchange: which one is being staged, which one is whole, who reads it.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The decisions of the ledger. Versions only rise, and a version is READY only when every trainer
/// shard has staged it. The trainers have one place for their weights, so staging a version ends
/// the one before it, and is refused while that one has readers.
/// A plain value without clock or messages. Every error leaves it as it was.
class LedgerState {
 public:
  explicit LedgerState(const std::vector<ShardId>& trainers);

  /// Starts STAGING `version`. Errors: `invalid` (not greater than the last one), `refused`
  /// (another one is being staged, or the present one is leased).
  Result<void> begin(std::uint64_t version);
  /// A trainer shard holds the whole of its part of `version`. Returns whether the version is now
  /// READY. Errors (`refused`): not being staged, not a trainer of ours, staged already.
  Result<bool> staged(std::uint64_t version, const ShardId& trainer);
  /// A claim of rollout replica `replica` on the bytes of `version`; returns the lease's number,
  /// which is never used again. Errors (`refused`): not READY, or leased to it already.
  Result<std::uint64_t> lease(std::uint64_t version, std::uint32_t replica);
  /// Errors (`refused`): no such lease.
  Result<void> release(std::uint64_t lease);

  /// The version that may be read.
  [[nodiscard]] std::optional<std::uint64_t> ready() const noexcept { return ready_; }
  [[nodiscard]] std::size_t lease_count() const noexcept { return leases_.size(); }
  /// What a trainer shard is busy with, for messages: "updating to version 3".
  [[nodiscard]] std::string doing(const ShardId& trainer) const;

 private:
  std::vector<ShardId> trainers_;         ///< Sorted.
  std::uint64_t last_ = 0;                ///< The newest version ever begun.
  std::optional<std::uint64_t> staging_;  ///< At most one of these two has a value.
  std::optional<std::uint64_t> ready_;
  std::set<ShardId> staged_;                       ///< Of `staging_`.
  std::map<std::uint64_t, std::uint32_t> leases_;  ///< Of `ready_`: replica by number.
  std::uint64_t next_lease_ = 1;
};

}  // namespace weir
