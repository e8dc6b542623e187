#include "actors/internal/admission.hpp"

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "actors/internal/errors.hpp"

namespace weir {
namespace {

class Admission {
 public:
  using Self = AdmissionActor::stateful_pointer<Admission>;
  using AssignmentPromise = caf::typed_response_promise<Assignment>;
  using FinishPromise = caf::typed_response_promise<bool>;
  using BatchPromise = caf::typed_response_promise<SampleBatch>;
  using OkPromise = caf::typed_response_promise<caf::ok_atom>;
  static constexpr const char* name = "admission";

  explicit Admission(Self self) : self_(self) {}
  ~Admission() { close({ErrorCode::unavailable, "the admission actor has ended: ask again"}); }
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  AdmissionActor::behavior_type serve(const std::shared_ptr<SamplingState>& state) {
    state_ = state;
    state_->forget_waiters();
    tell();
    return {
        [this](AdmitAtom, Duration deadline, std::uint64_t prompt_tokens) {
          return ask<AssignmentPromise>([&](std::uint64_t ticket) {
            state_->admit(ticket, now() + bounded(deadline), prompt_tokens);
          });
        },
        [this](NextAtom, const Attempt& over, Duration deadline) {
          return ask<AssignmentPromise>(
              [&](std::uint64_t ticket) { state_->next(ticket, over, now() + bounded(deadline)); });
        },
        [this](ExtendAtom, const Attempt& attempt, const Span& generated) {
          return answer([&] { return state_->extend(attempt, generated); });
        },
        [this](FinishAtom, const Attempt& attempt, Duration deadline) {
          return ask<FinishPromise>([&](std::uint64_t ticket) {
            state_->finish(ticket, attempt, now() + bounded(deadline));
          });
        },
        [this](RejectAtom, SampleId sample) {
          return answer([&] { return state_->reject(sample); });
        },
        [this](BatchAtom, std::uint64_t count, Duration deadline) {
          return ask<BatchPromise>([&](std::uint64_t ticket) {
            state_->take_batch(ticket, count, now() + bounded(deadline));
          });
        },
        [this](LastAtom) {
          return answer([&]() -> Result<void> {
            state_->no_more_versions();
            return {};
          });
        },
        [this](StatusAtom) { return state_->status(); },
        [this](AnnounceAtom, std::uint64_t version) {
          state_->published(version);
          tell();
        },
        [this](LifeAtom, std::uint64_t life) { state_->begin_life(life); },
        [this](FailAtom, const Error& error) {
          failure_ = error;
          close(error);
        },
        [this](PauseAtom, const ReplicaNews& news) { state_->pauses(news.life, news.replica); },
        [this](ResumeAtom, const ReplicaNews& news) {
          state_->resumes(news.life, news.replica, news.version);
          tell();
        },
        [this](ServeAtom, const ReplicaNews& news) {
          state_->serves(news.life, news.replica, news.version);
          tell();
        },
        [this](OutAtom, const ReplicaNews& news) {
          state_->lost(news.life, news.replica);
          tell();
        },
        [this](LateAtom) {
          alarm_.reset();
          state_->expire(now());
          tell();
        },
    };
  }

 private:
  using Promise = std::variant<AssignmentPromise, FinishPromise, BatchPromise>;

  template <class Own, class Ask>
  Own ask(const Ask& ask_state) {
    auto promise = self_->make_response_promise<Own>();
    if (failure_) return promise.deliver(to_caf(*failure_));
    const std::uint64_t ticket = next_ticket_++;
    promises_.emplace(ticket, promise);
    ask_state(ticket);
    tell();
    return promise;
  }

  template <class Act>
  OkPromise answer(const Act& act) {
    auto promise = self_->make_response_promise<OkPromise>();
    if (failure_) return promise.deliver(to_caf(*failure_));
    const Result<void> done = act();
    tell();
    if (!done) return promise.deliver(to_caf(done.error()));
    return promise.deliver(caf::ok_atom::value);
  }

  void tell() {
    for (SamplingAnswer& answer : state_->take_answers()) {
      const auto found = promises_.find(answer.ticket);
      if (found == promises_.end()) continue;
      Promise promise = std::move(found->second);
      promises_.erase(found);
      if (const auto* error = std::get_if<Error>(&answer.value)) {
        std::visit([error](auto& own) { own.deliver(to_caf(*error)); }, promise);
      } else if (auto* assignment = std::get_if<Assignment>(&answer.value)) {
        std::get<AssignmentPromise>(promise).deliver(*assignment);
      } else if (auto* kept = std::get_if<bool>(&answer.value)) {
        std::get<FinishPromise>(promise).deliver(*kept);
      } else {
        std::get<BatchPromise>(promise).deliver(std::get<SampleBatch>(std::move(answer.value)));
      }
    }
    set_alarm();
  }

  /// One message for the next deadline; a deadline that has gone leaves one that does nothing.
  void set_alarm() {
    const std::optional<Duration> next = state_->next_deadline();
    if (!next || (alarm_ && *alarm_ <= *next)) return;
    alarm_ = *next;
    self_->delayed_send(self_, std::max(Duration{}, *next - now()), LateAtom::value);
  }

  void close(const Error& error) {
    for (auto& [ticket, promise] : std::exchange(promises_, {})) {
      std::visit([&error](auto& own) { own.deliver(to_caf(error)); }, promise);
    }
  }

  [[nodiscard]] Duration now() const { return self_->clock().now().time_since_epoch(); }

  Self self_;
  std::shared_ptr<SamplingState> state_;
  std::map<std::uint64_t, Promise> promises_;
  std::uint64_t next_ticket_ = 1;
  std::optional<Duration> alarm_;
  std::optional<Error> failure_;
};

}  // namespace

AdmissionActor spawn_admission(caf::actor_system& system,
                               const std::shared_ptr<SamplingState>& state) {
  return system.spawn(
      [](Admission::Self self, const std::shared_ptr<SamplingState>& own) {
        return self->state.serve(own);
      },
      state);
}

}  // namespace weir
