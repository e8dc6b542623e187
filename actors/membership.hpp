#pragma once
// Who belongs to an exchange and how far each has come, until all hold their part of the plan.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "actors/exchange.hpp"
#include "runtime/digest.hpp"
#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// More members than this are refused: each costs its manifest and a connection.
inline constexpr std::uint64_t members_max = 65'536;

/// Five signs of life. A long message counts as silence while it is under way: waiting less would
/// end healthy peers.
inline constexpr Duration silence_max_least = std::chrono::seconds(1);

/// Whether the options make sense. Errors (`invalid`) name the option and its limit.
Result<void> check(const ExchangeOptions& options);

/// The members of one exchange: missing → joined → holding its part of the plan. A plain value
/// without clock or messages; the planner actor asks it what each message means.
class Membership {
 public:
  /// `options` have passed `check`.
  explicit Membership(const ExchangeOptions& options);

  /// Counts a member in. Errors (`refused`), after which nothing has changed: not expected, another
  /// number of ranks than expected, joined already.
  Result<void> join(const ShardId& shard, std::uint32_t replica_ranks);
  /// States what each member will have to hold. All have joined.
  void planned(const Plan& plan);
  /// A member says which plan it holds and how many bytes of its memory that plan writes.
  /// Errors: `refused` (no plan yet, not a member, holds one already), `invalid` (another digest
  /// or number of bytes than its part has).
  Result<void> hold(const ShardId& shard, const Digest& digest, std::uint64_t bytes);

  [[nodiscard]] bool all_joined() const noexcept { return joined_ == members_.size(); }
  [[nodiscard]] bool all_holding() const noexcept { return holding_ == members_.size(); }
  /// "rollout 0.1, rollout 0.3 and 7 more": those that have not joined, at most `named_max` names.
  [[nodiscard]] std::string missing(std::size_t named_max) const;
  /// What a member is busy with, for messages: "waiting for the others to join".
  [[nodiscard]] std::string doing(const ShardId& shard) const;

 private:
  enum class Phase : std::uint8_t { missing, joined, holding };
  struct Member {
    Phase phase = Phase::missing;
    std::uint64_t bytes_needed = 0;
  };

  std::map<ShardId, Member> members_;
  std::uint32_t trainer_ranks_;
  std::uint32_t rollout_ranks_;
  std::size_t joined_ = 0;
  std::size_t holding_ = 0;
  bool planned_ = false;
  Digest digest_;
};

}  // namespace weir
