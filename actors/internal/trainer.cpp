#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/internal/seat.hpp"
#include "actors/internal/shards.hpp"
#include "actors/shard_state.hpp"

namespace weir {
namespace {

class Trainer {
 public:
  using Self = TrainerHostActor::stateful_pointer<Trainer>;
  using HeldPromise = caf::typed_response_promise<PlanHeld>;
  using VersionPromise = caf::typed_response_promise<std::uint64_t>;
  using AcquiredPromise = caf::typed_response_promise<Acquired>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "trainer";

  explicit Trainer(Self self) : self_(self) {}

  TrainerHostActor::behavior_type serve(const ShardConfig& config) {
    state_.emplace(config.shard, config.slots);
    seat_.emplace(self_, config,
                  Seat<Self>::Shard{[this] { return state_->status(); },
                                    [this](std::uint64_t seat) { state_->seated(seat); },
                                    [this] { lost(); }, [this] { answer_all(); }});
    seat_->join();
    return {
        [this](PlanAtom, std::uint64_t seat, const Payload& payload) {
          return take(seat, payload);
        },
        [this](RejoinAtom) { seat_->lose(); },
        [this](EndAtom, const Ending& ending) {
          seat_->leave(from_ending(ending));
          return caf::ok_atom::value;
        },
        [this](UpdateAtom, std::uint64_t seat, std::uint64_t version, Duration deadline) {
          return update(seat, version, deadline);
        },
        [this](AcquireAtom, std::uint64_t version, Duration deadline) {
          return acquire(version, deadline);
        },
        [this](StandAtom atom, std::uint64_t version, std::uint64_t bytes) {
          if (holding_ && state_->writes(version)) {
            self_->send(*seat_->exchange(), atom, version, bytes);
          }
        },
        [this](StagedAtom, std::uint64_t version) { return staged(version); },
        [this](RetryAtom, std::uint64_t attempt) {
          expire();
          seat_->retry(attempt);
        },
    };
  }

 private:
  using Time = caf::actor_clock::time_point;
  /// What the host program wants of the ledger: kept until it is answered, over any number of
  /// exchanges.
  struct Wish {
    std::uint64_t version = 0;
    Time until{};
    AcquiredPromise promise;
  };
  struct Stand {
    Time until{};
    OkPromise promise;
  };

  /// What was ordered before the exchange was lost may come after.
  [[nodiscard]] Result<void> obey(std::uint64_t seat) const {
    if (seat_->exchange() == nullptr) {
      return failure(ErrorCode::refused, text_of(seat_->config().shard) + " has no seat just now");
    }
    return state_->obey(seat);
  }

  HeldPromise take(std::uint64_t seat, const Payload& payload) {
    auto promise = self_->make_response_promise<HeldPromise>();
    const auto plan = plan_of(payload);
    if (!plan) return promise.deliver(to_caf(plan.error()));
    Result<void> taken = obey(seat);
    if (taken) taken = state_->accept(seat, *plan);
    if (!taken) return promise.deliver(to_caf(taken.error()));
    promise.deliver(PlanHeld{plan->digest, 0});
    if (!std::exchange(holding_, true)) {
      if (wish_) ask();
      for (const auto& [version, stand] : stands_) tell(version);
    }
    return promise;
  }

  void lost() {
    holding_ = false;
    ++ask_number_;
    seat_->join();
  }

  // ---- writing a version -------------------------------------------------------------------

  AcquiredPromise acquire(std::uint64_t version, Duration wanted) {
    const Duration deadline = bounded(wanted);
    auto promise = self_->make_response_promise<AcquiredPromise>();
    if (wish_) {
      return promise.deliver(to_caf({ErrorCode::refused, "another begin_update is waiting"}));
    }
    if (const auto wants = state_->wants(version); !wants) {
      return promise.deliver(to_caf(wants.error()));
    }
    wish_ = Wish{version, self_->clock().now() + deadline, promise};
    self_->delayed_send(self_, deadline + answer_grace, RetryAtom::value, no_attempt);
    if (holding_) ask();
    return promise;
  }

  void ask() {
    const std::uint64_t number = ++ask_number_;
    const Duration left = wish_->until - self_->clock().now();
    if (left < Duration::zero()) return end_wish({ErrorCode::timeout, late_text(wish_->version)});
    self_
        ->request(*seat_->exchange(), left + answer_grace, AcquireAtom::value, wish_->version, left)
        .then(
            [this, number](const Acquired& acquired) {
              if (!wish_ || number != ask_number_ || wish_->version != acquired.version) return;
              const auto taken = state_->acquired(acquired.version, acquired.slot);
              if (!taken) return end_wish(taken.error());
              auto promise = std::move(wish_->promise);
              wish_.reset();
              promise.deliver(acquired);
            },
            [this, number](caf::error& error) {
              // With its exchange the question is lost; it is asked again from the next seat.
              if (wish_ && number == ask_number_ && !is_death(error)) end_wish(from_caf(error));
            });
  }

  /// What no exchange has answered in time.
  void expire() {
    const Time now = self_->clock().now();
    if (wish_ && now >= wish_->until + answer_grace) {
      end_wish({ErrorCode::timeout, late_text(wish_->version)});
    }
    std::vector<std::uint64_t> late;
    for (const auto& [version, stand] : stands_) {
      if (now >= stand.until) late.push_back(version);
    }
    for (const std::uint64_t version : late) {
      end_stand(version, Error{ErrorCode::timeout, late_text(version)});
    }
  }

  void answer_all() {
    const Error why{ErrorCode::unavailable, text_of(seat_->config().shard) + " has ended"};
    if (wish_) end_wish(why);
    for (auto& [version, stand] : std::exchange(stands_, {})) stand.promise.deliver(to_caf(why));
  }

  void end_wish(const Error& why) {
    auto promise = std::move(wish_->promise);
    wish_.reset();
    promise.deliver(to_caf(why));
  }

  std::string late_text(std::uint64_t version) const {
    return text_of(seat_->config().shard) + " found no exchange in time to publish version " +
           std::to_string(version);
  }

  OkPromise staged(std::uint64_t version) {
    auto promise = self_->make_response_promise<OkPromise>();
    if (const auto stands = state_->staged(version); !stands) {
      return promise.deliver(to_caf(stands.error()));
    }
    stands_[version] = Stand{self_->clock().now() + answer_deadline, promise};
    self_->delayed_send(self_, answer_deadline, RetryAtom::value, no_attempt);
    if (holding_) tell(version);
    seat_->lose_if_struck("trainer: the seat is lost with a version staged");
    return promise;
  }

  void tell(std::uint64_t version) {
    self_->request(*seat_->exchange(), answer_deadline, StagedAtom::value, version)
        .then([this, version](caf::ok_atom) { end_stand(version, {}); },
              [this, version](caf::error& error) {
                if (!is_death(error)) end_stand(version, from_caf(error));
              });
  }

  void end_stand(std::uint64_t version, const std::optional<Error>& why) {
    const auto found = stands_.find(version);
    if (found == stands_.end()) return;
    auto promise = std::move(found->second.promise);
    stands_.erase(found);
    if (why) {
      promise.deliver(to_caf(*why));
    } else {
      promise.deliver(caf::ok_atom::value);
    }
  }

  // ---- for the owner of the exchange -------------------------------------------------------

  /// Room, then the host program's hook, then the word that the bytes stand.
  VersionPromise update(std::uint64_t seat, std::uint64_t version, Duration wanted) {
    const Duration deadline = bounded(wanted);
    auto promise = self_->make_response_promise<VersionPromise>();
    if (const auto ours = obey(seat); !ours) return promise.deliver(to_caf(ours.error()));
    const auto fail = [promise](const caf::error& error) mutable {
      promise.deliver(to_caf(from_caf(error)));
    };
    const TrainerHostActor own{self_};
    const EngineActor engine = seat_->config().engine;
    self_->request(own, deadline + answer_grace, AcquireAtom::value, version, deadline)
        .then(
            [this, promise, own, engine, deadline, fail](const Acquired& acquired) mutable {
              const EngineOrder order{0, acquired.version, acquired.slot, InFlight::keep, deadline};
              self_->request(engine, deadline, UpdateAtom::value, order)
                  .then(
                      [this, promise, own, fail](std::uint64_t done) mutable {
                        self_->request(own, answer_deadline, StagedAtom::value, done)
                            .then([promise, done](caf::ok_atom) mutable { promise.deliver(done); },
                                  fail);
                      },
                      [this, promise, deadline](caf::error& error) mutable {
                        if (is_late(error)) return seat_->leave_late_engine(promise, deadline);
                        promise.deliver(to_caf(from_caf(error)));
                      });
            },
            fail);
    return promise;
  }

  static constexpr Duration answer_grace = std::chrono::seconds(5);
  static constexpr std::uint64_t no_attempt = 0;

  Self self_;
  std::optional<TrainerState> state_;
  std::optional<Seat<Self>> seat_;
  /// Its part of the plan. Before, the ledger does not know it.
  bool holding_ = false;
  std::uint64_t ask_number_ = 0;  ///< Answers to earlier questions say nothing.
  std::optional<Wish> wish_;
  std::map<std::uint64_t, Stand> stands_;  ///< By version.
};

}  // namespace

TrainerHostActor spawn_trainer(caf::actor_system& system, const ShardConfig& config) {
  return system.spawn(
      [](Trainer::Self self, const ShardConfig& own) { return self->state.serve(own); }, config);
}

}  // namespace weir
