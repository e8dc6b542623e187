// Goal: no admission policy lets trainer and rollouts wait for each other, and none loses a sample
// or hands over one that is too stale.
// Method: closed loops of a trainer and replicas that must make progress, by the faults that others
// reported; then thousands of random calls against a second account that is kept by the rules.

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "actors/admission_state.hpp"
#include "runtime/random.hpp"

namespace weir {
namespace {

constexpr Duration far = std::chrono::hours(1);

struct Case {
  const char* policy;
  std::uint64_t batch;
  std::uint64_t steps = 1;  ///< Between publications.
};

constexpr Case cases[] = {
    {"areal:eta=0,batch=4,max_concurrent=64", 4},
    {"areal:eta=2,batch=4,max_concurrent=64", 4},
    {"areal:eta=4,batch=3,max_concurrent=0", 3},
    {"verl:batch=4,staleness=0", 4},
    {"verl:batch=3,staleness=0.5,sync_steps=2", 3, 2},
    {"verl:batch=3,staleness=0.1,sync_steps=4", 3, 4},
    {"verl_span:batch=4,groups=4,threshold=1,old=drop", 4},
    {"verl_span:batch=4,groups=12,threshold=2,old=drop", 4},
    {"verl_span:batch=4,groups=4,threshold=1,old=wait", 4},
    {"verl_span:batch=4,groups=12,threshold=2,old=wait", 4},
    {"nemo:batch=4,window=0,sampler=in_order", 4},
    {"nemo:batch=4,window=2,sampler=in_order", 4},
    {"nemo:batch=4,window=0,sampler=weight_fifo", 4},
    {"nemo:batch=4,window=1,sampler=weight_fifo", 4},
    {"nemo:batch=4,window=1,sampler=ready_first", 4},
    {"nemo:batch=4,window=1,sampler=windowed", 4},
    {"prime:max_concurrent=6", 4},
    {"prime:max_concurrent=3,max_lag=0,max_off_policy=0", 4},
    {"pipeline:batch=4,attempts=2,max_lag=0", 4},
    {"pipeline:batch=4,attempts=2,max_lag=9", 4},
    {"semaphore:size=4,until=taken", 4},
    {"semaphore:size=9,until=taken", 4},
    {"semaphore:size=4,until=finished", 4},
};

constexpr InFlight ways[] = {InFlight::abort_and_resume, InFlight::keep,
                             InFlight::keep_and_drop_cache, InFlight::drain,
                             InFlight::abort_and_requeue};

AdmissionState state_of(std::string_view policy, const AdmissionOptions& options) {
  auto made = make_policy(*parse_policy(policy));
  REQUIRE(made);
  auto state = AdmissionState::create(*std::move(made), options);
  REQUIRE(state);
  return *std::move(state);
}

/// The smallest queue that the policy accepts: the one that a loop is most likely to get stuck on.
std::uint64_t least_queue(const Case& it) {
  const auto policy = make_policy(*parse_policy(it.policy));
  REQUIRE(policy);
  return std::max((*policy)->limits().queue_least, it.batch);
}

/// A trainer that trains for a few rounds on each batch and replicas whose samples take a few
/// rounds, some of them many. A round is one chance for everybody.
class Loop {
 public:
  Loop(const Case& it, const AdmissionOptions& options, InFlight way, std::uint64_t seed)
      : case_(it),
        state_(state_of(it.policy, options)),
        way_(way),
        random_(seed),
        batches_(options.recovered_version) {
    for (std::uint32_t replica = 0; replica < replica_count; ++replica) {
      REQUIRE(state_.replica_joins(replica, options.recovered_version));
      serves_[replica] = options.recovered_version;
    }
  }

  /// Runs until `count` more batches were taken, and says whether they were.
  bool take(std::uint64_t count, bool publishes = true) {
    const std::uint64_t goal = batches_ + count;
    int idle_rounds = 0;
    while (batches_ < goal) {
      const std::uint64_t before = batches_;
      round(publishes);
      idle_rounds = batches_ > before ? 0 : idle_rounds + 1;
      // The longest sample takes 40 rounds, and some have to be generated several times.
      if (idle_rounds > 1000) return false;
    }
    return true;
  }

  AdmissionState& state() { return state_; }
  /// From now on producers reject a third of what they finish, replicas die, and deadlines pass.
  void begin_faults() { faulty_ = true; }

 private:
  static constexpr std::uint32_t replica_count = 3;

  void round(bool publishes) {
    if (faulty_) fail();
    // The longest samples take longer than this.
    while (state_.request({.deadline = faulty_ ? now_ + Duration(30) : far})) {
    }
    state_.admit_waiting();
    const std::set<SampleId> idle = state_.undispatched();
    for (const SampleId id : idle) {
      const auto started =
          state_.dispatch(id, static_cast<std::uint32_t>(random_.below(replica_count)));
      if (started) rounds_left_[id] = {started->attempt, duration()};
    }
    generate();
    train(publishes);
    for (auto& [replica, version] : serves_) {
      if (version < state_.version() && random_.below(2) == 0) switch_over(replica);
    }
  }

  std::uint64_t duration() { return random_.below(10) == 0 ? 40 : 1 + random_.below(4); }

  void fail() {
    now_ += Duration(1);
    state_.expire(now_);
    if (random_.below(20) > 0) return;
    const auto replica = static_cast<std::uint32_t>(random_.below(replica_count));
    REQUIRE(state_.replica_dies(replica));
    REQUIRE(state_.replica_joins(replica, state_.version()));
    serves_[replica] = state_.version();
  }

  void generate() {
    std::map<SampleId, Running> still;
    for (auto& [id, running] : rounds_left_) {
      const auto found = state_.samples().find(id);
      if (found == state_.samples().end() || found->second.phase != SamplePhase::generating) {
        continue;
      }
      running.attempt.number = found->second.attempt;
      if (running.rounds > 0) --running.rounds;
      if (running.rounds == 0 && faulty_ && random_.below(3) == 0) {
        REQUIRE(state_.reject(id));
        continue;
      }
      if (running.rounds > 0 || !state_.finish(running.attempt)) still.emplace(id, running);
    }
    rounds_left_ = std::move(still);
  }

  void train(bool publishes) {
    if (training_ > 0) {
      --training_;
      if (training_ == 0 && publishes && batches_ % case_.steps == 0) {
        REQUIRE(state_.publish(batches_));
      }
    }
    if (training_ > 0) return;
    const auto batch = state_.take_batch(case_.batch);
    if (!batch) return;
    for (const Delivered& sample : batch->samples) {
      CHECK(sample.staleness <= state_.staleness_max());
    }
    ++batches_;
    training_ = 1 + random_.below(6);
  }

  void switch_over(std::uint32_t replica) {
    const auto switched = state_.replica_switches(replica, state_.version(), way_);
    REQUIRE(switched);
    if (switched->done) serves_[replica] = state_.version();
  }

  struct Running {
    Attempt attempt;
    std::uint64_t rounds = 0;
  };

  Case case_;
  AdmissionState state_;
  InFlight way_;
  Random random_;
  std::uint64_t batches_;
  bool faulty_ = false;
  Duration now_{};
  std::uint64_t training_ = 0;  ///< Rounds until the batch is trained.
  std::map<std::uint32_t, std::uint64_t> serves_;
  std::map<SampleId, Running> rounds_left_;
};

TEST_CASE("no policy lets trainer and rollouts wait for each other") {
  for (const Case& it : cases) {
    for (const InFlight way : ways) {
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        INFO(it.policy << ", way " << static_cast<int>(way) << ", seed " << seed);
        Loop loop(it, {.queue_max = least_queue(it), .waiting_max = 4}, way, seed);
        CHECK(loop.take(20));
      }
    }
  }
}

TEST_CASE("a hard staleness bound below the policy's own slows a loop and does not stop it") {
  for (const Case& it : cases) {
    // With several steps between publications and a bound of 0, only fresh samples would do.
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      INFO(it.policy << ", seed " << seed);
      Loop loop(it, {.staleness_max = 0, .queue_max = least_queue(it), .waiting_max = 4},
                InFlight::keep, seed);
      CHECK(loop.take(20));
    }
  }
}

TEST_CASE("a loop goes on though samples are rejected and expire and replicas die") {
  for (const Case& it : cases) {
    for (const InFlight way : ways) {
      INFO(it.policy << ", way " << static_cast<int>(way));
      Loop loop(it, {.queue_max = least_queue(it), .waiting_max = 4}, way, 11);
      loop.begin_faults();
      CHECK(loop.take(30));
      CHECK(loop.state().counts().rejected_by_producer > 10);
    }
  }
}

TEST_CASE("prime-rl#3004: a run resumed at version k starts without a publication") {
  for (const Case& it : cases) {
    for (const std::uint64_t recovered : {1, 7, 1'000'000}) {
      INFO(it.policy << ", version " << recovered);
      // The trainer publishes at the end of a step, so that its first batch has to come first.
      const std::uint64_t version = recovered * it.steps;
      Loop loop(it, {.recovered_version = version, .queue_max = least_queue(it)}, InFlight::keep,
                3);
      CHECK(loop.state().version() == version);
      CHECK(loop.state().capacity() > 0);
      CHECK(loop.take(20));
    }
  }
}

TEST_CASE("prime-rl#2990: last steps that publish nothing do not stop the loop") {
  for (const Case& it : cases) {
    INFO(it.policy);
    Loop loop(it, {.queue_max = least_queue(it)}, InFlight::keep, 5);
    REQUIRE(loop.take(8));
    loop.state().no_more_versions();
    CHECK(loop.take(20, false));
    CHECK(loop.state().publish(100).error() ==
          Error{ErrorCode::invalid, "can't publish version 100: no more versions were to come"});
  }
}

TEST_CASE("without that word a gate waits for the version, as it should") {
  const Case prime{"prime:max_concurrent=6", 4};
  Loop loop(prime, {}, InFlight::keep, 5);
  CHECK(loop.take(2, false));
  CHECK_FALSE(loop.take(1, false));
  loop.state().no_more_versions();
  CHECK(loop.take(1, false));

  // A resumed run is as far ahead as a new one.
  Loop resumed(prime, {.recovered_version = 7}, InFlight::keep, 5);
  CHECK(resumed.take(2, false));
  CHECK_FALSE(resumed.take(1, false));
}

TEST_CASE("AReaL#1471: capacity is the exchange's, however many replicas share it") {
  const std::string_view policy = "areal:eta=2,batch=4,max_concurrent=64";
  for (const std::uint32_t replicas : {0, 1, 4, 8}) {
    AdmissionState state = state_of(policy, {});
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      REQUIRE(state.replica_joins(replica, 0));
    }
    CHECK(state.capacity() == 12);
  }
  // All of it can be used by one replica.
  AdmissionState state = state_of(policy, {});
  for (std::uint32_t replica = 0; replica < 4; ++replica) REQUIRE(state.replica_joins(replica, 0));
  for (int i = 0; i < 12; ++i) {
    const auto requested = state.request({.deadline = far});
    REQUIRE(requested->admitted);
    REQUIRE(state.dispatch(requested->sample, 2));
  }
  CHECK(state.counts().generating == 12);
  CHECK(state.capacity() == 0);
}

TEST_CASE("PipelineRL: too-old batches are counted, not dropped") {
  AdmissionState state = state_of("pipeline:batch=2,attempts=1,max_lag=2", {});
  REQUIRE(state.replica_joins(0, 0));
  for (int i = 0; i < 4; ++i) {
    const auto started = state.dispatch(state.request({.deadline = far})->sample, 0);
    REQUIRE(state.finish(started->attempt));
  }
  // One version is 2 sequences behind: as old as is aimed at. Two are 4, and too old.
  REQUIRE(state.publish(1));
  CHECK(state.take_batch(2));
  CHECK(state.counts().delivered_too_old == 0);
  REQUIRE(state.publish(2));
  CHECK(state.take_batch(2));
  CHECK(state.counts().delivered_too_old == 2);
  CHECK(state.counts().rejected() == 0);
}

}  // namespace
}  // namespace weir
