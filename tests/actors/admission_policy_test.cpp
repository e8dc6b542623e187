// Goal: each admission rule answers what its formula says, and its options say what is wrong.
// Method: rules are asked directly; every expected number is worked by hand from the formula in the
// rule's documentation.

#include "actors/admission_policy.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

namespace weir {
namespace {

/// Numbers for a view, and what the view borrows.
struct Scene {
  std::uint64_t version = 0;
  std::uint64_t recovered = 0;
  std::uint64_t batches = 0;
  bool more_versions = true;
  std::uint64_t running = 0;
  std::uint64_t accepted = 0;
  std::uint64_t delivered_since_version = 0;
  Samples samples{};
  std::vector<SampleId> finished{};

  [[nodiscard]] AdmissionView view() const {
    return {version, recovered, batches, more_versions, running, accepted, delivered_since_version,
            samples, finished};
  }

  /// A finished sample that `version_begun` generated.
  void finish(SampleId id, std::uint64_t version_begun, std::uint64_t target = 0) {
    Sample sample;
    sample.phase = SamplePhase::finished;
    sample.spans = {{version_begun, 1}};
    sample.target = target;
    samples[id] = sample;
    finished.push_back(id);
  }
};

Sample sample_in(SamplePhase phase, std::uint64_t version_begun, std::uint64_t step = 0) {
  Sample sample;
  sample.phase = phase;
  sample.spans = {{version_begun, 1}};
  sample.step = step;
  return sample;
}

std::unique_ptr<AdmissionPolicy> policy(const PolicyOptions& options) {
  auto made = make_policy(options);
  REQUIRE(made);
  return *std::move(made);
}

std::unique_ptr<AdmissionPolicy> policy(std::string_view text) {
  const auto options = parse_policy(text);
  REQUIRE(options);
  return policy(*options);
}

std::string error_of(std::string_view text) {
  const auto options = parse_policy(text);
  REQUIRE_FALSE(options);
  CHECK(options.error().code == ErrorCode::invalid);
  return options.error().text;
}

TEST_CASE("areal admits what its published example says") {
  const auto areal = policy("areal:eta=2,batch=4,max_concurrent=64");
  // min(64 - 0, (2 + 0 + 1) * 4 - 0) = 12.
  CHECK(areal->capacity(Scene{}.view()) == 12);
  // (2 + 0 + 1) * 4 - (4 + 8) = 0.
  CHECK(areal->capacity(Scene{.running = 8, .accepted = 4}.view()) == 0);
  // (2 + 1 + 1) * 4 - (4 + 8) = 4.
  CHECK(areal->capacity(Scene{.version = 1, .running = 8, .accepted = 4}.view()) == 4);
  CHECK(areal->limits().staleness_max == 2);
  CHECK(areal->limits().waiting_max == 12);
  CHECK(areal->limits().batch_max == 4);
}

TEST_CASE("areal bounds what runs at once, and one may always run") {
  const auto areal = policy("areal:eta=2,batch=4,max_concurrent=5");
  CHECK(areal->capacity(Scene{}.view()) == 5);
  CHECK(areal->capacity(Scene{.running = 3}.view()) == 2);
  // More may run than the bound allows now: nothing wraps.
  CHECK(areal->capacity(Scene{.running = 9}.view()) == 0);
  CHECK(policy("areal:batch=4,max_concurrent=0")->capacity(Scene{}.view()) == 1);
}

TEST_CASE("areal goes on after a recovery as if nothing had been before it") {
  const auto areal = policy("areal:eta=2,batch=4");
  // AReaL: accepted = 7 * 4, so (2 + 7 + 1) * 4 - 28 = 12.
  CHECK(areal->capacity(Scene{.version = 7, .recovered = 7, .batches = 7}.view()) == 12);
  // A version later, with one batch accepted since: (2 + 8 + 1) * 4 - (28 + 4) = 12.
  const Scene later{.version = 8, .recovered = 7, .batches = 8, .accepted = 4};
  CHECK(areal->capacity(later.view()) == 12);
}

TEST_CASE("areal hands over the samples that were admitted first") {
  Scene scene;
  scene.finish(5, 0);
  scene.finish(2, 0);
  scene.finish(9, 0);
  CHECK(policy("areal:batch=4")->hand_over_order(scene.view()) == std::vector<SampleId>{2, 5, 9});
}

TEST_CASE("versions numbered by a clock do not wrap a capacity") {
  constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  const Scene scene{.version = huge, .running = 3, .accepted = 4};
  for (const auto* text : {"areal:batch=4", "nemo:batch=4,sampler=ready_first"}) {
    INFO(text);
    CHECK(policy(text)->capacity(scene.view()) > 0);
  }
  CHECK(policy("nemo:batch=4,window=2")->capacity(scene.view()) > 0);
  CHECK(policy("pipeline:batch=4")->capacity(scene.view()) == huge - 7);
  // Recovered at such a version, the rules count from there.
  const Scene recovered{.version = huge - 1, .recovered = huge - 1, .batches = huge - 1};
  CHECK(policy("areal:eta=2,batch=4")->capacity(recovered.view()) == 12);
  CHECK(policy("pipeline:batch=4")->capacity(recovered.view()) == 4);
}

TEST_CASE("verl pauses at its required samples, in the queue or stale") {
  // int(4 * (1 + 0.5) * 2) = 12.
  const auto verl = policy("verl:batch=4,staleness=0.5,sync_steps=2");
  CHECK(verl->capacity(Scene{}.view()) == 12);
  // 5 + 2 are alive and 4 of this period are with the trainer: 11 of the 12 are stale.
  Scene scene{.running = 5, .accepted = 6, .delivered_since_version = 4};
  scene.finish(1, 0);
  scene.finish(2, 0);
  CHECK(verl->capacity(scene.view()) == 1);
  // A publication makes stale what is alive, and nothing else.
  scene.version = 2;
  scene.delivered_since_version = 0;
  CHECK(verl->capacity(scene.view()) == 5);
}

TEST_CASE("verl's required samples are rounded down as its own product is") {
  // In binary floating point 100 * (1 + 0.15) is 114.99999999999999, and int() cuts it to 114.
  CHECK(policy("verl:batch=100,staleness=0.15")->capacity(Scene{}.view()) == 114);
  CHECK(policy("verl:batch=3,staleness=0.5")->capacity(Scene{}.view()) == 4);
  CHECK(policy("verl:batch=3,staleness=0")->capacity(Scene{}.view()) == 3);
}

TEST_CASE("verl's full queue drops its oldest entry, every other queue refuses") {
  CHECK(policy("verl:batch=4")->limits().when_full == QueueFull::drop_oldest);
  for (const auto* text : {"areal:batch=4", "verl_span:batch=4", "nemo:batch=4", "prime",
                           "pipeline:batch=4", "semaphore:size=4"}) {
    INFO(text);
    CHECK(policy(text)->limits().when_full == QueueFull::refuse);
  }
}

TEST_CASE("verl_span drops finished groups beyond the threshold, and those alone") {
  const auto drops = policy("verl_span:batch=2,groups=6,threshold=3,old=drop");
  const Scene scene{.batches = 10, .running = 1};
  // Admitted at step 8: 10 - 8 + 1 = 3 is the threshold. At step 7: 4 is beyond it.
  CHECK(drops->judge(scene.view(), sample_in(SamplePhase::finished, 0, 8)) == Verdict::keep);
  CHECK(drops->judge(scene.view(), sample_in(SamplePhase::finished, 0, 7)) == Verdict::evict);
  CHECK(drops->judge(scene.view(), sample_in(SamplePhase::generating, 0, 7)) == Verdict::keep);
  // What was evicted is refilled: 6 - 1.
  CHECK(drops->capacity(scene.view()) == 5);
}

TEST_CASE("verl_span waits for an unfinished group at the threshold, and drops nothing") {
  const auto waits = policy("verl_span:batch=2,groups=6,threshold=3,old=wait");
  Scene scene{.batches = 10};
  scene.finish(1, 0);
  scene.samples[2] = sample_in(SamplePhase::generating, 0, 9);  // Span 2.
  CHECK(waits->hand_over_order(scene.view()) == std::vector<SampleId>{1});
  scene.samples[2].step = 8;  // Span 3.
  CHECK(waits->hand_over_order(scene.view()).empty());
  scene.samples[2].phase = SamplePhase::finished;
  CHECK(waits->hand_over_order(scene.view()) == std::vector<SampleId>{1});
  CHECK(waits->judge(scene.view(), sample_in(SamplePhase::finished, 0, 1)) == Verdict::keep);
}

TEST_CASE("nemo begins batches up to the end of its window") {
  for (const auto* text :
       {"nemo:batch=4,window=1,sampler=weight_fifo", "nemo:batch=4,window=1,sampler=ready_first",
        "nemo:batch=4,window=1,sampler=windowed", "nemo:batch=4,window=1"}) {
    INFO(text);
    const auto nemo = policy(text);
    // Steps 0 and 1: 4 * (0 + 1 + 1) = 8.
    CHECK(nemo->capacity(Scene{}.view()) == 8);
    // Step 1 alone once batch 0 is with the trainer.
    CHECK(nemo->capacity(Scene{.batches = 1, .accepted = 4}.view()) == 4);
    // Steps 1 and 2.
    CHECK(nemo->capacity(Scene{.version = 1, .batches = 1, .accepted = 4}.view()) == 8);
  }
  // A batch that was not taken leaves less room: 4 * 2 - 4.
  Scene scene{.version = 1, .accepted = 4};
  for (SampleId id = 1; id <= 4; ++id) scene.finish(id, 0);
  CHECK(policy("nemo:batch=4,window=1,sampler=ready_first")->capacity(scene.view()) == 4);
}

TEST_CASE("nemo in_order hands over what is meant for the present step") {
  const auto nemo = policy("nemo:batch=2,window=1,sampler=in_order");
  Scene scene{.version = 3, .batches = 3};
  CHECK(nemo->target(scene.view()) == 3);
  scene.finish(1, 3, 4);
  scene.finish(2, 3, 3);
  CHECK(nemo->hand_over_order(scene.view()) == std::vector<SampleId>{2});
  // Steps 3 and 4 lack one each; the earlier one is made up first.
  CHECK(nemo->capacity(scene.view()) == 2);
  CHECK(nemo->target(scene.view()) == 3);
  scene.finish(3, 3, 3);
  CHECK(nemo->target(scene.view()) == 4);
  CHECK(nemo->capacity(scene.view()) == 1);
}

TEST_CASE("nemo in_order evicts what was meant for an earlier step") {
  const auto nemo = policy("nemo:batch=2,sampler=in_order");
  const Scene scene{.version = 3, .batches = 3};
  Sample sample = sample_in(SamplePhase::finished, 2);
  sample.target = 3;
  CHECK(nemo->judge(scene.view(), sample) == Verdict::keep);
  sample.target = 2;
  CHECK(nemo->judge(scene.view(), sample) == Verdict::evict);
  sample.phase = SamplePhase::undispatched;
  CHECK(nemo->judge(scene.view(), sample) == Verdict::evict);
  // One in generation is left to finish.
  sample.phase = SamplePhase::generating;
  CHECK(nemo->judge(scene.view(), sample) == Verdict::keep);
}

TEST_CASE("nemo's other samplers differ in order and in what they evict") {
  Scene scene{.version = 5, .batches = 5};
  scene.finish(1, 5);
  scene.finish(2, 4);
  scene.finish(3, 5);
  scene.finish(4, 4);
  const std::vector<SampleId> by_version{2, 4, 1, 3};
  const std::vector<SampleId> by_finish{1, 2, 3, 4};
  const auto fifo = policy("nemo:batch=2,window=1,sampler=weight_fifo");
  const auto ready = policy("nemo:batch=2,window=1,sampler=ready_first");
  const auto windowed = policy("nemo:batch=2,window=1,sampler=windowed");
  CHECK(fifo->hand_over_order(scene.view()) == by_version);
  CHECK(ready->hand_over_order(scene.view()) == by_finish);
  CHECK(windowed->hand_over_order(scene.view()) == by_finish);

  // The window is [4, 5].
  const Sample inside = sample_in(SamplePhase::finished, 4);
  const Sample below = sample_in(SamplePhase::finished, 3);
  const Sample runs_below = sample_in(SamplePhase::generating, 3);
  CHECK(fifo->judge(scene.view(), inside) == Verdict::keep);
  CHECK(fifo->judge(scene.view(), below) == Verdict::evict);
  CHECK(fifo->judge(scene.view(), runs_below) == Verdict::keep);
  CHECK(ready->judge(scene.view(), below) == Verdict::keep);
  CHECK(windowed->judge(scene.view(), inside) == Verdict::keep);
  CHECK(windowed->judge(scene.view(), below) == Verdict::evict);
  CHECK(windowed->judge(scene.view(), runs_below) == Verdict::evict);
  CHECK(windowed->judge(scene.view(), Sample{}) == Verdict::keep);
  CHECK(windowed->limits().staleness_max == 1);
  CHECK(ready->limits().staleness_max == unlimited);
}

TEST_CASE("prime closes both gates two batches ahead of the version") {
  const auto prime = policy("prime:max_concurrent=6");
  Scene scene{.version = 4, .batches = 5, .running = 2};
  scene.finish(1, 4);
  // The next batch is n = 6: it needs version 4.
  CHECK(prime->hand_over_order(scene.view()) == std::vector<SampleId>{1});
  CHECK(prime->capacity(scene.view()) == 4);
  // n = 7 needs version 5.
  scene.batches = 6;
  CHECK(prime->hand_over_order(scene.view()).empty());
  CHECK(prime->capacity(scene.view()) == 0);
  scene.version = 5;
  CHECK(prime->hand_over_order(scene.view()) == std::vector<SampleId>{1});
  CHECK(prime->capacity(scene.view()) == 4);
}

TEST_CASE("prime drops what began too many steps ago, in generation or not") {
  const auto prime = policy("prime:max_off_policy=8");
  const Scene scene{.version = 11, .batches = 12};
  // 12 - 8 = 4 is the oldest that stays.
  CHECK(prime->judge(scene.view(), sample_in(SamplePhase::generating, 4)) == Verdict::keep);
  CHECK(prime->judge(scene.view(), sample_in(SamplePhase::generating, 3)) == Verdict::evict);
  CHECK(prime->judge(scene.view(), sample_in(SamplePhase::finished, 3)) == Verdict::evict);
  CHECK(prime->judge(Scene{}.view(), sample_in(SamplePhase::finished, 0)) == Verdict::keep);
  // Once version 4 is the last one, no step makes what it generated too old.
  const Scene last{.version = 4, .batches = 40, .more_versions = false};
  CHECK(prime->judge(last.view(), sample_in(SamplePhase::finished, 4)) == Verdict::keep);
}

TEST_CASE("pipeline submits its lead and one batch for each version") {
  // ceil(10 / 4) + 5 = 8.
  const auto pipeline = policy("pipeline:batch=5,attempts=4,max_lag=10");
  CHECK(pipeline->capacity(Scene{}.view()) == 8);
  CHECK(pipeline->capacity(Scene{.running = 8}.view()) == 0);
  CHECK(pipeline->capacity(Scene{.version = 1, .running = 3, .accepted = 5}.view()) == 5);
}

TEST_CASE("pipeline counts as too old what lags by more than its lag in sequences") {
  const auto pipeline = policy("pipeline:batch=5,attempts=4,max_lag=40");
  const Scene scene{.version = 7};
  // Two versions are 2 * 5 * 4 = 40 sequences.
  CHECK_FALSE(pipeline->too_old(scene.view(), sample_in(SamplePhase::finished, 5)));
  CHECK(pipeline->too_old(scene.view(), sample_in(SamplePhase::finished, 4)));
  CHECK(pipeline->judge(scene.view(), sample_in(SamplePhase::finished, 0)) == Verdict::keep);
}

TEST_CASE("a semaphore's permit comes back when a sample is taken, or when it has finished") {
  Scene scene{.running = 3};
  scene.finish(1, 0);
  // 5 - (3 + 1), and 5 - 3.
  CHECK(policy("semaphore:size=5,until=taken")->capacity(scene.view()) == 1);
  const auto until_finished = policy("semaphore:size=5,until=finished");
  CHECK(until_finished->capacity(scene.view()) == 2);
  for (SampleId id = 2; id <= 5; ++id) scene.finish(id, 0);
  CHECK(until_finished->capacity(scene.view()) == 0);
}

TEST_CASE("after the last version the batches pace every rule") {
  // Three batches were taken since version 2, and version 3 never comes.
  Scene scene{.version = 2, .batches = 5, .more_versions = false, .accepted = 20};
  CHECK(policy("areal:eta=1,batch=4")->capacity(scene.view()) == 8);    // (1 + 5 + 1) * 4 - 20.
  CHECK(policy("pipeline:batch=4")->capacity(scene.view()) == 4);       // 4 * 6 - 20.
  CHECK(policy("nemo:batch=4,window=1")->capacity(scene.view()) == 8);  // Steps 5 and 6.
  CHECK(policy("prime:max_concurrent=6")->capacity(scene.view()) == 6);
  scene.delivered_since_version = 12;
  CHECK(policy("verl:batch=4,staleness=0")->capacity(scene.view()) == 4);
  // The same with versions to come: everybody waits for the next one.
  scene.more_versions = true;
  CHECK(policy("areal:eta=1,batch=4")->capacity(scene.view()) == 0);
  CHECK(policy("pipeline:batch=4")->capacity(scene.view()) == 0);
  CHECK(policy("nemo:batch=4,window=1")->capacity(scene.view()) == 0);
  CHECK(policy("prime:max_concurrent=6")->capacity(scene.view()) == 0);
  CHECK(policy("verl:batch=4,staleness=0")->capacity(scene.view()) == 0);
}

TEST_CASE("policies are written as text and read back") {
  CHECK(parse_policy("areal:eta=2,batch=4,max_concurrent=64") ==
        PolicyOptions(ArealOptions{.eta = 2, .batch = 4, .max_concurrent = 64}));
  CHECK(parse_policy("pacing:batch=4") == PolicyOptions(ArealOptions{.batch = 4}));
  CHECK(std::holds_alternative<ArealOptions>(PolicyOptions{}));
  CHECK(parse_policy("verl:batch=8,staleness=0.1,sync_steps=4") ==
        PolicyOptions(VerlOptions{.batch = 8, .staleness = 0.1, .sync_steps = 4}));
  CHECK(parse_policy("nemo:sampler=windowed,batch=2") ==
        PolicyOptions(NemoOptions{.batch = 2, .sampler = NemoSampler::windowed}));
  for (const auto* text :
       {"areal:eta=2,batch=4,max_concurrent=64", "verl:batch=8,staleness=0.1,sync_steps=4",
        "verl_span:batch=2,groups=6,threshold=3,old=wait",
        "nemo:batch=4,window=1,sampler=weight_fifo",
        "prime:max_concurrent=6,max_lag=1,max_off_policy=8",
        "pipeline:batch=5,attempts=4,max_lag=10", "semaphore:size=5,until=finished"}) {
    const auto options = parse_policy(text);
    REQUIRE(options);
    CHECK(text_of(*options) == text);
  }
}

TEST_CASE("text that is no policy says what to write") {
  CHECK(error_of("") ==
        "admission: no policy is called '': write areal, verl, verl_span, nemo, prime, pipeline or "
        "semaphore, as in areal:eta=2,batch=4");
  CHECK(error_of("areel:batch=4").starts_with("admission: no policy is called 'areel'"));
  CHECK(error_of("areal:batch=4,eto=2") ==
        "admission: areal has no option 'eto': it has eta, batch or max_concurrent");
  CHECK(error_of("areal:batch=4,") == "admission: '' is no option: write name:key=value,key=value");
  CHECK(error_of("areal:") == "admission: '' is no option: write name:key=value,key=value");
  CHECK(error_of("areal:batch=4,batch=5") == "admission: batch is given twice: leave one out");
  CHECK(error_of("areal:batch=-4") ==
        "admission: batch=-4: give a whole number from 1 to 1073741824");
  CHECK(error_of("areal:batch=") == "admission: batch=: give a whole number from 1 to 1073741824");
  CHECK(error_of("areal:batch=4x").starts_with("admission: batch=4x: give"));
  CHECK(error_of("areal:batch=99999999999999999999999").starts_with("admission: batch=9999"));
  CHECK(error_of("nemo:batch=4,sampler=oldest") ==
        "admission: sampler=oldest: give in_order, weight_fifo, ready_first or windowed");
  CHECK(error_of("verl:batch=4,staleness=some") ==
        "admission: staleness=some: give a number from 0 to 1000");
}

TEST_CASE("options out of their bounds make no policy") {
  CHECK(error_of("areal") == "admission: batch=0: give a whole number from 1 to 1073741824");
  CHECK(error_of("areal:batch=1073741825").starts_with("admission: batch=1073741825: give"));
  CHECK(error_of("nemo:batch=4,window=1025") ==
        "admission: window=1025: give a whole number from 0 to 1024");
  CHECK(error_of("verl:batch=4,staleness=nan").starts_with("admission: staleness=nan: give"));
  CHECK(error_of("verl:batch=4,staleness=-0.5").starts_with("admission: staleness=-0.5: give"));
  CHECK(error_of("verl_span:batch=65") ==
        "admission: groups=64: no batch of 65 could ever be complete: raise it");
  CHECK_FALSE(make_policy(PolicyOptions{}));
  CHECK_FALSE(make_policy(SemaphoreOptions{.size = 0}));
  CHECK_FALSE(make_policy(PipelineOptions{.batch = 4, .attempts = 0}));
  CHECK_FALSE(make_policy(NemoOptions{.batch = 1, .sampler = static_cast<NemoSampler>(7)}));
}

}  // namespace
}  // namespace weir
