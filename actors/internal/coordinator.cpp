#include "actors/internal/coordinator.hpp"

#include <algorithm>
#include <optional>

#include "actors/internal/keeper.hpp"
#include "actors/replica_state.hpp"

namespace weir {
namespace {

class Coordinator {
 public:
  using Self = CoordinatorActor::stateful_pointer<Coordinator>;
  using AdvancePromise = caf::typed_response_promise<Advanced>;
  using VerifyPromise = caf::typed_response_promise<Duration>;
  static constexpr const char* name = "coordinator";

  explicit Coordinator(Self self) : self_(self) {}

  CoordinatorActor::behavior_type serve(const SupervisorActor& supervisor,
                                        const LedgerActor& ledger, std::uint32_t replica,
                                        const std::vector<Member>& shards) {
    ledger_ = ledger;
    replica_ = replica;
    std::vector<std::uint64_t> bytes_needed;
    for (const Member& shard : shards) {
      handles_.push_back(caf::actor_cast<RolloutActor>(shard.handle));
      bytes_needed.push_back(shard.bytes_needed);
    }
    state_.emplace(replica, std::move(bytes_needed));
    keeper_.emplace(self_, supervisor, shards,
                    [this](const ShardId& shard) { return state_->doing(shard.rank); });
    return {
        [this](AdvanceAtom, std::uint64_t version, Duration deadline) {
          return advance(version, deadline);
        },
        [this](VerifyAtom, std::uint64_t version, Duration deadline) {
          return verify(version, deadline);
        },
    };
  }

 private:
  AdvancePromise advance(std::uint64_t version, Duration deadline) {
    advance_promise_ = self_->make_response_promise<AdvancePromise>();
    self_->request(ledger_, answer_deadline, LeaseAtom::value, version, replica_)
        .then(
            [this, version, deadline](std::uint64_t lease) {
              lease_ = lease;
              fetch(version, deadline);
            },
            [this](caf::error& error) { keeper_->fail(from_caf(error)); });
    return advance_promise_;
  }

  void fetch(std::uint64_t version, Duration deadline) {
    if (const auto begun = state_->begin(version); !begun) return keeper_->fail(begun.error());
    ask_all<Fetched>(
        deadline,
        [this, version](std::uint32_t rank, const Fetched& fetched) {
          advance_on(state_->fetched(rank, fetched.version, fetched.bytes),
                     [this, version] { commit(version); });
        },
        FetchAtom::value, version, deadline);
  }

  void commit(std::uint64_t version) {
    ask_all<std::uint64_t>(
        answer_deadline,
        [this](std::uint32_t rank, std::uint64_t committed) {
          advance_on(state_->committed(rank, committed), [this] { finish(); });
        },
        CommitAtom::value, version);
  }

  void finish() {
    const Advanced advanced{state_->bytes_moved(), self_->clock().now().time_since_epoch()};
    self_->request(ledger_, answer_deadline, ReleaseAtom::value, lease_)
        .then([this, advanced](caf::ok_atom) { advance_promise_.deliver(advanced); },
              [this](caf::error& error) { keeper_->fail(from_caf(error)); });
  }

  VerifyPromise verify(std::uint64_t version, Duration deadline) {
    verify_promise_ = self_->make_response_promise<VerifyPromise>();
    if (const auto begun = state_->verify(version); !begun) {
      keeper_->fail(begun.error());
      return verify_promise_;
    }
    const auto begun_at = self_->clock().now();
    slowest_ = Duration::zero();
    ask_all<std::uint64_t>(
        deadline,
        [this, begun_at](std::uint32_t rank, std::uint64_t verified) {
          slowest_ = std::max<Duration>(slowest_, self_->clock().now() - begun_at);
          advance_on(state_->verified(rank, verified),
                     [this] { verify_promise_.deliver(slowest_); });
        },
        VerifyAtom::value, version, deadline);
    return verify_promise_;
  }

  /// Sends every shard the same request; `on_reply` gets each one's rank and answer.
  template <class Reply, class OnReply, class... Ts>
  void ask_all(Duration deadline, const OnReply& on_reply, const Ts&... content) {
    for (std::uint32_t rank = 0; rank < state_->rank_count(); ++rank) {
      self_->request(handles_[rank], deadline, content...)
          .then([on_reply, rank](const Reply& reply) { on_reply(rank, reply); },
                [this, rank, deadline](caf::error& error) {
                  keeper_->failed({Side::rollout, replica_, rank}, error, deadline);
                });
    }
  }

  /// What one answer means: an error, one of several, or the last one.
  template <class WhenAll>
  void advance_on(const Result<bool>& all, const WhenAll& when_all) {
    if (!all) return keeper_->fail(all.error());
    if (*all) when_all();
  }

  Self self_;
  LedgerActor ledger_;
  std::uint32_t replica_ = 0;
  std::vector<RolloutActor> handles_;
  std::optional<ReplicaState> state_;
  std::optional<Keeper<Self>> keeper_;
  std::uint64_t lease_ = 0;
  AdvancePromise advance_promise_;
  VerifyPromise verify_promise_;
  Duration slowest_{};
};

}  // namespace

CoordinatorActor spawn_coordinator(caf::actor_system& system, const SupervisorActor& supervisor,
                                   const LedgerActor& ledger, std::uint32_t replica,
                                   const std::vector<Member>& shards) {
  return system.spawn(
      [](Coordinator::Self self, const SupervisorActor& owner, const LedgerActor& leases,
         std::uint32_t number,
         const std::vector<Member>& own) { return self->state.serve(owner, leases, number, own); },
      supervisor, ledger, replica, shards);
}

}  // namespace weir
