#include "actors/internal/planner.hpp"

#include <map>
#include <optional>
#include <span>

#include "actors/internal/errors.hpp"
#include "actors/internal/system.hpp"
#include "actors/membership.hpp"
#include "runtime/assert.hpp"
#include "runtime/codec.hpp"
#include "runtime/planner.hpp"

namespace weir {
namespace {

constexpr std::size_t named_max = 5;

class Planner {
 public:
  using Self = PlannerActor::stateful_pointer<Planner>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  using PlanPromise = caf::typed_response_promise<FormationPtr>;
  static constexpr const char* name = "planner";

  explicit Planner(Self self) : self_(self) {}

  PlannerActor::behavior_type serve(const ExchangeOptions& options) {
    options_ = options;
    membership_.emplace(options);
    self_->set_down_handler([this](caf::down_msg& down) { lost(down); });
    self_->delayed_send(self_, options.join_deadline, LateAtom::value);
    return {
        [this](JoinAtom, const Payload& payload) { return join(payload); },
        [this](PlanAtom) {
          plan_promise_ = self_->make_response_promise<PlanPromise>();
          answer();
          return plan_promise_;
        },
        [this](LateAtom) { late(); },
        [this](EndAtom, const Ending& ending) { return end(ending); },
    };
  }

 private:
  enum class Phase : std::uint8_t { joining, preparing, done, ended };

  OkPromise join(const Payload& payload) {
    // Taken first: a promise takes the sender away from the message.
    const auto member = self_->current_sender();
    auto promise = self_->make_response_promise<OkPromise>();
    auto manifest = admit(member, payload);
    if (!manifest) {
      refused_ = manifest.error().text;
      return promise.deliver(to_caf(manifest.error()));
    }
    handles_.emplace(manifest->shard, member);
    shards_.emplace(member->address(), manifest->shard);
    manifests_.push_back(std::move(*manifest));
    self_->monitor(member);
    promise.deliver(caf::ok_atom::value);
    if (membership_->all_joined()) prepare();
    return promise;
  }

  /// A manifest that may join, or why not.
  Result<Manifest> admit(const caf::strong_actor_ptr& sender, const Payload& payload) {
    if (!sender) return failure(ErrorCode::refused, "a member must say who it is");
    if (phase_ == Phase::ended || (outcome_ && !*outcome_)) {
      return failure(ErrorCode::unavailable, "the exchange has ended");
    }
    if (shards_.contains(sender->address())) {
      return failure(ErrorCode::refused,
                     "this member has joined as " + text_of(shards_.at(sender->address())));
    }
    if (payload.bytes.size() > payload_bytes_max) {
      return failure(ErrorCode::refused, "its manifest is larger than the limit of " +
                                             std::to_string(payload_bytes_max) + " bytes");
    }
    auto manifest = decode_manifest(std::as_bytes(std::span(payload.bytes)));
    if (!manifest) return manifest;
    const auto joined = membership_->join(manifest->shard, manifest->replica_ranks);
    if (!joined) return failure(joined);
    return manifest;
  }

  /// All have joined: computes the plan and sends each member its part.
  void prepare() {
    phase_ = Phase::preparing;
    auto plan = make_plan(manifests_);
    manifests_ = {};
    if (!plan) return fail(plan.error());
    membership_->planned(*plan);
    formation_.plan = std::move(*plan);
    // The parts are sorted by target, as the handles are.
    const Plan& whole = formation_.plan;
    auto part = whole.parts.begin();
    for (const auto& [shard, handle] : handles_) {
      Plan share;
      share.digest = whole.digest;
      share.sources = whole.sources;
      std::uint64_t bytes = 0;
      if (shard.side == Side::rollout) {
        WEIR_ASSERT(part != whole.parts.end() && part->target == shard);
        for (const Copy& copy : part->copies) bytes += target_bytes(copy);
        share.parts = {*part++};
      }
      auto& members = shard.side == Side::trainer ? formation_.trainers : formation_.rollouts;
      members.push_back({shard, handle, bytes});
      auto payload = to_payload(encode(share), "the plan part of " + text_of(shard));
      if (!payload) return fail(payload.error());
      send_part(shard, handle, std::move(*payload));
    }
  }

  void send_part(const ShardId& shard, const caf::strong_actor_ptr& handle, Payload payload) {
    self_
        ->request(caf::actor_cast<ShardActor>(handle), options_.join_deadline, PlanAtom::value,
                  std::move(payload))
        .then(
            [this, shard](const PlanHeld& held) { hold(shard, held); },
            [this, shard](caf::error& error) {
              fail(member_failed(shard, membership_->doing(shard), error, options_.join_deadline));
            });
  }

  void hold(const ShardId& shard, const PlanHeld& held) {
    if (phase_ != Phase::preparing) return;
    const auto holds = membership_->hold(shard, held.digest, held.bytes);
    if (!holds) return fail(holds.error());
    if (!membership_->all_holding()) return;
    phase_ = Phase::done;
    outcome_ = std::make_shared<const Formation>(std::move(formation_));
    answer();
  }

  /// From the moment that all hold their parts, others watch over the members.
  void lost(const caf::down_msg& down) {
    const auto found = shards_.find(down.source);
    if (found == shards_.end()) return;
    one_ended(found->second);
    fail(died(found->second, membership_->doing(found->second)));
  }

  void late() {
    if (phase_ != Phase::joining) return;
    std::string text = membership_->missing(named_max) + " did not join within " +
                       text_of(options_.join_deadline) + ": start them, or raise join_deadline";
    if (!refused_.empty()) text += "; the last member refused: " + refused_;
    fail({ErrorCode::timeout, text});
  }

  void fail(const Error& error) {
    if (phase_ == Phase::done || phase_ == Phase::ended) return;
    phase_ = Phase::done;
    outcome_ = failure(error.code, error.text);
    answer();
  }

  void answer() {
    if (!outcome_ || !plan_promise_.pending()) return;
    if (*outcome_) {
      plan_promise_.deliver(**outcome_);
    } else {
      plan_promise_.deliver(to_caf(outcome_->error()));
    }
  }

  OkPromise end(const Ending& ending) {
    auto promise = self_->make_response_promise<OkPromise>();
    end_promises_.push_back(promise);
    if (phase_ != Phase::ended) {
      phase_ = Phase::ended;
      for (const auto& [shard, handle] : handles_) {
        self_->request(caf::actor_cast<ShardActor>(handle), end_deadline, EndAtom::value, ending)
            .then([this, own = shard](caf::ok_atom) { one_ended(own); },
                  [this, own = shard](caf::error&) { one_ended(own); });
      }
    }
    answer_end();
    return promise;
  }

  /// The member has heard of the end, is dead, or has had its time.
  void one_ended(const ShardId& shard) {
    handles_.erase(shard);
    answer_end();
  }

  void answer_end() {
    if (phase_ != Phase::ended || !handles_.empty()) return;
    for (OkPromise& promise : end_promises_) promise.deliver(caf::ok_atom::value);
    end_promises_.clear();
  }

  Self self_;
  ExchangeOptions options_;
  Phase phase_ = Phase::joining;
  std::optional<Membership> membership_;
  std::vector<Manifest> manifests_;
  std::map<ShardId, caf::strong_actor_ptr> handles_;  ///< Of those that have not ended.
  std::map<caf::actor_addr, ShardId> shards_;
  Formation formation_;
  std::optional<Result<FormationPtr>> outcome_;
  PlanPromise plan_promise_;
  std::string refused_;
  std::vector<OkPromise> end_promises_;
};

}  // namespace

PlannerActor spawn_planner(caf::actor_system& system, const ExchangeOptions& options) {
  return system.spawn(
      [](Planner::Self self, const ExchangeOptions& own) { return self->state.serve(own); },
      options);
}

}  // namespace weir
