#include <optional>

#include "actors/internal/seat.hpp"
#include "actors/internal/shards.hpp"
#include "actors/shard_state.hpp"

namespace weir {
namespace {

class Rollout {
 public:
  using Self = RolloutSelfActor::stateful_pointer<Rollout>;
  using HeldPromise = caf::typed_response_promise<PlanHeld>;
  using FetchPromise = caf::typed_response_promise<Fetched>;
  using VersionPromise = caf::typed_response_promise<std::uint64_t>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "rollout";

  explicit Rollout(Self self) : self_(self) {}

  RolloutSelfActor::behavior_type serve(const ShardConfig& config) {
    state_.emplace(config.shard, config.placement);
    seat_.emplace(self_, config,
                  Seat<Self>::Shard{[this] { return state_->status(); },
                                    [this](std::uint64_t seat) { state_->seated(seat); },
                                    [this] { lost(); }, [] {}});
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
        [this](FetchAtom, const FetchOrder& order) { return fetch(order); },
        [this](StandAtom atom, const Standing& standing) {
          // A transport has no order of anybody else's.
          if (obey(standing.seat)) self_->send(seat_->config().transport, atom, standing);
        },
        [this](CancelAtom, std::uint64_t seat) { return cancel(seat); },
        [this](PauseAtom atom, const EngineOrder& order) {
          return ask_engine(atom, order,
                            [this](const EngineOrder&) { return state_->begin_pause(); });
        },
        [this](InstallAtom atom, const EngineOrder& order) {
          return ask_engine(atom, order, [this](const EngineOrder& own) {
            return state_->begin_install(own.version, own.slot);
          });
        },
        [this](ResumeAtom atom, const EngineOrder& order) {
          return ask_engine(atom, order, [this](const EngineOrder& own) {
            return state_->begin_resume(own.version);
          });
        },
        [this](VerifyAtom, const EngineOrder& order) { return verify(order); },
        [this](RetryAtom, std::uint64_t attempt) { seat_->retry(attempt); },
    };
  }

 private:
  /// What was ordered before the exchange was lost may come after: the shard has then said already
  /// what it has.
  [[nodiscard]] Result<void> obey(std::uint64_t seat) const {
    if (seat_->exchange() == nullptr) {
      return failure(ErrorCode::refused, text_of(seat_->config().shard) + " has no seat just now");
    }
    return state_->obey(seat);
  }

  HeldPromise take(std::uint64_t seat, const Payload& payload) {
    auto promise = self_->make_response_promise<HeldPromise>();
    auto decoded = plan_of(payload);
    if (!decoded) return promise.deliver(to_caf(decoded.error()));
    Result<void> taken = obey(seat);
    if (taken) taken = state_->accept(seat, *decoded);
    if (!taken) return promise.deliver(to_caf(taken.error()));
    plan_ = std::make_shared<const Plan>(std::move(*decoded));
    if (plan_promise_.pending()) {
      plan_promise_.deliver(to_caf({ErrorCode::refused, "another plan has come"}));
    }
    plan_promise_ = promise;
    if (!state_->fetching()) prepare();
    return promise;
  }

  /// A plan that comes while a fetch runs is for the next one.
  void prepare() {
    if (!plan_) return;
    auto promise = std::exchange(plan_promise_, HeldPromise{});
    const PlanPtr plan = std::exchange(plan_, nullptr);
    self_->request(seat_->config().transport, answer_deadline, PrepareAtom::value, plan)
        .then(
            [promise, digest = plan->digest](std::uint64_t bytes) mutable {
              promise.deliver(PlanHeld{digest, bytes});
            },
            [promise](caf::error& error) mutable { promise.deliver(to_caf(from_caf(error))); });
  }

  FetchPromise fetch(const FetchOrder& order) {
    auto promise = self_->make_response_promise<FetchPromise>();
    seat_->lose_if_struck("rollout: the seat is lost before a fetch");
    Result<void> begun = obey(order.seat);
    if (begun) begun = state_->begin_fetch(order.version, order.target_slot);
    if (!begun) return promise.deliver(to_caf(begun.error()));
    self_
        ->request(seat_->config().transport, bounded(order.deadline) + answer_deadline,
                  FetchAtom::value, order)
        .then(
            [this, promise](const Fetched& fetched) mutable {
              end_fetch(fetched.whole);
              promise.deliver(fetched);
            },
            [this, promise](caf::error& error) mutable {
              end_fetch(false);
              promise.deliver(to_caf(from_caf(error)));
            });
    return promise;
  }

  void end_fetch(bool whole) {
    state_->end_fetch(whole);
    prepare();
    join_when_idle();
  }

  OkPromise cancel(std::uint64_t seat) {
    auto promise = self_->make_response_promise<OkPromise>();
    if (const auto ours = obey(seat); !ours) return promise.deliver(to_caf(ours.error()));
    self_->request(seat_->config().transport, answer_deadline, CancelAtom::value)
        .then([promise](caf::ok_atom ok) mutable { promise.deliver(ok); },
              [promise](caf::error& error) mutable { promise.deliver(to_caf(from_caf(error))); });
    return promise;
  }

  /// Pause, install, resume: one at a time.
  template <class Atom, class Begin>
  VersionPromise ask_engine(Atom atom, const EngineOrder& order, const Begin& begin) {
    auto promise = self_->make_response_promise<VersionPromise>();
    seat_->lose_if_struck("rollout: the seat is lost before a hook");
    Result<void> begun = obey(order.seat);
    if (begun && order.in_flight > InFlight::abort_and_requeue) {
      begun = failure(ErrorCode::invalid, "no known way to treat generations in flight");
    }
    if (begun) begun = begin(order);
    if (!begun) return promise.deliver(to_caf(begun.error()));
    self_->request(seat_->config().engine, bounded(order.deadline), atom, order)
        .then(
            [this, promise](std::uint64_t done) mutable {
              end_order(true);
              promise.deliver(done);
            },
            [this, promise, deadline = bounded(order.deadline)](caf::error& error) mutable {
              if (is_late(error)) return seat_->leave_late_engine(promise, deadline);
              end_order(false);
              promise.deliver(to_caf(from_caf(error)));
            });
    return promise;
  }

  void end_order(bool well) {
    state_->end_order(well);
    join_when_idle();
  }

  VersionPromise verify(const EngineOrder& order) {
    auto promise = self_->make_response_promise<VersionPromise>();
    Result<void> ours = obey(order.seat);
    if (ours && (order.version == 0 || order.version != state_->status().installed)) {
      ours = failure(ErrorCode::refused, text_of(seat_->config().shard) + " can't verify version " +
                                             std::to_string(order.version) +
                                             ": it is not what it serves");
    }
    if (!ours) return promise.deliver(to_caf(ours.error()));
    EngineOrder own = order;
    own.slot = state_->status().installed_slot;
    self_->request(seat_->config().engine, bounded(order.deadline), VerifyAtom::value, own)
        .then([promise](std::uint64_t done) mutable { promise.deliver(done); },
              [promise](caf::error& error) mutable { promise.deliver(to_caf(from_caf(error))); });
    return promise;
  }

  /// What was ordered is over before the shard says what it has.
  void lost() {
    joining_ = true;
    if (state_->fetching()) {
      self_->request(seat_->config().transport, answer_deadline, CancelAtom::value)
          .then([](caf::ok_atom) {}, [](caf::error&) {});
    }
    join_when_idle();
  }

  void join_when_idle() {
    if (!joining_ || state_->fetching() || state_->ordered()) return;
    joining_ = false;
    seat_->join();
  }

  Self self_;
  std::optional<RolloutState> state_;
  std::optional<Seat<Self>> seat_;
  PlanPtr plan_;  ///< Not prepared yet.
  HeldPromise plan_promise_;
  bool joining_ = false;
};

}  // namespace

RolloutActor spawn_rollout(caf::actor_system& system, const ShardConfig& config) {
  return system.spawn(
      [](Rollout::Self self, const ShardConfig& own) { return self->state.serve(own); }, config);
}

}  // namespace weir
