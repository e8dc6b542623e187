#include "actors/internal/ledger.hpp"

#include <optional>

#include "actors/internal/keeper.hpp"
#include "actors/ledger_state.hpp"

namespace weir {
namespace {

class Ledger {
 public:
  using Self = LedgerActor::stateful_pointer<Ledger>;
  using NumberPromise = caf::typed_response_promise<std::uint64_t>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "ledger";

  explicit Ledger(Self self) : self_(self) {}

  LedgerActor::behavior_type serve(const SupervisorActor& supervisor,
                                   const std::vector<Member>& trainers) {
    trainers_ = trainers;
    std::vector<ShardId> shards;
    shards.reserve(trainers.size());
    for (const Member& trainer : trainers) shards.push_back(trainer.shard);
    state_.emplace(shards);
    keeper_.emplace(self_, supervisor, trainers,
                    [this](const ShardId& shard) { return state_->doing(shard); });
    return {
        [this](PublishAtom, std::uint64_t version, Duration deadline) {
          return publish(version, deadline);
        },
        [this](LeaseAtom, std::uint64_t version, std::uint32_t replica) {
          auto promise = self_->make_response_promise<NumberPromise>();
          const auto lease = state_->lease(version, replica);
          return lease ? promise.deliver(*lease) : promise.deliver(to_caf(lease.error()));
        },
        [this](ReleaseAtom, std::uint64_t lease) {
          auto promise = self_->make_response_promise<OkPromise>();
          const auto released = state_->release(lease);
          return released ? promise.deliver(caf::ok_atom::value)
                          : promise.deliver(to_caf(released.error()));
        },
    };
  }

 private:
  NumberPromise publish(std::uint64_t version, Duration deadline) {
    auto promise = self_->make_response_promise<NumberPromise>();
    if (const auto begun = state_->begin(version); !begun) {
      return promise.deliver(to_caf(begun.error()));
    }
    ready_promise_ = promise;
    for (const Member& trainer : trainers_) {
      self_
          ->request(caf::actor_cast<TrainerActor>(trainer.handle), deadline, UpdateAtom::value,
                    version, deadline)
          .then([this, shard = trainer.shard](std::uint64_t staged) { stage(shard, staged); },
                [this, shard = trainer.shard, deadline](caf::error& error) {
                  keeper_->failed(shard, error, deadline);
                });
    }
    return promise;
  }

  void stage(const ShardId& shard, std::uint64_t version) {
    const auto ready = state_->staged(version, shard);
    if (!ready) return keeper_->fail(ready.error());
    if (*ready) ready_promise_.deliver(version);
  }

  Self self_;
  std::vector<Member> trainers_;
  std::optional<LedgerState> state_;
  std::optional<Keeper<Self>> keeper_;
  NumberPromise ready_promise_;
};

}  // namespace

LedgerActor spawn_ledger(caf::actor_system& system, const SupervisorActor& supervisor,
                         const std::vector<Member>& trainers) {
  return system.spawn([](Ledger::Self self, const SupervisorActor& owner,
                         const std::vector<Member>& own) { return self->state.serve(owner, own); },
                      supervisor, trainers);
}

}  // namespace weir
