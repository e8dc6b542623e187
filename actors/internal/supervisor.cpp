#include "actors/internal/supervisor.hpp"

#include <optional>

#include "actors/internal/coordinator.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/ledger.hpp"
#include "actors/publication.hpp"

namespace weir {
namespace {

class Supervisor {
 public:
  using Self = SupervisorActor::stateful_pointer<Supervisor>;
  using PlanPromise = caf::typed_response_promise<FormationPtr>;
  using ReportPromise = caf::typed_response_promise<VersionReport>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "supervisor";

  explicit Supervisor(Self self) : self_(self) {}

  SupervisorActor::behavior_type serve(const ExchangeOptions& options,
                                       const PlannerActor& planner) {
    options_ = options;
    planner_ = planner;
    self_->set_exit_handler([this](const caf::exit_msg& exit) {
      fail({ErrorCode::unavailable,
            "an actor of the exchange ended: " + one_line(caf::to_string(exit.reason))});
    });
    self_->link_to(planner_);
    // The planner has deadlines of its own for both steps; this one is beyond them.
    const Duration patience = 2 * options.join_deadline + answer_deadline;
    self_->request(planner_, patience, PlanAtom::value)
        .then([this](const FormationPtr& formation) { form(formation); },
              [this](caf::error& error) { fail(from_caf(error)); });
    return {
        [this](PlanAtom) { return await_plan(); },
        [this](PublishAtom, std::uint64_t version) { return publish(version); },
        [this](FailAtom, const Error& error) { fail(error); },
        [this](EndAtom) { return end(); },
    };
  }

 private:
  PlanPromise await_plan() {
    auto promise = self_->make_response_promise<PlanPromise>();
    if (failure_) return promise.deliver(to_caf(*failure_));
    if (formation_) return promise.deliver(formation_);
    plan_promises_.push_back(promise);
    return promise;
  }

  /// All members hold their parts: those who give them work take over.
  void form(const FormationPtr& formation) {
    if (failure_) return;
    formation_ = formation;
    const SupervisorActor own{self_};
    ledger_ = spawn_ledger(self_->system(), own, formation->trainers);
    self_->link_to(ledger_);
    for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
      std::vector<Member> shards;
      for (const Member& member : formation->rollouts) {
        if (member.shard.replica == replica) shards.push_back(member);
      }
      coordinators_.push_back(spawn_coordinator(self_->system(), own, ledger_, replica, shards));
      self_->link_to(coordinators_.back());
    }
    for (PlanPromise& promise : plan_promises_) promise.deliver(formation_);
    plan_promises_.clear();
  }

  ReportPromise publish(std::uint64_t version) {
    auto promise = self_->make_response_promise<ReportPromise>();
    if (failure_) return promise.deliver(to_caf(*failure_));
    if (!formation_ || publication_) {
      return promise.deliver(
          to_caf({ErrorCode::refused, publication_ ? "another version is being published"
                                                   : "the members have not all joined"}));
    }
    std::uint64_t bytes_needed = 0;
    for (const Member& member : formation_->rollouts) bytes_needed += member.bytes_needed;
    publication_.emplace(version, bytes_needed, options_.rollout_replicas, now());
    report_promise_ = promise;
    publish_until_ = now() + options_.publish_deadline;
    self_
        ->request(ledger_, with_grace(options_.publish_deadline), PublishAtom::value, version,
                  options_.publish_deadline)
        .then([this](std::uint64_t ready) { advance(ready); },
              [this](caf::error& error) { refuse(from_caf(error)); });
    return promise;
  }

  /// When the ledger does not take the version, nothing has begun, and the exchange goes on.
  void refuse(const Error& error) {
    if (failure_) return;
    if (error.code != ErrorCode::invalid && error.code != ErrorCode::refused) return fail(error);
    publication_.reset();
    report_promise_.deliver(to_caf(error));
  }

  void advance(std::uint64_t version) {
    if (failure_) return;
    publication_->ready(now());
    const Duration left = publish_until_ - now();
    for (const CoordinatorActor& coordinator : coordinators_) {
      self_->request(coordinator, with_grace(left), AdvanceAtom::value, version, left)
          .then(
              [this, version](const Advanced& advanced) {
                if (failure_) return;
                if (publication_->committed(advanced.bytes_moved, advanced.at)) verify(version);
              },
              [this](caf::error& error) { fail(from_caf(error)); });
    }
  }

  void verify(std::uint64_t version) {
    const Duration deadline = options_.publish_deadline;
    for (const CoordinatorActor& coordinator : coordinators_) {
      self_->request(coordinator, with_grace(deadline), VerifyAtom::value, version, deadline)
          .then(
              [this](Duration slowest) {
                if (!failure_ && publication_->verified(slowest)) report();
              },
              [this](caf::error& error) { fail(from_caf(error)); });
    }
  }

  void report() {
    report_promise_.deliver(publication_->report());
    publication_.reset();
  }

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
      // Those that are linked to it follow.
      self_->quit(caf::exit_reason::user_shutdown);
    });
    return promise;
  }

  /// Every open and later request is answered with that.
  void close(const Error& error) {
    failure_ = error;
    for (PlanPromise& promise : plan_promises_) promise.deliver(to_caf(error));
    plan_promises_.clear();
    if (publication_) report_promise_.deliver(to_caf(error));
    publication_.reset();
  }

  template <class Then>
  void tell_members(const Ending& ending, Then then) {
    self_->request(planner_, with_grace(end_deadline), EndAtom::value, ending)
        .then([then](caf::ok_atom) mutable { then(); }, [then](caf::error&) mutable { then(); });
  }

  /// For actors of this process, which keep the deadline that they are told.
  static Duration with_grace(Duration deadline) { return deadline + answer_deadline; }

  [[nodiscard]] Duration now() const { return self_->clock().now().time_since_epoch(); }

  Self self_;
  ExchangeOptions options_;
  PlannerActor planner_;
  LedgerActor ledger_;
  std::vector<CoordinatorActor> coordinators_;
  FormationPtr formation_;
  std::optional<Error> failure_;  ///< Once set, the exchange only ends.
  std::vector<PlanPromise> plan_promises_;
  std::optional<Publication> publication_;
  Duration publish_until_{};
  ReportPromise report_promise_;
};

}  // namespace

SupervisorActor spawn_supervisor(caf::actor_system& system, const ExchangeOptions& options,
                                 const PlannerActor& planner) {
  return system.spawn([](Supervisor::Self self, const ExchangeOptions& own,
                         const PlannerActor& members) { return self->state.serve(own, members); },
                      options, planner);
}

}  // namespace weir
