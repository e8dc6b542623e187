#pragma once
// The versions of an exchange: which are being staged, which are whole and where, who reads them.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/roster.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What a change of the ledger means for others, in the order in which it is to be told.
namespace ledger {
/// The trainer shard may write `version` into `slot`.
struct Granted {
  ShardId shard;
  std::uint64_t version;
  std::uint32_t slot;
};
/// Its request for `version` will not be granted: another version took its place.
struct Superseded {
  ShardId shard;
  std::uint64_t version;
};
/// A request for a lease, by its number, is granted: what to read, and from where.
struct Leased {
  std::uint64_t request;
  Lease lease;
};
/// A request for a lease will not be granted.
struct NotLeased {
  std::uint64_t request;
  Error why;
};
/// The reader has lost its lease: nothing that it fetched under it counts.
struct Revoked {
  std::uint64_t lease;
  std::uint32_t replica;
};
/// The version may be read.
struct Ready {
  std::uint64_t version;
};
/// The version may be read as far as it stands: it is being written.
struct Begun {
  std::uint64_t version;
};
/// More stands of what is read under that lease.
struct Standing {
  std::uint64_t lease;
  std::uint32_t replica;
  std::vector<std::uint64_t> stands;
};
}  // namespace ledger
using LedgerEffect =
    std::variant<ledger::Granted, ledger::Superseded, ledger::Leased, ledger::NotLeased,
                 ledger::Revoked, ledger::Ready, ledger::Begun, ledger::Standing>;

/// The decisions of the ledger. Of every version it knows the holders: the replicas that hold it
/// whole. STAGING → READY (it has a holder) → RETIRING (a newer one is READY: no new leases) →
/// gone (no holder). A slot is written only when no lease reads it, and bytes that were fetched
/// under a lease count only if the lease is still there when it is confirmed.
/// A version is begun, and may be leased early, once every trainer replica of the plan writes it,
/// some of each of its shards stands, and the version before is whole in a trainer. Such a lease is
/// confirmed only when the version is READY; until then it ends as soon as one of those that it
/// reads does not write that version any more, and nobody who wants to write waits for it. A plain
/// value without clock or messages: deadlines are calls. Every error leaves it as it was.
class LedgerState {
 public:
  struct Options {
    WhenFull when_full = WhenFull::wait;
    std::uint32_t versions_max = 0;  ///< Per trainer replica; 0: as many as it has slots.
  };
  explicit LedgerState(const Options& options) : options_(options) {}

  /// Takes over who is there. A member with a new seat holds what it says; one that is gone holds
  /// nothing, and the requests and the lease of a rollout replica that has changed end.
  void update(const Roster& roster);

  /// A trainer shard wants to write `version`; granted by an effect, once all shards of its replica
  /// are there and nobody reads the slot. Asking twice is no error. Errors: `invalid` (not above
  /// the versions of its replica, or below what is READY), `refused` (no room and the policy says
  /// so; not a member).
  Result<void> acquire(const ShardId& trainer, std::uint64_t version);
  /// Its patience is over: whoever still reads what it waits for loses the lease.
  void press(const ShardId& trainer);
  /// It no longer waits. Returns what it waited for, for messages.
  std::string forget(const ShardId& trainer);
  /// A trainer shard's bytes of `version` stand. Saying so twice is no error. Errors: `refused`.
  Result<void> staged(const ShardId& trainer, std::uint64_t version);
  /// Of the slot that it is writing `version` to, the first `bytes` bytes stand: its regions one
  /// after another. Word of what it is not writing says nothing.
  void standing(const ShardId& trainer, std::uint64_t version, std::uint64_t bytes);
  /// Early readers are told how much stands by now. A call of its own, so that it can be made
  /// seldom; those of a version that becomes READY are told at once.
  void tell_standing();

  /// Rollout replica `replica` wants to read `version` and will overwrite its slot `target_slot`.
  /// `term` is the newest seat of its members as it knows them. Granted or refused by an effect,
  /// which names the request that this returns.
  std::uint64_t lease(std::uint64_t version, std::uint32_t replica, std::uint32_t target_slot,
                      std::uint64_t term);
  /// `failed` can't be read: its replica is struck off the lease's holders. Returns the lease with
  /// those that are left or have come since. Errors: `refused` (no such lease), `unavailable` (no
  /// holder is left).
  Result<Lease> renew(std::uint64_t lease, const ShardId& failed);
  /// Ends the lease. Success means that all that was read under it until now are the version's
  /// bytes. Errors: `refused` (no such lease: it was revoked, or its replica has changed; or it
  /// ends here, as its version is not READY).
  Result<void> confirm(std::uint64_t lease);
  /// Ends the lease, if it is still there. What was read under it does not count.
  void release(std::uint64_t lease);
  /// The time of a lease, or of a request for one, is over.
  void expire(std::uint64_t number);
  /// The replica serves `version` from `slot`, where it stays until the next lease. Of no effect
  /// when its members have changed since.
  void committed(std::uint32_t replica, std::uint64_t version, std::uint32_t slot,
                 std::uint64_t term);

  /// What has to be told since the last call.
  std::vector<LedgerEffect> take_effects();

  [[nodiscard]] std::optional<std::uint64_t> ready() const noexcept { return ready_; }
  [[nodiscard]] std::size_t lease_count() const noexcept { return leases_.size(); }
  /// Those that hold `version` whole and may be read.
  [[nodiscard]] std::vector<Holder> holders(std::uint64_t version) const;
  /// The versions that anyone still holds.
  [[nodiscard]] std::set<std::uint64_t> versions() const;

 private:
  /// The version that a trainer replica goes to next, and the shards that wait to write it.
  struct Target {
    std::uint64_t version = 0;
    std::optional<std::uint32_t> slot;  ///< None before all its shards are there.
    std::set<ShardId> wanting;
  };
  struct LiveLease {
    Lease lease;
    std::uint32_t replica = 0;
    std::set<Holder> used;  ///< All that it was ever told to read from.
    std::set<ShardId> failed;
    bool ready = false;  ///< Its version is, or was.
  };
  struct Wish {
    std::uint64_t version = 0;
    std::uint32_t replica = 0;
    std::uint32_t target_slot = 0;
    std::uint64_t term = 0;
  };

  void lose(const MemberInfo& member);
  void revoke_readers_of(const ShardId& shard);
  /// Sees what the shards of a trainer replica hold together.
  void put_together(std::uint32_t replica);
  [[nodiscard]] std::size_t trainer_replicas() const;
  [[nodiscard]] std::uint32_t slot_for(std::uint32_t replica, std::uint64_t version) const;
  [[nodiscard]] bool full(std::uint32_t replica) const;
  void abandon(std::uint32_t replica);
  void hold(const Holder& holder, std::uint64_t version);
  void end_lease(std::uint64_t number, bool tell);
  /// Whose version will not become READY as it was begun.
  void end_early_leases();
  void tell_begun(std::uint64_t version);
  [[nodiscard]] bool is_begun(std::uint64_t version) const;
  /// How much of the version a trainer shard has.
  [[nodiscard]] std::uint64_t stands(const ShardId& trainer, std::uint64_t version) const;
  [[nodiscard]] std::vector<std::uint64_t> stands_by_source(std::uint64_t version) const;
  /// The lease's reader is told of these.
  void use(LiveLease& live, const std::vector<Holder>& holders);
  /// Whether all members of a rollout replica are those of that term.
  [[nodiscard]] bool is_as_then(std::uint32_t replica, std::uint64_t term) const;
  [[nodiscard]] bool is_read(const Holder& holder) const { return read_.contains(holder); }
  [[nodiscard]] bool is_closing(const Holder& holder) const;
  /// Those that a reader is told of.
  [[nodiscard]] std::vector<Holder> choice(std::uint64_t version, std::uint32_t reader,
                                           const std::set<ShardId>& failed) const;
  [[nodiscard]] std::optional<Error> refusal(const Wish& wish) const;
  /// Grants what waited for that which has just changed.
  void settle();
  void grant_trainers();
  void grant_leases();

  Options options_;
  Roster roster_;  ///< Without the patterns, and of members what they said when they joined.
  std::map<ShardId, std::vector<SlotReport>> contents_;  ///< Of each trainer shard's slots.
  std::map<ShardId, std::uint64_t> stands_;  ///< Bytes of what each is writing, if there are any.
  std::map<Holder, std::uint64_t> held_;     ///< Whole versions, by where they lie.
  std::map<Holder, std::uint64_t> begun_;    ///< What all shards are writing, or have written.
  std::map<std::uint32_t, Target> targets_;  ///< By trainer replica.
  std::map<std::uint64_t, LiveLease> leases_;
  std::map<std::uint32_t, std::uint64_t> reading_;  ///< The lease of a replica that has one.
  std::map<Holder, std::size_t> read_;              ///< How many leases read it; not zero.
  std::map<std::uint64_t, Wish> wishes_;
  std::optional<std::uint64_t> ready_;  ///< The newest version that ever was.
  std::uint64_t begun_told_ = 0;        ///< The newest one.
  std::uint64_t next_number_ = 1;       ///< Of leases and requests.
  std::vector<LedgerEffect> effects_;
};

}  // namespace weir
