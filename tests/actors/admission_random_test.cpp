// Goal: whatever calls come in whatever order, every sample ends exactly once, no error changes
// anything, limits hold, and nothing too stale is handed over.
// Method: thousands of random calls, sensible and not, against a second account that follows each
// sample by the answers alone; the same seed must give the same answers.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "actors/admission_state.hpp"
#include "runtime/random.hpp"

namespace weir {
namespace {

constexpr const char* policies[] = {
    "areal:eta=0,batch=4",
    "areal:eta=3,batch=4,max_concurrent=9",
    "verl:batch=4,staleness=0.5,sync_steps=2",
    "verl_span:batch=4,groups=12,threshold=2,old=drop",
    "verl_span:batch=4,groups=12,threshold=2,old=wait",
    "nemo:batch=4,window=1,sampler=in_order",
    "nemo:batch=4,window=2,sampler=weight_fifo",
    "nemo:batch=4,window=2,sampler=ready_first",
    "nemo:batch=4,window=2,sampler=windowed",
    "prime:max_concurrent=10,max_off_policy=2",
    "pipeline:batch=4,attempts=2,max_lag=9",
    "semaphore:size=12,until=taken",
    "semaphore:size=8,until=finished",
};

constexpr AdmissionOptions limits{
    .staleness_max = 3, .queue_max = 12, .waiting_max = 5, .retries_max = 1};

enum class Fate : std::uint8_t {
  waiting,
  undispatched,
  generating,
  finished,
  delivered,
  rejected,
  expired,
  never_admitted,
};

/// What the answers say of one sample.
struct Followed {
  Fate fate = Fate::waiting;
  Attempt attempt;
  std::uint32_t replica = 0;
  std::uint32_t deaths = 0;
  std::vector<Span> spans;  ///< One for each version its replica served, empty ones too.
};

std::vector<Span> with_tokens(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.tokens == 0; });
  return spans;
}

class Account {
 public:
  Account(std::string_view policy, std::uint64_t seed) : state_(make(policy)), random_(seed) {}

  void step() {
    const AdmissionCounts before = state_.counts();
    failed_ = false;
    act(random_.below(100));
    if (failed_) CHECK(state_.counts() == before);
    compare();
  }

  /// Of all answers so far.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  [[nodiscard]] const AdmissionCounts& counts() const { return state_.counts(); }

 private:
  static AdmissionState make(std::string_view policy) {
    auto made = make_policy(*parse_policy(policy));
    REQUIRE(made);
    auto state = AdmissionState::create(*std::move(made), limits);
    REQUIRE(state);
    return *std::move(state);
  }

  void act(std::size_t dice) {
    if (dice < 18) return request();
    if (dice < 20) return withdraw();
    if (dice < 28) return admit_waiting();
    if (dice < 50) return dispatch();
    if (dice < 60) return extend();
    if (dice < 76) return finish();
    if (dice < 78) return reject();
    if (dice < 79) return expire();
    if (dice < 85) return take();
    if (dice < 89) return publish();
    if (dice < 96) return switch_over();
    if (dice < 98) return join();
    return die();
  }

  void request() {
    const auto requested =
        state_.request({.deadline = Duration(now_ + 1 + random_.below(400)), .prompt_tokens = 3});
    if (!note(requested)) return;
    REQUIRE_FALSE(samples_.contains(requested->sample));
    samples_[requested->sample].fate = requested->admitted ? Fate::undispatched : Fate::waiting;
    note(requested->sample);
  }

  void withdraw() {
    const SampleId id = any_id();
    const bool waits = is(id, Fate::waiting);
    CHECK(note(state_.withdraw(id)) == waits);
    if (waits) samples_.at(id).fate = Fate::never_admitted;
  }

  void admit_waiting() {
    for (const SampleId id : state_.admit_waiting()) move(id, Fate::waiting, Fate::undispatched);
    CHECK((state_.counts().waiting == 0 || state_.capacity() == 0));
  }

  void dispatch() {
    SampleId id = any_id();
    if (!state_.undispatched().empty() && random_.below(4) > 0) {
      id = *state_.undispatched().begin();
    }
    const auto replica = static_cast<std::uint32_t>(random_.below(4));
    const auto started = state_.dispatch(id, replica);
    if (!note(started)) return;
    REQUIRE(is(id, Fate::undispatched));
    REQUIRE(serves_.contains(replica));
    CHECK(started->version == serves_.at(replica));
    Followed& sample = samples_.at(id);
    CHECK(started->attempt > sample.attempt);
    sample.fate = Fate::generating;
    sample.attempt = started->attempt;
    sample.replica = replica;
    sample.spans = {{started->version, 0}};
  }

  void extend() {
    const Attempt attempt = any_attempt();
    const std::uint64_t tokens = random_.below(3);
    const bool runs = is_running(attempt);
    CHECK(note(state_.extend(attempt, tokens)) == runs);
    if (runs) samples_.at(attempt.sample).spans.back().tokens += tokens;
  }

  void finish() {
    const Attempt attempt = any_attempt();
    const auto ended = state_.finish(attempt);
    if (!note(ended)) return;
    REQUIRE(is_running(attempt));
    move(attempt.sample, Fate::generating, ended->kept ? Fate::finished : Fate::rejected);
    if (ended->dropped) move(*ended->dropped, Fate::finished, Fate::rejected);
  }

  void reject() {
    const SampleId id = any_id();
    const bool lives =
        is(id, Fate::undispatched) || is(id, Fate::generating) || is(id, Fate::finished);
    CHECK(note(state_.reject(id)) == lives);
    if (lives) samples_.at(id).fate = Fate::rejected;
  }

  void expire() {
    now_ += random_.below(60);
    const Expired expired = state_.expire(Duration(now_));
    for (const Attempt& attempt : expired.aborted) {
      REQUIRE(is_running(attempt));
      move(attempt.sample, Fate::generating, Fate::undispatched);
    }
    for (const SampleId id : expired.samples) move(id, Fate::undispatched, Fate::expired);
    for (const SampleId id : expired.waiting) move(id, Fate::waiting, Fate::never_admitted);
  }

  void take() {
    const auto batch = state_.take_batch(random_.below(10) == 0 ? random_.below(20) : 4);
    if (!note(batch)) return;
    ++batches_;
    for (const Delivered& sample : batch->samples) {
      move(sample.sample, Fate::finished, Fate::delivered);
      REQUIRE_FALSE(sample.spans.empty());
      CHECK(sample.staleness == state_.version() - sample.spans.front().version);
      CHECK(sample.staleness <= state_.staleness_max());
      const std::vector<Span> expected = with_tokens(samples_.at(sample.sample).spans);
      CHECK(with_tokens(sample.spans) == expected);
      if (!expected.empty()) CHECK(sample.spans.front().version <= expected.front().version);
    }
    sweep(batch->swept);
  }

  void publish() {
    // Mostly what was trained, sometimes one that jumps, or is no version at all.
    const std::uint64_t version =
        random_.below(20) == 0 ? state_.version() + random_.below(3) : batches_;
    const bool rises = version > state_.version();
    const auto swept = state_.publish(version);
    CHECK(note(swept) == rises);
    if (swept) sweep(*swept);
    batches_ = std::max(batches_, state_.version());
  }

  void sweep(const Swept& swept) {
    for (const Attempt& attempt : swept.aborted) {
      REQUIRE(is_running(attempt));
      move(attempt.sample, Fate::generating, Fate::undispatched);
    }
    for (const SampleId id : swept.rejected) {
      REQUIRE((is(id, Fate::undispatched) || is(id, Fate::finished)));
      samples_.at(id).fate = Fate::rejected;
    }
  }

  void switch_over() {
    const auto replica = static_cast<std::uint32_t>(random_.below(4));
    const std::uint64_t version = state_.version() + (random_.below(8) == 0 ? 1 : 0);
    const auto how = static_cast<InFlight>(random_.below(5));
    const auto found = serves_.find(replica);
    const bool possible =
        found != serves_.end() && version <= state_.version() && version > found->second;
    const auto switched = state_.replica_switches(replica, version, how);
    CHECK(note(switched) == possible);
    if (!switched) return;
    if (how == InFlight::drain) {
      CHECK(switched->done == switched->must_end_first.empty());
      CHECK(switched->must_end_first.size() == running_on(replica).size());
    }
    if (!switched->done) return;
    for (const Attempt& attempt : switched->aborted) REQUIRE(is_running(attempt));
    for (const SampleId id : running_on(replica)) {
      samples_.at(id).spans.push_back({version, 0});
    }
    for (const Attempt& attempt : switched->resumed) {
      REQUIRE(is(attempt.sample, Fate::generating));
      samples_.at(attempt.sample).attempt = attempt;
    }
    for (const SampleId id : switched->requeued) move(id, Fate::generating, Fate::undispatched);
    found->second = version;
  }

  void join() {
    const auto replica = static_cast<std::uint32_t>(random_.below(4));
    const bool possible = !serves_.contains(replica);
    CHECK(note(state_.replica_joins(replica, state_.version())) == possible);
    if (possible) serves_[replica] = state_.version();
  }

  void die() {
    const auto replica = static_cast<std::uint32_t>(random_.below(4));
    const auto lost = state_.replica_dies(replica);
    CHECK(note(lost) == (serves_.erase(replica) == 1));
    if (!lost) return;
    CHECK(lost->requeued.size() + lost->expired.size() == running_on(replica).size());
    for (const SampleId id : lost->requeued) {
      CHECK(samples_.at(id).deaths++ < limits.retries_max);
      move(id, Fate::generating, Fate::undispatched);
    }
    for (const SampleId id : lost->expired) {
      CHECK(samples_.at(id).deaths == limits.retries_max);
      move(id, Fate::generating, Fate::expired);
    }
  }

  void compare() {
    std::vector<std::uint64_t> tally(8);
    for (const auto& [id, sample] : samples_) ++tally[static_cast<std::size_t>(sample.fate)];
    const AdmissionCounts& counts = state_.counts();
    // In the order of the fates.
    const std::vector<std::uint64_t> counted{
        counts.waiting,   counts.undispatched, counts.generating, counts.finished,
        counts.delivered, counts.rejected(),   counts.expired(),  counts.lapsed + counts.withdrawn};
    CHECK(counted == tally);
    CHECK((counts.delivered + counts.rejected() + counts.expired() + counts.running() ==
               counts.admitted &&
           counts.finished <= limits.queue_max && counts.waiting <= limits.waiting_max));
    note(counts.running() * 31 + counts.delivered * 7 + counts.rejected());
  }

  [[nodiscard]] bool is(SampleId id, Fate fate) const {
    const auto found = samples_.find(id);
    return found != samples_.end() && found->second.fate == fate;
  }

  [[nodiscard]] bool is_running(const Attempt& attempt) const {
    return is(attempt.sample, Fate::generating) && samples_.at(attempt.sample).attempt == attempt;
  }

  [[nodiscard]] std::vector<SampleId> running_on(std::uint32_t replica) const {
    std::vector<SampleId> ids;
    for (const auto& [id, sample] : samples_) {
      if (sample.fate == Fate::generating && sample.replica == replica) ids.push_back(id);
    }
    return ids;
  }

  void move(SampleId id, Fate from, Fate to) {
    REQUIRE(is(id, from));
    samples_.at(id).fate = to;
  }

  /// Recent ones mostly, some that never were.
  SampleId any_id() {
    const std::uint64_t newest = samples_.empty() ? 1 : samples_.rbegin()->first;
    return newest + 2 - std::min<std::uint64_t>(newest + 2, random_.below(30));
  }

  /// One that runs mostly, else any, with a late or an early number.
  Attempt any_attempt() {
    std::vector<Attempt> running;
    for (const auto& [id, sample] : samples_) {
      if (sample.fate == Fate::generating) running.push_back(sample.attempt);
    }
    if (!running.empty() && random_.below(5) > 0) return running[random_.below(running.size())];
    return {any_id(), static_cast<std::uint32_t>(random_.below(4))};
  }

  template <class T>
  bool note(const Result<T>& result) {
    note(result.has_value() ? 1 : 2);
    if (!result) {
      failed_ = true;
      for (const char letter : result.error().text) note(static_cast<unsigned char>(letter));
    }
    return result.has_value();
  }

  void note(std::uint64_t number) { digest_ = Random(digest_ ^ number).next(); }

  AdmissionState state_;
  Random random_;
  std::map<SampleId, Followed> samples_;
  std::map<std::uint32_t, std::uint64_t> serves_;
  std::uint64_t batches_ = 0;
  std::uint64_t now_ = 0;
  std::uint64_t digest_ = 0;
  bool failed_ = false;
};

TEST_CASE("no order of calls loses a sample or hands over one that is too stale") {
  for (const char* policy : policies) {
    AdmissionCounts total;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      INFO(policy << ", seed " << seed);
      Account account(policy, seed);
      for (int i = 0; i < 2000; ++i) account.step();
      total.delivered += account.counts().delivered;
      total.rejected_stale += account.counts().rejected();
      total.expired_replica += account.counts().expired();
    }
    INFO(policy);
    // The calls reached every way to end.
    CHECK(total.delivered > 100);
    CHECK(total.rejected_stale > 10);
    CHECK(total.expired_replica > 10);
  }
}

TEST_CASE("the same calls get the same answers") {
  for (const char* policy : policies) {
    INFO(policy);
    Account first(policy, 42);
    Account second(policy, 42);
    for (int i = 0; i < 500; ++i) {
      first.step();
      second.step();
    }
    CHECK(first.digest() == second.digest());
  }
}

}  // namespace
}  // namespace weir
