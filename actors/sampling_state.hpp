#pragma once
// Which replica runs which sample, who waits for what, and when they are answered: the decisions of
// the admission actor.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/admission_state.hpp"
#include "actors/in_flight.hpp"
#include "actors/sampling.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What a request is answered with. Whoever asks gives it a ticket, which is used once.
struct SamplingAnswer {
  std::uint64_t ticket = 0;
  std::variant<Error, Assignment, bool, std::vector<Delivered>> value;

  friend bool operator==(const SamplingAnswer&, const SamplingAnswer&) = default;
};

/// `AdmissionState`, and around it what an exchange adds: replicas that come, pause, switch and go
/// as their coordinators say; a choice of replica; requests that wait. All moments are of one
/// clock, the caller's. A plain value without clock or messages. After every call, take the
/// answers.
///
/// Samples are dispatched only while somebody waits to run them, so that a stamp is the version
/// that is served when the sample goes out.
///
/// Coordinators speak of a replica in this order: `pauses` before any engine is asked to, `resumes`
/// when every shard has the version and before any engine goes on with it, `serves` when all have
/// gone on. So no token of a version can be told of before its `resumes`. They are started anew
/// without memory now and then, each time with a greater number of their life: `begin_life` says
/// so, and what is still said by earlier ones is ignored.
class SamplingState {
 public:
  /// Errors (`invalid`): the policy's; a queue too small for it.
  static Result<SamplingState> create(const SamplingOptions& options, InFlight in_flight);

  // What the owner asks for: answered by ticket, at once or later.
  void admit(std::uint64_t ticket, Duration deadline, std::uint64_t prompt_tokens);
  void next(std::uint64_t ticket, const Attempt& over, Duration deadline);
  void finish(std::uint64_t ticket, const Attempt& attempt, Duration deadline);
  void take_batch(std::uint64_t ticket, std::uint64_t count, Duration deadline);
  Result<void> extend(const Attempt& attempt, const Span& generated);
  Result<void> reject(SampleId sample);
  void no_more_versions();

  // What coordinators and ledger say.
  void published(std::uint64_t version);
  void begin_life(std::uint64_t life);
  void pauses(std::uint64_t life, std::uint32_t replica);
  void resumes(std::uint64_t life, std::uint32_t replica, std::uint64_t version);
  void serves(std::uint64_t life, std::uint32_t replica, std::uint64_t version);
  /// What it generated is gone, or not to be trusted.
  void lost(std::uint64_t life, std::uint32_t replica);

  void expire(Duration now);
  /// The next moment at which `expire` has something to do.
  [[nodiscard]] std::optional<Duration> next_deadline() const;
  /// Nobody waits any more. Requests that are not admitted are taken back; samples go on.
  void forget_waiters();

  std::vector<SamplingAnswer> take_answers();
  [[nodiscard]] SamplingStatus status() const;

 private:
  enum class Standing : std::uint8_t {
    unknown,  ///< Nobody of this life has spoken of it.
    pauses,
    serves,
  };
  struct Runner {  ///< Waits for an attempt after that number.
    std::uint64_t ticket = 0;
    std::uint32_t after = 0;
    Duration deadline{};
  };
  struct Finisher {
    std::uint64_t ticket = 0;
    Attempt attempt;
    Duration deadline{};
  };
  struct Taker {
    std::uint64_t ticket = 0;
    std::uint64_t count = 0;
    Duration deadline{};
  };
  struct Early {  ///< Asked before there was any version.
    std::uint64_t ticket = 0;
    SampleRequest request;
  };

  SamplingState(const SamplingOptions& options, InFlight in_flight);

  template <class T>
  void answer(std::uint64_t ticket, T value);
  /// Makes the state when the first version is known.
  void begin(std::uint64_t version);
  void request(std::uint64_t ticket, const SampleRequest& request);
  /// Does all that can be done now.
  void progress();
  void dispatch_all();
  bool finish_all();
  bool hand_over();
  void hand_out(const Sample& sample, SampleId id);
  [[nodiscard]] std::optional<std::uint32_t> pick() const;
  void fail_attempt(const Attempt& attempt);
  /// Attempts that somebody waits to see replaced, and that the switch has not replaced.
  void fail_the_given_up(std::uint32_t replica);
  void go_on(std::uint32_t replica, std::uint64_t version);
  void lose(std::uint32_t replica);
  void ended(SampleId sample, const Error& why);
  void ended(const std::vector<SampleId>& samples, const Error& why);

  SamplingOptions options_;
  InFlight in_flight_;
  std::optional<AdmissionState> state_;
  std::uint64_t life_ = 0;
  bool more_versions_ = true;
  std::map<std::uint32_t, Standing> replicas_;
  std::deque<Early> early_;
  std::map<SampleId, Runner> runners_;
  std::map<SampleId, Finisher> finishers_;
  std::optional<Taker> taker_;
  std::vector<std::uint64_t> staleness_;
  std::vector<SamplingAnswer> answers_;
};

}  // namespace weir
