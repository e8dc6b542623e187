#include "actors/internal/coordinator.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <variant>

#include "actors/internal/errors.hpp"
#include "actors/replica_state.hpp"

namespace weir {
namespace {

/// Doubled at every attempt that fails, this many times at most.
constexpr std::uint32_t retry_doublings_max = 6;
/// For the ledger, which keeps the deadline that it is told.
constexpr Duration ledger_grace = std::chrono::seconds(10);

class Coordinator {
 public:
  using Self = CoordinatorActor::stateful_pointer<Coordinator>;
  using VerifyPromise = caf::typed_response_promise<Duration>;
  static constexpr const char* name = "coordinator";

  explicit Coordinator(Self self) : self_(self) {}

  CoordinatorActor::behavior_type serve(const ExchangeOptions& options,
                                        const CoordinatorPeers& peers, std::uint32_t replica) {
    options_ = options;
    supervisor_ = peers.supervisor;
    ledger_ = peers.ledger;
    admission_ = peers.admission;
    life_ = peers.life;
    replica_ = replica;
    state_.emplace(replica, options.rollout_ranks, options.follow);
    return {
        [this](RosterAtom, const FormationPtr& formation) {
          notice_deaths(formation->roster);
          formation_ = formation;
          state_->update(formation->roster);
          act();
        },
        [this](AnnounceAtom, std::uint64_t version) {
          state_->announce(version);
          act();
        },
        [this](BeginAtom, std::uint64_t version) {
          if (strikes(options_.buggify, "coordinator: a version is not read early")) return;
          state_->begun(version);
          act();
        },
        [this](StandAtom, const Standing& standing) {
          state_->standing(standing.lease, standing.stands);
          act();
        },
        [this](RevokedAtom, std::uint64_t lease) {
          trouble_ = "rollout replica " + std::to_string(replica_) +
                     " lost its lease before it had all bytes";
          state_->revoked(lease);
          act();
        },
        [this](RetryAtom, std::uint64_t number) {
          state_->retry(number);
          act();
        },
        [this](VerifyAtom, std::uint64_t version, Duration deadline) {
          return verify(version, deadline);
        },
    };
  }

 private:
  using From = ReplicaState::From;

  void act() {
    // What is carried out may be answered at once, with new effects.
    for (auto effects = state_->take_effects(); !effects.empty();
         effects = state_->take_effects()) {
      for (const ReplicaEffect& effect : effects) {
        std::visit([this](const auto& one) { carry_out(one); }, effect);
      }
    }
  }

  void notice_deaths(const Roster& now) {
    for (std::uint32_t rank = 0; rank < options_.rollout_ranks; ++rank) {
      const MemberInfo* member = now.find(shard(rank));
      const std::uint64_t seat = state_->seat(rank);
      const bool same = member != nullptr && member->seat == seat;
      // What a new process's engine is asked to go on with, that engine never began.
      if (member != nullptr && !same && member->status.seat == 0) tell_admission(OutAtom::value);
      if (seat == 0 || same) continue;
      trouble_ = died(shard(rank), state_->doing(rank)).text;
    }
  }

  [[nodiscard]] ShardId shard(std::uint32_t rank) const { return {Side::rollout, replica_, rank}; }
  [[nodiscard]] From from(std::uint32_t rank) const { return {rank, state_->seat(rank)}; }
  [[nodiscard]] Duration now() const { return self_->clock().now().time_since_epoch(); }

  /// The handle of a shard that the state counts on is in the formation that it was told of.
  [[nodiscard]] RolloutActor handle(std::uint32_t rank) const {
    return caf::actor_cast<RolloutActor>(formation_->handles.at(shard(rank)));
  }

  // ---- the ledger ------------------------------------------------------------------------------

  void carry_out(const replica::AskLease& ask) {
    const Duration deadline = options_.lease_deadline;
    self_
        ->request(ledger_, deadline + ledger_grace, LeaseAtom::value,
                  LeaseRequest{ask.version, replica_, ask.slot, state_->term(), deadline})
        .then(
            [this](const Lease& lease) {
              leased_at_ = now();
              state_->leased(lease);
              act();
            },
            [this, version = ask.version](caf::error& error) {
              const Error why = from_caf(error);
              trouble_ = why.text;
              // Not where it is the ledger that is gone: then the exchange begins anew.
              if (why.code == ErrorCode::unavailable && !is_death(error)) {
                self_->send(supervisor_, FailAtom::value, version, why);
              }
              state_->not_leased();
              act();
            });
  }
  void carry_out(const replica::Renew& renew) {
    self_->request(ledger_, ledger_grace, RenewAtom::value, renew.lease, renew.failed)
        .then(
            [this](const Lease& lease) {
              state_->renewed(lease);
              act();
            },
            [this](caf::error& error) { not_renewed(from_caf(error)); });
  }
  void not_renewed(const Error& why) {
    trouble_ = why.text;
    state_->not_renewed();
    act();
  }
  void carry_out(const replica::Confirm& confirm) {
    self_->request(ledger_, ledger_grace, ConfirmAtom::value, confirm.lease)
        .then(
            [this](caf::ok_atom) {
              fetch_took_ = now() - leased_at_;
              state_->confirmed(
                  !strikes(options_.buggify, "coordinator: a confirmation is not believed"));
              act();
            },
            [this](caf::error& error) {
              trouble_ = from_caf(error).text;
              state_->confirmed(false);
              act();
            });
  }
  void carry_out(const replica::Release& release) {
    self_->send(ledger_, ReleaseAtom::value, release.lease);
  }

  // ---- shards ----------------------------------------------------------------------------------

  void carry_out(const replica::Fetch& fetch) {
    const auto routes = routes_for(formation_->roster, fetch.lease, shard(fetch.rank));
    if (!routes) {
      trouble_ = routes.error().text;
      return state_->unreadable(from(fetch.rank));
    }
    FetchOrder order;
    order.seat = state_->seat(fetch.rank);
    order.lease = fetch.lease.number;
    order.version = fetch.lease.version;
    order.target_slot = fetch.slot;
    order.by_source = routes->by_source;
    if (const MemberInfo* peer = formation_->roster.find(routes->peer)) {
      order.peer = routes->peer;
      order.peer_slots = peer->slots;
      order.peer_regions = peer->regions;
    }
    order.stands = fetch.lease.stands;
    order.deadline = options_.lease_deadline;
    self_->request(handle(fetch.rank), order.deadline + answer_deadline, FetchAtom::value, order)
        .then(
            [this, whom = from(fetch.rank)](const Fetched& fetched) {
              if (fetched.whole) {
                state_->fetched(whom, fetched.bytes);
              } else {
                trouble_ = text_of(fetched.failed) + " could not be read: " + one_line(fetched.why);
                state_->source_failed(whom, fetched.failed);
              }
              act();
            },
            [this, whom = from(fetch.rank), deadline = order.deadline](caf::error& error) {
              const Error why =
                  member_failed(shard(whom.rank), state_->doing(whom.rank), error, deadline);
              // One that says itself that the bytes took too long is not at fault.
              if (why.code == ErrorCode::timeout && !is_late(error)) {
                trouble_ = why.text;
                state_->unreadable(whom);
              } else {
                state_->fetch_failed(whom, why);
              }
              act();
            });
  }

  void carry_out(const replica::Tell& tell) {
    self_->send(handle(tell.rank), StandAtom::value,
                Standing{state_->seat(tell.rank), tell.lease, tell.stands});
  }

  void carry_out(const replica::Cancel& cancel) {
    self_
        ->request(handle(cancel.rank), answer_deadline, CancelAtom::value,
                  state_->seat(cancel.rank))
        .then(
            [this, whom = from(cancel.rank)](caf::ok_atom) {
              state_->cancelled(whom);
              act();
            },
            [this, whom = from(cancel.rank)](caf::error& error) {
              failed(whom, error, answer_deadline);
            });
  }

  /// Pause, install and resume are answered with the version that they were asked for.
  template <class Atom, class Done>
  void order(std::uint32_t rank, Atom atom, std::uint64_t version, std::uint32_t slot,
             Duration deadline, Done done) {
    const EngineOrder order{state_->seat(rank), version, slot, options_.in_flight, deadline};
    self_->request(handle(rank), deadline + answer_deadline, atom, order)
        .then(
            [this, done, whom = from(rank)](std::uint64_t) {
              done(whom);
              act();
            },
            [this, whom = from(rank), deadline](caf::error& error) {
              failed(whom, error, deadline);
            });
  }

  void failed(const From& whom, const caf::error& error, Duration deadline) {
    state_->failed(whom,
                   member_failed(shard(whom.rank), state_->doing(whom.rank), error, deadline));
    act();
  }

  void carry_out(const replica::Pause& pause) {
    if (!pausing_since_) pausing_since_ = now();
    tell_admission(PauseAtom::value);
    order(pause.rank, PauseAtom::value, pause.version, 0, options_.pause_deadline,
          [this](const From& whom) { state_->paused(whom); });
  }

  void carry_out(const replica::Install& install) {
    const EngineOrder order{state_->seat(install.rank), install.version, install.slot,
                            options_.in_flight, options_.install_deadline};
    self_
        ->request(handle(install.rank), order.deadline + answer_deadline, InstallAtom::value, order)
        .then(
            [this, whom = from(install.rank), install](std::uint64_t) {
              state_->installed(whom, install.version, install.slot);
              act();
            },
            [this, whom = from(install.rank), order](caf::error& error) {
              const Error why =
                  member_failed(shard(whom.rank), state_->doing(whom.rank), error, order.deadline);
              trouble_ = why.text;
              // An engine that says no can be asked for the version before; a silent one can't.
              if (why.code == ErrorCode::timeout || is_death(error)) {
                state_->failed(whom, why);
              } else {
                state_->install_failed(whom);
              }
              act();
            });
  }

  void carry_out(const replica::Resume& resume) {
    tell_admission(ResumeAtom::value, resume.version);
    order(resume.rank, ResumeAtom::value, resume.version, 0, options_.resume_deadline,
          [this](const From& whom) { state_->resumed(whom); });
  }

  // ---- the supervisor and admission ------------------------------------------------------------

  void carry_out(const replica::Expel& expel) {
    trouble_ = expel.why.text;
    self_->send(supervisor_, ExpelAtom::value, shard(expel.rank), expel.seat, expel.why);
  }
  void carry_out(const replica::Retry& retry) {
    const std::uint32_t doublings = std::min(retry.attempt - 1, retry_doublings_max);
    self_->delayed_send(self_, options_.retry_delay * (1U << doublings), RetryAtom::value,
                        retry.number);
  }
  void carry_out(const replica::Committed& done) {
    Committed committed;
    committed.replica = replica_;
    committed.version = done.version;
    committed.slot = done.slot;
    committed.term = state_->term();
    committed.superseded = state_->superseded();
    committed.bytes_moved = done.bytes_moved;
    committed.at = now();
    committed.fetch = std::exchange(fetch_took_, Duration{});
    if (pausing_since_) committed.paused = now() - *pausing_since_;
    pausing_since_.reset();
    if (done.readable) {
      if (strikes(options_.buggify, "coordinator: word of a commit comes late")) {
        self_->delayed_send(ledger_, std::chrono::seconds(1), CommitAtom::value, committed);
      } else {
        self_->send(ledger_, CommitAtom::value, committed);
      }
    }
    tell_admission(ServeAtom::value, done.version);
    self_->send(supervisor_, CommitAtom::value, committed);
  }
  void carry_out(const replica::Out& out) {
    const std::string why =
        "rollout replica " + std::to_string(replica_) + " is out of service: " + out.why;
    tell_admission(OutAtom::value);
    self_->send(supervisor_, OutAtom::value, replica_, trouble_.empty() ? why : trouble_);
  }

  template <class Atom>
  void tell_admission(Atom atom, std::uint64_t version = 0) {
    self_->send(admission_, atom, ReplicaNews{life_, replica_, version});
  }

  // ---- verification ----------------------------------------------------------------------------

  struct Verification {
    VerifyPromise promise;
    Duration begun_at{};
    Duration slowest{};
    std::uint32_t left = 0;
  };

  VerifyPromise verify(std::uint64_t version, Duration deadline) {
    auto promise = self_->make_response_promise<VerifyPromise>();
    if (!state_->in_service() || state_->version() != version) {
      return promise.deliver(
          to_caf({ErrorCode::refused, "rollout replica " + std::to_string(replica_) +
                                          " does not serve version " + std::to_string(version)}));
    }
    const auto all = std::make_shared<Verification>(
        Verification{promise, now(), Duration{}, options_.rollout_ranks});
    for (std::uint32_t rank = 0; rank < options_.rollout_ranks; ++rank) {
      const EngineOrder order{state_->seat(rank), version, 0, options_.in_flight, deadline};
      self_->request(handle(rank), deadline, VerifyAtom::value, order)
          .then(
              [this, all](std::uint64_t) {
                all->slowest = std::max(all->slowest, now() - all->begun_at);
                if (--all->left == 0) all->promise.deliver(all->slowest);
              },
              [this, all, rank, deadline](caf::error& error) {
                const std::string doing = "verifying version " + std::to_string(state_->version());
                all->promise.deliver(to_caf(member_failed(shard(rank), doing, error, deadline)));
              });
    }
    return promise;
  }

  Self self_;
  ExchangeOptions options_;
  SupervisorActor supervisor_;
  LedgerActor ledger_;
  AdmissionActor admission_;
  std::uint64_t life_ = 0;
  std::uint32_t replica_ = 0;
  FormationPtr formation_;
  std::optional<ReplicaState> state_;
  std::string trouble_;  ///< The last, for the report that the replica is out of service.
  Duration leased_at_{};
  Duration fetch_took_{};
  std::optional<Duration> pausing_since_;
};

}  // namespace

CoordinatorActor spawn_coordinator(caf::actor_system& system, const ExchangeOptions& options,
                                   const CoordinatorPeers& peers, std::uint32_t replica) {
  return system.spawn(
      [](Coordinator::Self self, const ExchangeOptions& own, const CoordinatorPeers& others,
         std::uint32_t number) { return self->state.serve(own, others, number); },
      options, peers, replica);
}

}  // namespace weir
