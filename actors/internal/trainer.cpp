#include <optional>

#include "actors/internal/seat.hpp"
#include "actors/internal/shards.hpp"
#include "actors/shard_state.hpp"

namespace weir {
namespace {

class Trainer {
 public:
  using Self = TrainerActor::stateful_pointer<Trainer>;
  using HeldPromise = caf::typed_response_promise<PlanHeld>;
  using VersionPromise = caf::typed_response_promise<std::uint64_t>;
  static constexpr const char* name = "trainer";

  explicit Trainer(Self self) : self_(self) {}

  TrainerActor::behavior_type serve(const ShardConfig& config) {
    state_.emplace(config.shard);
    seat_.emplace(self_, config);
    seat_->join();
    return {
        [this](PlanAtom, const Payload& payload) { return take(payload); },
        [this](UpdateAtom, std::uint64_t version, Duration deadline) {
          return update(version, deadline);
        },
        [this](EndAtom, const Ending& ending) {
          seat_->leave(from_ending(ending));
          return caf::ok_atom::value;
        },
    };
  }

 private:
  HeldPromise take(const Payload& payload) {
    auto promise = self_->make_response_promise<HeldPromise>();
    const auto plan = plan_of(payload);
    if (!plan) return promise.deliver(to_caf(plan.error()));
    if (const auto taken = state_->accept(*plan); !taken) {
      return promise.deliver(to_caf(taken.error()));
    }
    return promise.deliver(PlanHeld{plan->digest, 0});
  }

  VersionPromise update(std::uint64_t version, Duration deadline) {
    auto promise = self_->make_response_promise<VersionPromise>();
    if (const auto begun = state_->begin_update(version); !begun) {
      return promise.deliver(to_caf(begun.error()));
    }
    self_->request(seat_->config().engine, deadline, UpdateAtom::value, version)
        .then(
            [this, promise](std::uint64_t done) mutable {
              state_->end_update();
              promise.deliver(done);
            },
            [this, promise](caf::error& error) mutable {
              state_->end_update();
              promise.deliver(to_caf(from_caf(error)));
            });
    return promise;
  }

  Self self_;
  std::optional<TrainerState> state_;
  std::optional<Seat<Self>> seat_;
};

}  // namespace

TrainerActor spawn_trainer(caf::actor_system& system, const ShardConfig& config) {
  return system.spawn(
      [](Trainer::Self self, const ShardConfig& own) { return self->state.serve(own); }, config);
}

}  // namespace weir
