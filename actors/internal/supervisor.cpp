#include "actors/internal/supervisor.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "actors/internal/admission.hpp"
#include "actors/internal/coordinator.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/ledger.hpp"
#include "actors/internal/planner.hpp"
#include "actors/publication.hpp"
#include "actors/sampling_state.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

class Supervisor {
 public:
  using Self = SupervisorActor::stateful_pointer<Supervisor>;
  using PlanPromise = caf::typed_response_promise<PlanPtr>;
  using ReportPromise = caf::typed_response_promise<VersionReport>;
  using StatusPromise = caf::typed_response_promise<ExchangeStatus>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "supervisor";

  explicit Supervisor(Self self) : self_(self) {}

  SupervisorActor::behavior_type serve(const ExchangeOptions& options) {
    options_ = options;
    status_.replicas.resize(options.rollout_replicas);
    auto sampling = SamplingState::create(options.sampling, options.in_flight);
    WEIR_ASSERT(sampling);
    sampling_ = std::make_shared<SamplingState>(*std::move(sampling));
    self_->set_exit_handler([this](const caf::exit_msg& exit) {
      const bool admission = exit.source == admission_->address();
      if (admission) start_admission();
      if (admission || crew_.contains(exit.source)) start_anew();
    });
    start_admission();
    start();
    return {
        [this](JoinAtom atom, const Payload& payload, const MemberStatus& status) {
          if (const auto& member = self_->current_sender()) members_.insert(member->address());
          return self_->delegate(planner_, atom, payload, status);
        },
        [this](AcquireAtom atom, std::uint64_t version, Duration deadline) {
          return self_->delegate(planner_, atom, version, deadline);
        },
        [this](StandAtom atom, std::uint64_t version, std::uint64_t bytes) {
          self_->delegate(planner_, atom, version, bytes);
        },
        [this](StagedAtom atom, std::uint64_t version) {
          return self_->delegate(planner_, atom, version);
        },
        [this](AdmitAtom atom, Duration deadline, std::uint64_t prompt_tokens) {
          return self_->delegate(admission_, atom, deadline, prompt_tokens);
        },
        [this](NextAtom atom, const Attempt& over, Duration deadline) {
          return self_->delegate(admission_, atom, over, deadline);
        },
        [this](ExtendAtom atom, const Attempt& attempt, const Span& generated) {
          return self_->delegate(admission_, atom, attempt, generated);
        },
        [this](FinishAtom atom, const Attempt& attempt, Duration deadline) {
          return self_->delegate(admission_, atom, attempt, deadline);
        },
        [this](RejectAtom atom, SampleId sample) {
          return self_->delegate(admission_, atom, sample);
        },
        [this](BatchAtom atom, std::uint64_t count, Duration deadline) {
          return self_->delegate(admission_, atom, count, deadline);
        },
        [this](LastAtom atom) { return self_->delegate(admission_, atom); },
        [this](PlanAtom) { return await_plan(); },
        [this](PublishAtom, std::uint64_t version) { return publish(version); },
        [this](StatusAtom) { return tell_status(); },
        [this](RosterAtom, const FormationPtr& formation) {
          formation_ = formation;
          notice_deaths();
        },
        [this](AnnounceAtom, std::uint64_t version) { announce(version); },
        [this](BeginAtom atom, std::uint64_t version) { tell_coordinators(atom, version); },
        [this](StandAtom atom, std::uint32_t replica, const Standing& standing) {
          self_->send(coordinators_[replica], atom, standing);
        },
        [this](RevokedAtom, std::uint64_t lease, std::uint32_t replica) { revoke(lease, replica); },
        [this](CommitAtom, const Committed& committed) { commit(committed); },
        [this](OutAtom, std::uint32_t replica, const std::string& why) { leave(replica, why); },
        [this](ExpelAtom atom, const ShardId& shard, std::uint64_t seat, const Error& why) {
          self_->send(planner_, atom, shard, seat, why);
        },
        [this](FailAtom, std::uint64_t version, const Error& why) { lose(version, why); },
        [this](LateAtom, std::uint64_t number) { late(number); },
        [this](FailAtom, const Error& error) { fail(error); },
        [this](EndAtom) { return end(); },
    };
  }

 private:
  // ---- the actors that it runs -------------------------------------------------------------

  void start_admission() {
    admission_ = spawn_admission(self_->system(), sampling_);
    self_->link_to(admission_);
    if (failure_) self_->send(admission_, FailAtom::value, *failure_);
  }

  void start() {
    const SupervisorActor own{self_};
    ledger_ = spawn_ledger(self_->system(), options_, own);
    self_->send(admission_, LifeAtom::value, ++life_);
    coordinators_.clear();
    for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
      coordinators_.push_back(
          spawn_coordinator(self_->system(), options_, {own, ledger_, admission_, life_}, replica));
    }
    planner_ =
        spawn_planner(self_->system(), options_, {own, ledger_, coordinators_}, plan_ != nullptr);
    crew_.clear();
    watch(planner_);
    watch(ledger_);
    for (const CoordinatorActor& coordinator : coordinators_) watch(coordinator);
    // The planner has deadlines of its own for both steps; this one is beyond them.
    const Duration patience =
        2 * options_.join_deadline + options_.lease_deadline + answer_deadline;
    self_->request(planner_, patience, PlanAtom::value)
        .then([this](const PlanPtr& plan) { form(plan); },
              [this](caf::error& error) {
                if (plan_ == nullptr && !is_death(error)) fail(from_caf(error));
              });
  }

  template <class Handle>
  void watch(const Handle& actor) {
    self_->link_to(actor);
    crew_.insert(actor->address());
  }

  /// What one of them knew the others can't go on without; the members know it all.
  void start_anew() {
    if (failure_) return;
    ++status_.restarts;
    dismiss_crew();
    start();
    for (const caf::actor_addr& member : members_) {
      const auto handle = caf::actor_cast<caf::strong_actor_ptr>(member);
      if (handle) self_->send(caf::actor_cast<ShardActor>(handle), RejoinAtom::value);
    }
    members_.clear();
  }

  void dismiss_crew() {
    for (const caf::actor_addr& actor : crew_) {
      self_->unlink_from(actor);
      const auto handle = caf::actor_cast<caf::strong_actor_ptr>(actor);
      if (handle) caf::anon_send_exit(handle, caf::exit_reason::kill);
    }
    crew_.clear();
  }

  /// With what admission says of the samples, or last said should it be failing just now.
  StatusPromise tell_status() {
    auto promise = self_->make_response_promise<StatusPromise>();
    self_->request(admission_, answer_deadline, StatusAtom::value)
        .then(
            [this, promise](const SamplingStatus& sampling) mutable {
              status_.sampling = sampling;
              promise.deliver(status_);
            },
            [this, promise](caf::error&) mutable { promise.deliver(status_); });
    return promise;
  }

  PlanPromise await_plan() {
    auto promise = self_->make_response_promise<PlanPromise>();
    if (failure_) return promise.deliver(to_caf(*failure_));
    if (plan_) return promise.deliver(plan_);
    plan_promises_.push_back(promise);
    return promise;
  }

  void form(const PlanPtr& plan) {
    if (failure_ || plan_) return;
    plan_ = plan;
    for (PlanPromise& promise : plan_promises_) promise.deliver(plan_);
    plan_promises_.clear();
  }

  // ---- versions ----------------------------------------------------------------------------

  void announce(std::uint64_t version) {
    if (version > status_.ready) {
      status_.ready = version;
      ++status_.published;
    }
    // Before any coordinator can bring a replica to it.
    self_->send(admission_, AnnounceAtom::value, version);
    tell_coordinators(AnnounceAtom::value, version);
  }

  template <class Atom>
  void tell_coordinators(Atom atom, std::uint64_t version) {
    for (const CoordinatorActor& coordinator : coordinators_) {
      self_->send(coordinator, atom, version);
    }
  }

  void revoke(std::uint64_t lease, std::uint32_t replica) {
    ++status_.revoked;
    const CoordinatorActor& coordinator = coordinators_[replica];
    if (strikes(options_.buggify, "supervisor: a revocation comes late")) {
      self_->delayed_send(coordinator, std::chrono::seconds(1), RevokedAtom::value, lease);
    } else {
      self_->send(coordinator, RevokedAtom::value, lease);
    }
  }

  void commit(const Committed& committed) {
    ReplicaStatus& replica = status_.replicas[committed.replica];
    replica.in_service = true;
    replica.version = committed.version;
    ++replica.commits;
    replica.bytes_moved += committed.bytes_moved;
    replica.paused += committed.paused;
    replica.fetched += committed.fetch;
    superseded_[committed.replica] = committed.superseded;
    status_.superseded = 0;
    for (const auto& [one, count] : superseded_) status_.superseded += count;
    if (!publication_ || committed.version < version_) return;
    publication_->committed(committed.replica, committed.bytes_moved, committed.at);
    verify_when_complete();
  }

  void leave(std::uint32_t replica, const std::string& why) {
    status_.replicas[replica].in_service = false;
    status_.replicas[replica].trouble = why;
    if (publication_ && (verifying_ || !publication_->has_committed(replica))) {
      end_publication({ErrorCode::unavailable, why});
    }
  }

  /// Whoever held that version is gone, so that waiting for it helps nobody.
  void lose(std::uint64_t version, const Error& why) {
    if (publication_ && version == version_) end_publication(why);
  }

  ReportPromise publish(std::uint64_t version) {
    auto promise = self_->make_response_promise<ReportPromise>();
    if (failure_) return promise.deliver(to_caf(*failure_));
    if (!plan_ || publication_) {
      return promise.deliver(
          to_caf({ErrorCode::refused, publication_ ? "another version is being published"
                                                   : "the members have not all joined"}));
    }
    const std::uint32_t trainers = options_.trainer_replicas * options_.trainer_ranks;
    std::uint64_t bytes_needed = 0;
    std::uint32_t found = 0;
    for (const auto& [shard, member] : formation_->roster.members) {
      bytes_needed += member.bytes_needed;
      if (shard.side == Side::trainer) ++found;
    }
    if (found < trainers) {
      return promise.deliver(to_caf(
          {ErrorCode::unavailable, std::to_string(trainers - found) + " trainer shards are gone"}));
    }
    version_ = version;
    publication_.emplace(version, bytes_needed, trainers, options_.rollout_replicas, now());
    report_promise_ = promise;
    asked_.clear();
    updating_.clear();
    const std::uint64_t number = ++publication_number_;
    self_->delayed_send(self_, options_.publish_deadline, LateAtom::value, number);
    for (const auto& [shard, handle] : formation_->handles) {
      if (shard.side == Side::trainer) update(shard, handle, version, number);
    }
    return promise;
  }

  /// No request is answered by a peer that is gone; and no version becomes whole when one of its
  /// trainer replica dies before all have staged it.
  void notice_deaths() {
    if (!publication_) return;
    for (const auto& [shard, seat] : asked_) {
      const MemberInfo* member = formation_->roster.find(shard);
      if (member != nullptr && member->seat == seat) continue;
      const bool open =
          std::any_of(updating_.begin(), updating_.end(),
                      [own = shard.replica](const ShardId& other) { return other.replica == own; });
      if (!open) continue;
      return end_publication(died(shard, "updating to version " + std::to_string(version_)));
    }
  }

  void update(const ShardId& shard, const caf::strong_actor_ptr& handle, std::uint64_t version,
              std::uint64_t number) {
    const Duration deadline = options_.publish_deadline;
    asked_[shard] = formation_->roster.find(shard)->seat;
    updating_.insert(shard);
    self_
        ->request(caf::actor_cast<TrainerActor>(handle), deadline, UpdateAtom::value,
                  formation_->roster.find(shard)->seat, version, deadline)
        .then(
            [this, number, shard](std::uint64_t) {
              if (!publication_ || number != publication_number_) return;
              updating_.erase(shard);
              publication_->staged(now());
              verify_when_complete();
            },
            [this, number, shard, version, deadline](caf::error& error) {
              if (!publication_ || number != publication_number_) return;
              const Error why = from_caf(error);
              // What a trainer refuses is the owner's mistake, not the trainer's.
              end_publication(why.code == ErrorCode::invalid || why.code == ErrorCode::refused
                                  ? why
                                  : member_failed(shard,
                                                  "updating to version " + std::to_string(version),
                                                  error, deadline));
            });
  }

  void verify_when_complete() {
    if (!publication_->complete() || verifying_) return;
    verifying_ = true;
    const std::uint64_t number = publication_number_;
    const Duration deadline = options_.publish_deadline;
    for (const CoordinatorActor& coordinator : coordinators_) {
      self_->request(coordinator, deadline + answer_deadline, VerifyAtom::value, version_, deadline)
          .then(
              [this, number](Duration slowest) {
                if (!publication_ || number != publication_number_) return;
                if (publication_->verified(slowest)) report();
              },
              [this, number](caf::error& error) {
                if (publication_ && number == publication_number_) {
                  end_publication(from_caf(error));
                }
              });
    }
  }

  void report() {
    auto promise = std::exchange(report_promise_, ReportPromise{});
    const VersionReport report = publication_->report();
    publication_.reset();
    verifying_ = false;
    promise.deliver(report);
  }

  void end_publication(const Error& error) {
    auto promise = std::exchange(report_promise_, ReportPromise{});
    publication_.reset();
    verifying_ = false;
    promise.deliver(to_caf(error));
  }

  void late(std::uint64_t number) {
    if (!publication_ || verifying_ || number != publication_number_) return;
    std::string text = "version " + std::to_string(version_) + " was not committed within " +
                       text_of(options_.publish_deadline);
    for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
      if (publication_->has_committed(replica)) continue;
      const std::string& trouble = status_.replicas[replica].trouble;
      text += " by rollout replica " + std::to_string(replica) +
              (trouble.empty() ? "" : ": " + trouble);
      break;
    }
    end_publication({ErrorCode::timeout, text});
  }

  // ---- the end -----------------------------------------------------------------------------

  void fail(const Error& error) {
    if (failure_) return;
    close(error);
    const Result<void> told = failure(ErrorCode::unavailable, "the exchange ended: " + error.text);
    tell_members(to_ending(told), [] {});
  }

  OkPromise end() {
    auto promise = self_->make_response_promise<OkPromise>();
    if (!failure_) close({ErrorCode::unavailable, "the exchange has ended"});
    tell_members({}, [this, promise]() mutable {
      promise.deliver(caf::ok_atom::value);
      dismiss_crew();
      self_->unlink_from(admission_);
      caf::anon_send_exit(admission_, caf::exit_reason::kill);
      self_->quit(caf::exit_reason::user_shutdown);
    });
    return promise;
  }

  /// Every open and later request is answered with that.
  void close(const Error& error) {
    failure_ = error;
    self_->send(admission_, FailAtom::value, error);
    for (PlanPromise& promise : plan_promises_) promise.deliver(to_caf(error));
    plan_promises_.clear();
    if (publication_) end_publication(error);
  }

  template <class Then>
  void tell_members(const Ending& ending, Then then) {
    self_->request(planner_, end_deadline + answer_deadline, EndAtom::value, ending)
        .then([then](caf::ok_atom) mutable { then(); }, [then](caf::error&) mutable { then(); });
  }

  [[nodiscard]] Duration now() const { return self_->clock().now().time_since_epoch(); }

  Self self_;
  ExchangeOptions options_;
  PlannerActor planner_;
  LedgerActor ledger_;
  AdmissionActor admission_;                 ///< Lives on when those are started anew.
  std::shared_ptr<SamplingState> sampling_;  ///< What it decides by; used by it alone.
  std::uint64_t life_ = 0;                   ///< How often those were started.
  std::vector<CoordinatorActor> coordinators_;
  std::set<caf::actor_addr> crew_;     ///< All of those.
  std::set<caf::actor_addr> members_;  ///< All that came in since they were started.
  FormationPtr formation_;
  PlanPtr plan_;
  std::optional<Error> failure_;  ///< Once set, the exchange only ends.
  std::vector<PlanPromise> plan_promises_;
  ExchangeStatus status_;
  std::map<std::uint32_t, std::uint64_t> superseded_;
  std::optional<Publication> publication_;
  std::uint64_t version_ = 0;
  std::map<ShardId, std::uint64_t> asked_;  ///< Seats of the trainers that are to stage it.
  std::set<ShardId> updating_;              ///< Those that owe an answer.
  std::uint64_t publication_number_ = 0;
  bool verifying_ = false;
  ReportPromise report_promise_;
};

}  // namespace

SupervisorActor spawn_supervisor(caf::actor_system& system, const ExchangeOptions& options) {
  return system.spawn(
      [](Supervisor::Self self, const ExchangeOptions& own) { return self->state.serve(own); },
      options);
}

}  // namespace weir
