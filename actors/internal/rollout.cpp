#include <optional>

#include "actors/internal/seat.hpp"
#include "actors/internal/shards.hpp"
#include "actors/shard_state.hpp"

namespace weir {
namespace {

class Rollout {
 public:
  using Self = RolloutActor::stateful_pointer<Rollout>;
  using HeldPromise = caf::typed_response_promise<PlanHeld>;
  using FetchPromise = caf::typed_response_promise<Fetched>;
  using VersionPromise = caf::typed_response_promise<std::uint64_t>;
  static constexpr const char* name = "rollout";

  explicit Rollout(Self self) : self_(self) {}

  RolloutActor::behavior_type serve(const ShardConfig& config) {
    state_.emplace(config.shard);
    seat_.emplace(self_, config);
    seat_->join();
    return {
        [this](PlanAtom, const Payload& payload) { return take(payload); },
        [this](FetchAtom, std::uint64_t version, Duration deadline) {
          return fetch(version, deadline);
        },
        [this](CommitAtom, std::uint64_t version) { return commit(version); },
        [this](VerifyAtom, std::uint64_t version, Duration deadline) {
          return verify(version, deadline);
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
    auto decoded = plan_of(payload);
    if (!decoded) return promise.deliver(to_caf(decoded.error()));
    if (const auto taken = state_->accept(*decoded); !taken) {
      return promise.deliver(to_caf(taken.error()));
    }
    const auto plan = std::make_shared<const Plan>(std::move(*decoded));
    self_->request(seat_->config().transport, answer_deadline, PrepareAtom::value, PlanPtr{plan})
        .then(
            [this, promise, digest = plan->digest](std::uint64_t bytes) mutable {
              state_->prepared();
              promise.deliver(PlanHeld{digest, bytes});
            },
            [promise](caf::error& error) mutable { promise.deliver(to_caf(from_caf(error))); });
    return promise;
  }

  FetchPromise fetch(std::uint64_t version, Duration deadline) {
    auto promise = self_->make_response_promise<FetchPromise>();
    if (const auto begun = state_->begin_fetch(version); !begun) {
      return promise.deliver(to_caf(begun.error()));
    }
    self_->request(seat_->config().transport, deadline, FetchAtom::value, version)
        .then(
            [this, promise](const Fetched& fetched) mutable {
              state_->end_fetch(true);
              promise.deliver(fetched);
            },
            [this, promise](caf::error& error) mutable {
              state_->end_fetch(false);
              promise.deliver(to_caf(from_caf(error)));
            });
    return promise;
  }

  VersionPromise commit(std::uint64_t version) {
    auto promise = self_->make_response_promise<VersionPromise>();
    if (const auto committed = state_->commit(version); !committed) {
      return promise.deliver(to_caf(committed.error()));
    }
    return promise.deliver(version);
  }

  VersionPromise verify(std::uint64_t version, Duration deadline) {
    auto promise = self_->make_response_promise<VersionPromise>();
    if (const auto begun = state_->begin_verify(version); !begun) {
      return promise.deliver(to_caf(begun.error()));
    }
    self_->request(seat_->config().engine, deadline, VerifyAtom::value, version)
        .then(
            [this, promise](std::uint64_t done) mutable {
              state_->end_verify();
              promise.deliver(done);
            },
            [this, promise](caf::error& error) mutable {
              state_->end_verify();
              promise.deliver(to_caf(from_caf(error)));
            });
    return promise;
  }

  Self self_;
  std::optional<RolloutState> state_;
  std::optional<Seat<Self>> seat_;
};

}  // namespace

RolloutActor spawn_rollout(caf::actor_system& system, const ShardConfig& config) {
  return system.spawn(
      [](Rollout::Self self, const ShardConfig& own) { return self->state.serve(own); }, config);
}

}  // namespace weir
