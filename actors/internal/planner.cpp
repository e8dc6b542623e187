#include "actors/internal/planner.hpp"

#include <map>
#include <optional>
#include <span>

#include "actors/internal/errors.hpp"
#include "actors/internal/system.hpp"
#include "actors/membership.hpp"
#include "runtime/assert.hpp"
#include "runtime/codec.hpp"

namespace weir {
namespace {

constexpr std::size_t named_max = 5;

class Planner {
 public:
  using Self = PlannerActor::stateful_pointer<Planner>;
  using SeatedPromise = caf::typed_response_promise<Seated>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  using PlanPromise = caf::typed_response_promise<PlanPtr>;
  static constexpr const char* name = "planner";

  explicit Planner(Self self) : self_(self) {}

  PlannerActor::behavior_type serve(const ExchangeOptions& options, const PlannerAudience& audience,
                                    bool patient) {
    options_ = options;
    audience_ = audience;
    membership_.emplace(options);
    self_->set_down_handler([this](const caf::down_msg& down) {
      const auto found = shards_.find(down.source);
      if (found != shards_.end()) lose(ShardId(found->second));
    });
    if (!patient) self_->delayed_send(self_, options.join_deadline, LateAtom::value);
    return {
        [this](JoinAtom, const Payload& payload, const MemberStatus& status) {
          return join(payload, status);
        },
        [this](AcquireAtom atom, std::uint64_t version,
               Duration deadline) -> caf::result<Acquired> {
          const std::optional<ShardId> shard = sender();
          if (!shard) return to_caf(stranger());
          return self_->delegate(audience_.ledger, atom, *shard, version, deadline);
        },
        [this](StandAtom atom, std::uint64_t version, std::uint64_t bytes) {
          const std::optional<ShardId> shard = sender();
          if (shard) self_->send(audience_.ledger, atom, *shard, version, bytes);
        },
        [this](StagedAtom atom, std::uint64_t version) -> caf::result<caf::ok_atom> {
          const std::optional<ShardId> shard = sender();
          if (!shard) return to_caf(stranger());
          return self_->delegate(audience_.ledger, atom, *shard, version);
        },
        [this](PlanAtom) {
          plan_promise_ = self_->make_response_promise<PlanPromise>();
          answer();
          return plan_promise_;
        },
        [this](LateAtom) { late(); },
        [this](ExpelAtom, const ShardId& shard, std::uint64_t seat, const Error& why) {
          expel(shard, seat, why);
        },
        [this](EndAtom, const Ending& ending) { return end(ending); },
    };
  }

 private:
  [[nodiscard]] std::optional<ShardId> sender() const {
    const auto& handle = self_->current_sender();
    const auto found = handle ? shards_.find(handle->address()) : shards_.end();
    if (found == shards_.end()) return std::nullopt;
    return found->second;
  }
  static Error stranger() {
    return {ErrorCode::unavailable, "only members that have joined may ask that"};
  }

  // ---- joining -----------------------------------------------------------------------------

  SeatedPromise join(const Payload& payload, const MemberStatus& status) {
    // Taken first: a promise takes the sender away from the message.
    const auto member = self_->current_sender();
    auto promise = self_->make_response_promise<SeatedPromise>();
    const auto seated = admit(member, payload, status);
    if (!seated) {
      refused_ = seated.error().text;
      return promise.deliver(to_caf(seated.error()));
    }
    promise.deliver(Seated{*seated});
    advance();
    return promise;
  }

  /// The seat of a member that may join, or why not.
  Result<std::uint64_t> admit(const caf::strong_actor_ptr& sender, const Payload& payload,
                              const MemberStatus& status) {
    if (!sender) return failure(ErrorCode::refused, "a member must say who it is");
    if (ended_) return failure(ErrorCode::refused, "the exchange has ended");
    if (strikes(options_.buggify, "planner: a member has to ask again")) {
      return failure(ErrorCode::unavailable, "not now");
    }
    if (payload.bytes.size() > payload_bytes_max) {
      return failure(ErrorCode::refused, "its manifest is larger than the limit of " +
                                             std::to_string(payload_bytes_max) + " bytes");
    }
    auto manifest = decode_manifest(std::as_bytes(std::span(payload.bytes)));
    if (!manifest) return failure(manifest);
    const ShardId shard = manifest->shard;
    // A member that has lost sight of the exchange for a while takes its own place again.
    const auto before = shards_.find(sender->address());
    if (before != shards_.end()) {
      if (before->second != shard) {
        return failure(ErrorCode::refused, "this member has joined as " + text_of(before->second));
      }
      lose(shard);
    }
    const auto seat = membership_->join(std::move(*manifest), status);
    if (!seat) return seat;
    handles_[shard] = sender;
    shards_[sender->address()] = shard;
    self_->monitor(sender);
    return seat;
  }

  /// Someone has joined: whoever can be sent a part now is sent it.
  void advance() {
    const Membership::Planned planned = membership_->plan();
    for (const auto& [shard, error] : planned.refused) dismiss(shard, error);
    if (!planned.refused.empty() && !membership_->first_plan()) {
      return fail(planned.refused.front().second);
    }
    for (const ShardId& shard : planned.to_send) send_part(shard);
  }

  void send_part(const ShardId& shard) {
    const std::uint64_t number = ++sends_[shard];
    membership_->sent(shard);
    auto payload =
        to_payload(encode(membership_->part_of(shard)), "the plan part of " + text_of(shard));
    if (!payload) {
      dismiss(shard, payload.error());
      return fail(payload.error());
    }
    const std::uint64_t seat = membership_->seat(shard);
    // One that reads may finish its fetch first.
    const Duration deadline = options_.join_deadline + options_.lease_deadline;
    self_
        ->request(caf::actor_cast<ShardActor>(handles_.at(shard)), deadline, PlanAtom::value, seat,
                  std::move(*payload))
        .then([this, shard, seat](const PlanHeld& held) { hold(shard, seat, held); },
              [this, shard, seat, number, deadline](caf::error& error) {
                if (sends_[shard] != number || membership_->seat(shard) != seat) return;
                expel(shard, seat,
                      member_failed(shard, membership_->doing(shard), error, deadline));
              });
  }

  void hold(const ShardId& shard, std::uint64_t seat, const PlanHeld& held) {
    if (ended_ || membership_->seat(shard) != seat) return;
    const auto holds = membership_->hold(shard, seat, held.digest, held.bytes);
    if (!holds) return expel(shard, seat, holds.error());
    tell();
    if (shard.side == Side::trainer) {
      for (const ShardId& reader : membership_->readers_before(shard)) send_part(reader);
    }
    if (membership_->formed() && !outcome_) {
      outcome_ = std::make_shared<const Plan>(*membership_->first_plan());
      answer();
    }
  }

  /// Tells the others of the exchange who is there now.
  void tell() {
    auto formation = std::make_shared<Formation>();
    formation->roster = membership_->roster();
    for (const auto& [shard, member] : formation->roster.members) {
      formation->handles.emplace(shard, handles_.at(shard));
    }
    const FormationPtr now = std::move(formation);
    self_->send(audience_.ledger, RosterAtom::value, now);
    for (const CoordinatorActor& one : audience_.coordinators) {
      self_->send(one, RosterAtom::value, now);
    }
    self_->send(audience_.supervisor, RosterAtom::value, now);
  }

  // ---- leaving -----------------------------------------------------------------------------

  void lose(const ShardId& shard) {
    const auto handle = handles_.find(shard);
    if (handle == handles_.end()) return;
    self_->demonitor(handle->second->address());
    shards_.erase(handle->second->address());
    handles_.erase(handle);
    if (ended_) return answer_end();
    membership_->lost(shard);
    tell();
  }

  /// It can't be counted on any more. It hears of it, and may join again as a new process.
  void expel(const ShardId& shard, std::uint64_t seat, const Error& why) {
    if (ended_ || membership_->seat(shard) != seat) return;
    if (!outcome_) refused_ = why.text;
    dismiss(shard, why);
  }

  void dismiss(const ShardId& shard, const Error& why) {
    const auto handle = handles_.find(shard);
    if (handle == handles_.end()) return;
    const Result<void> told = failure(why.code, "the exchange goes on without it: " + why.text);
    self_
        ->request(caf::actor_cast<ShardActor>(handle->second), end_deadline, EndAtom::value,
                  to_ending(told))
        .then([](caf::ok_atom) {}, [](caf::error&) {});
    lose(shard);
  }

  void late() {
    if (outcome_) return;
    std::string text = membership_->missing(named_max) + " did not join within " +
                       text_of(options_.join_deadline) + ": start them, or raise join_deadline";
    if (!refused_.empty()) text += "; the last member refused: " + refused_;
    fail({ErrorCode::timeout, text});
  }

  void fail(const Error& error) {
    if (outcome_) return;
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
    if (!ended_) {
      ended_ = true;
      for (const auto& [shard, handle] : handles_) {
        const auto heard = [this, own = shard](const auto&) { lose(own); };
        self_->request(caf::actor_cast<ShardActor>(handle), end_deadline, EndAtom::value, ending)
            .then([heard](caf::ok_atom ok) { heard(ok); },
                  [heard](caf::error& error) { heard(error); });
      }
    }
    answer_end();
    return promise;
  }

  void answer_end() {
    if (!ended_ || !handles_.empty()) return;
    for (OkPromise& promise : end_promises_) promise.deliver(caf::ok_atom::value);
    end_promises_.clear();
  }

  Self self_;
  ExchangeOptions options_;
  PlannerAudience audience_;
  std::optional<Membership> membership_;
  std::map<ShardId, caf::strong_actor_ptr> handles_;  ///< Of those that are there.
  std::map<caf::actor_addr, ShardId> shards_;
  std::map<ShardId, std::uint64_t> sends_;
  std::optional<Result<PlanPtr>> outcome_;
  PlanPromise plan_promise_;
  std::string refused_;
  bool ended_ = false;
  std::vector<OkPromise> end_promises_;
};

}  // namespace

PlannerActor spawn_planner(caf::actor_system& system, const ExchangeOptions& options,
                           const PlannerAudience& audience, bool patient) {
  return system.spawn(
      [](Planner::Self self, const ExchangeOptions& own, const PlannerAudience& listeners,
         bool waits) { return self->state.serve(own, listeners, waits); },
      options, audience, patient);
}

}  // namespace weir
