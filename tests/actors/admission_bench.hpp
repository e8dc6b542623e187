#pragma once
// The admission actor alone, in virtual time: the test plays owner, coordinators and supervisor.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>

#include "actors/internal/admission.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/system.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir::bench {

template <class T>
using Reply = std::shared_ptr<std::optional<Result<T>>>;

inline constexpr Duration far = std::chrono::hours(1);

/// Replicas 0 and 1 serve version 1, unless told otherwise.
class AdmissionBench {
 public:
  explicit AdmissionBench(const char* policy = "semaphore:size=4,until=finished",
                          SamplingOptions options = {}, InFlight in_flight = InFlight::keep)
      : system_(config_.use_virtual_time()) {
    options.policy = *parse_policy(policy);
    auto state = SamplingState::create(options, in_flight);
    REQUIRE(state);
    state_ = std::make_shared<SamplingState>(*std::move(state));
    actor_ = spawn_admission(system_, state_);
    tell(LifeAtom::value, std::uint64_t{1});
  }
  ~AdmissionBench() {
    caf::anon_send_exit(actor_, caf::exit_reason::kill);
    actor_ = nullptr;
    drain();
    scheduler().clock().cancel_all();
    drain();
  }
  AdmissionBench(const AdmissionBench&) = delete;
  AdmissionBench& operator=(const AdmissionBench&) = delete;

  AdmissionBench& with_replicas() {
    tell(AnnounceAtom::value, std::uint64_t{1});
    serve(0, 1);
    serve(1, 1);
    return *this;
  }

  // The owner.
  Reply<Assignment> admit(Duration deadline = far) {
    return ask<Assignment>(AdmitAtom::value, deadline, std::uint64_t{10});
  }
  Reply<Assignment> next(const Attempt& over, Duration deadline = far) {
    return ask<Assignment>(NextAtom::value, over, deadline);
  }
  Reply<caf::ok_atom> extend(const Attempt& attempt, const Span& span) {
    return ask<caf::ok_atom>(ExtendAtom::value, attempt, span);
  }
  Reply<bool> finish(const Attempt& attempt, Duration deadline = far) {
    return ask<bool>(FinishAtom::value, attempt, deadline);
  }
  Reply<SampleBatch> take(std::uint64_t count, Duration deadline = far) {
    return ask<SampleBatch>(BatchAtom::value, count, deadline);
  }
  AdmissionCounts counts() { return (*now(ask<SamplingStatus>(StatusAtom::value))).counts; }

  // Its answers.
  template <class T>
  Result<T> now(const Reply<T>& answer) {
    REQUIRE(answer->has_value());
    return **answer;
  }
  template <class T>
  ErrorCode error(const Reply<T>& answer) {
    REQUIRE(answer->has_value());
    REQUIRE_FALSE(answer->value());
    return answer->value().error().code;
  }
  Assignment assigned(Duration deadline = far) {
    const auto assignment = now(admit(deadline));
    REQUIRE(assignment);
    return *assignment;
  }
  void finished(const Attempt& attempt) { REQUIRE(now(finish(attempt)) == Result<bool>(true)); }

  // Coordinators and supervisor.
  void pause(std::uint32_t replica) { tell(PauseAtom::value, ReplicaNews{life, replica, 0}); }
  void resume(std::uint32_t replica, std::uint64_t version) {
    tell(ResumeAtom::value, ReplicaNews{life, replica, version});
  }
  void serve(std::uint32_t replica, std::uint64_t version) {
    tell(ServeAtom::value, ReplicaNews{life, replica, version});
  }
  void leave(std::uint32_t replica) { tell(OutAtom::value, ReplicaNews{life, replica, 0}); }
  void publish(std::uint64_t version) { tell(AnnounceAtom::value, version); }
  void switch_over(std::uint32_t replica, std::uint64_t version) {
    pause(replica);
    resume(replica, version);
    serve(replica, version);
  }
  void begin_life(std::uint64_t number) {
    life = number;
    tell(LifeAtom::value, number);
  }

  template <class T, class... Ts>
  Reply<T> ask(const Ts&... content) {
    auto answer = std::make_shared<std::optional<Result<T>>>();
    system_.spawn([actor = actor_, answer, content...](caf::event_based_actor* self) {
      self->request(actor, caf::infinite, content...)
          .then([answer](const T& reply) { answer->emplace(reply); },
                [answer](caf::error& why) { answer->emplace(tl::unexpected(from_caf(why))); });
    });
    drain();
    return answer;
  }
  template <class... Ts>
  void tell(const Ts&... content) {
    caf::anon_send(actor_, content...);
    drain();
  }
  void pass(Duration time) {
    scheduler().clock().current_time += time;
    scheduler().clock().trigger_expired_timeouts();
    drain();
  }
  /// The actor fails as by an exception, and the supervisor starts its successor.
  void fail() {
    caf::anon_send_exit(actor_, caf::exit_reason::unhandled_exception);
    drain();
    actor_ = spawn_admission(system_, state_);
    drain();
  }

  std::uint64_t life = 1;

 private:
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  void drain() {
    while (scheduler().try_run_once()) {
    }
  }

  ActorSystemConfig config_;
  caf::actor_system system_;
  std::shared_ptr<SamplingState> state_;
  AdmissionActor actor_;
};

}  // namespace weir::bench
