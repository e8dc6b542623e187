#pragma once
// Who belongs to an exchange, who is there, and which part of the plan each is to hold.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/roster.hpp"
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

/// The members of one exchange: missing → joined → holding its part of the plan → missing again.
/// The plan is made once the trainers and as many rollout replicas as are waited for are there; a
/// replica that comes later gets a plan of its own, which leaves the others' as they are. A member
/// that comes back takes over the part of the one before it, and so has to have its manifest.
/// A plain value without clock or messages; the planner actor asks it what each message means.
class Membership {
 public:
  /// `options` have passed `check`.
  explicit Membership(const ExchangeOptions& options);

  /// Counts a member in and returns its seat. Errors, after which nothing has changed: `refused`
  /// (not expected, another number of ranks, another manifest than the one before it),
  /// `unavailable` (its place is taken: the holder may not be known to be dead yet).
  Result<std::uint64_t> join(Manifest manifest, MemberStatus status);
  void lost(const ShardId& shard);

  /// Makes the plans that can be made now. Returns those who have to be sent a part. Errors: the
  /// planner's, with the replica whose manifests are at fault; its members are then missing.
  struct Planned {
    std::vector<ShardId> to_send;
    std::vector<std::pair<ShardId, Error>> refused;  ///< They can't be members.
  };
  Planned plan();
  /// Those who hold parts from before `trainer` joined: to be sent them again once it holds its own
  /// and whoever grants leases knows of it. Earlier, they could read its memory under a lease on
  /// that of the member before it.
  [[nodiscard]] std::vector<ShardId> readers_before(const ShardId& trainer) const;
  /// Its part is sent to it now.
  void sent(const ShardId& shard);
  /// The part of a member that has joined, with the sources as they are now.
  [[nodiscard]] Plan part_of(const ShardId& shard) const;
  /// A member says which plan it holds and how many bytes of its memory that plan writes.
  /// Errors: `refused` (was not sent one, has another seat), `invalid` (another digest or number
  /// of bytes than its part has).
  Result<void> hold(const ShardId& shard, std::uint64_t seat, const Digest& digest,
                    std::uint64_t bytes);

  /// Whether a plan was ever made for all that are waited for and held by them.
  [[nodiscard]] bool formed() const noexcept { return formed_; }
  /// The first plan; `formed` or not.
  [[nodiscard]] const std::optional<Plan>& first_plan() const noexcept { return first_plan_; }
  /// Those that hold their parts.
  [[nodiscard]] Roster roster() const;
  [[nodiscard]] std::uint64_t seat(const ShardId& shard) const;
  /// "rollout 0.1, rollout 0.3 and 7 more": those that are waited for, at most `named_max` names.
  [[nodiscard]] std::string missing(std::size_t named_max) const;
  /// What a member is busy with, for messages: "waiting for the others to join".
  [[nodiscard]] std::string doing(const ShardId& shard) const;

 private:
  enum class Phase : std::uint8_t { missing, joined, sent, holding };
  struct Place {
    Phase phase = Phase::missing;
    std::uint64_t seat = 0;
    MemberStatus status;
    std::optional<Manifest> manifest;  ///< The last one, also of a member that is missing.
    CopyList copies;
    std::uint64_t bytes_needed = 0;
    Digest digest;  ///< Of the plan that its part is of.
    bool planned = false;
    std::uint64_t sent_at = 0;  ///< The newest seat of all when its part was last sent.
  };

  [[nodiscard]] bool side_joined(Side side, std::uint32_t replica) const;
  [[nodiscard]] std::uint32_t whole_replicas() const;
  void send_all(Planned& planned);
  Result<void> plan_for(const std::vector<std::uint32_t>& replicas);
  void number_patterns();

  ExchangeOptions options_;
  std::map<ShardId, Place> places_;
  std::optional<Plan> first_plan_;
  bool formed_ = false;
  std::uint64_t last_seat_ = 0;
  std::map<ReplicaId, std::uint32_t> patterns_;
};

}  // namespace weir
