#include "actors/internal/ledger.hpp"

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "actors/internal/errors.hpp"
#include "actors/ledger_state.hpp"

namespace weir {
namespace {

/// What is left for the answer once those who read have lost their leases.
constexpr Duration press_grace = std::chrono::seconds(1);

/// Readers are told at most this often how much stands of a version that is being written. It is
/// little beside what a version of gigabytes takes, and much beside what telling all of them costs.
constexpr Duration standing_interval = std::chrono::milliseconds(5);

class Ledger {
 public:
  using Self = LedgerActor::stateful_pointer<Ledger>;
  using AcquiredPromise = caf::typed_response_promise<Acquired>;
  using LeasePromise = caf::typed_response_promise<Lease>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "ledger";

  explicit Ledger(Self self) : self_(self) {}

  LedgerActor::behavior_type serve(const ExchangeOptions& options,
                                   const SupervisorActor& supervisor) {
    supervisor_ = supervisor;
    buggify_ = options.buggify;
    state_.emplace(
        LedgerState::Options{.when_full = options.when_full, .versions_max = options.versions_max});
    return {
        [this](RosterAtom, const FormationPtr& formation) {
          state_->update(formation->roster);
          tell();
        },
        [this](AcquireAtom, const ShardId& shard, std::uint64_t version, Duration deadline) {
          return acquire(shard, version, deadline);
        },
        [this](StandAtom, const ShardId& shard, std::uint64_t version, std::uint64_t bytes) {
          state_->standing(shard, version, bytes);
          tell_standing_soon();
          tell();
        },
        [this](StagedAtom, const ShardId& shard, std::uint64_t version) {
          tell_standing_soon();
          return answer<OkPromise>(state_->staged(shard, version), caf::ok_atom::value);
        },
        [this](LeaseAtom, const LeaseRequest& request) { return lease(request); },
        [this](RenewAtom, std::uint64_t number, const ShardId& failed) {
          const auto renewed = state_->renew(number, failed);
          return answer<LeasePromise>(renewed, renewed ? *renewed : Lease{});
        },
        [this](ConfirmAtom, std::uint64_t number) {
          return answer<OkPromise>(state_->confirm(number), caf::ok_atom::value);
        },
        [this](ReleaseAtom, std::uint64_t number) {
          state_->release(number);
          tell();
        },
        [this](CommitAtom, const Committed& done) {
          state_->committed(done.replica, done.version, done.slot, done.term);
          tell();
        },
        [this](LateAtom, const ShardId& shard, std::uint64_t number) { late(shard, number); },
        [this](LateAtom, std::uint64_t number) { late(number); },
        [this](LateAtom) {
          telling_ = false;
          state_->tell_standing();
          tell();
        },
    };
  }

 private:
  struct Writer {
    std::uint64_t number = 0;
    std::uint64_t version = 0;
    bool pressed = false;
    AcquiredPromise promise;
  };
  struct Reader {
    Duration deadline{};
    LeasePromise promise;
  };

  template <class Promise, class Outcome, class Value>
  Promise answer(const Outcome& outcome, const Value& value) {
    auto promise = self_->make_response_promise<Promise>();
    if (outcome) {
      promise.deliver(value);
    } else {
      promise.deliver(to_caf(outcome.error()));
    }
    tell();
    return promise;
  }

  AcquiredPromise acquire(const ShardId& shard, std::uint64_t version, Duration deadline) {
    auto promise = self_->make_response_promise<AcquiredPromise>();
    const auto wanted = state_->acquire(shard, version);
    if (!wanted) {
      promise.deliver(to_caf(wanted.error()));
    } else {
      end_writer(shard, Error{ErrorCode::refused, "it asked again"});
      const std::uint64_t number = next_writer_++;
      writers_[shard] = Writer{number, version, false, promise};
      self_->delayed_send(self_, bounded(deadline), LateAtom::value, shard, number);
    }
    tell();
    return promise;
  }

  void end_writer(const ShardId& shard, const Error& why) {
    const auto found = writers_.find(shard);
    if (found == writers_.end()) return;
    auto promise = std::move(found->second.promise);
    writers_.erase(found);
    promise.deliver(to_caf(why));
  }

  /// First the readers lose their leases; whoever waits for anything else has waited long enough.
  void late(const ShardId& shard, std::uint64_t number) {
    const auto found = writers_.find(shard);
    if (found == writers_.end() || found->second.number != number) return;
    if (!found->second.pressed) {
      found->second.pressed = true;
      self_->delayed_send(self_, press_grace, LateAtom::value, shard, number);
      state_->press(shard);
      return tell();
    }
    const std::uint64_t version = found->second.version;
    end_writer(shard, {ErrorCode::timeout, text_of(shard) + " can't write version " +
                                               std::to_string(version) + ": it still waits for " +
                                               state_->forget(shard)});
    tell();
  }

  LeasePromise lease(const LeaseRequest& request) {
    auto promise = self_->make_response_promise<LeasePromise>();
    if (strikes(buggify_, "ledger: no lease is to be had just now")) {
      return promise.deliver(to_caf({ErrorCode::refused, "not now"}));
    }
    const std::uint64_t number =
        state_->lease(request.version, request.replica, request.target_slot, request.term);
    readers_[number] = Reader{request.deadline, promise};
    self_->delayed_send(self_, request.deadline, LateAtom::value, number);
    tell();
    return promise;
  }

  /// A request or a lease: their numbers are one sequence.
  void late(std::uint64_t number) {
    state_->expire(number);
    tell();
  }

  void tell_standing_soon() {
    if (std::exchange(telling_, true)) return;
    self_->delayed_send(self_, standing_interval, LateAtom::value);
  }

  void tell() {
    for (LedgerEffect& effect : state_->take_effects()) {
      std::visit([this](auto& one) { carry_out(one); }, effect);
    }
  }

  void carry_out(const ledger::Granted& granted) {
    const auto found = writers_.find(granted.shard);
    if (found == writers_.end() || found->second.version != granted.version) return;
    auto promise = std::move(found->second.promise);
    writers_.erase(found);
    promise.deliver(Acquired{granted.version, granted.slot});
  }
  void carry_out(const ledger::Superseded& superseded) {
    end_writer(superseded.shard,
               {ErrorCode::refused,
                "version " + std::to_string(superseded.version) + " was given up for a newer one"});
  }
  void carry_out(ledger::Leased& leased) {
    const auto found = readers_.find(leased.request);
    auto [deadline, promise] = std::move(found->second);
    readers_.erase(found);
    if (strikes(buggify_, "ledger: a lease ends as it begins")) deadline = Duration::zero();
    self_->delayed_send(self_, deadline, LateAtom::value, leased.lease.number);
    promise.deliver(std::move(leased.lease));
  }
  void carry_out(const ledger::NotLeased& refused) {
    const auto found = readers_.find(refused.request);
    auto promise = std::move(found->second.promise);
    readers_.erase(found);
    promise.deliver(to_caf(refused.why));
  }
  void carry_out(const ledger::Revoked& revoked) {
    self_->send(supervisor_, RevokedAtom::value, revoked.lease, revoked.replica);
  }
  void carry_out(const ledger::Ready& ready) {
    self_->send(supervisor_, AnnounceAtom::value, ready.version);
  }
  void carry_out(const ledger::Begun& begun) {
    self_->send(supervisor_, BeginAtom::value, begun.version);
  }
  void carry_out(ledger::Standing& standing) {
    if (strikes(buggify_, "ledger: word of what stands is lost")) return;
    self_->send(supervisor_, StandAtom::value, standing.replica,
                Standing{0, standing.lease, std::move(standing.stands)});
  }

  Self self_;
  SupervisorActor supervisor_;
  Buggify buggify_;
  std::optional<LedgerState> state_;
  std::map<ShardId, Writer> writers_;
  std::map<std::uint64_t, Reader> readers_;
  std::uint64_t next_writer_ = 1;
  bool telling_ = false;  ///< It will soon tell how much stands.
};

}  // namespace

LedgerActor spawn_ledger(caf::actor_system& system, const ExchangeOptions& options,
                         const SupervisorActor& supervisor) {
  return system.spawn([](Ledger::Self self, const ExchangeOptions& own,
                         const SupervisorActor& owner) { return self->state.serve(own, owner); },
                      options, supervisor);
}

}  // namespace weir
