// Goal: every admitted sample ends exactly once, carries the versions that made it, and reaches the
// trainer only within the staleness bound.
// Method: the state is driven directly through the ways a sample can take; expected values follow
// from the rules by hand.

#include "actors/admission_state.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

namespace weir {
namespace {

using namespace std::chrono_literals;

constexpr Duration far = 1000s;

AdmissionState state_of(std::string_view policy, const AdmissionOptions& options = {}) {
  const auto parsed = parse_policy(policy);
  REQUIRE(parsed);
  auto made = make_policy(*parsed);
  REQUIRE(made);
  auto state = AdmissionState::create(*std::move(made), options);
  REQUIRE(state);
  return *std::move(state);
}

/// Asks for one sample, which has to be admitted at once.
SampleId admitted(AdmissionState& state, const SampleRequest& request = {.deadline = far}) {
  const auto requested = state.request(request);
  REQUIRE(requested);
  REQUIRE(requested->admitted);
  return requested->sample;
}

/// The same, and a replica generates it.
Attempt dispatched(AdmissionState& state, std::uint32_t replica = 0,
                   const SampleRequest& request = {.deadline = far}) {
  const auto started = state.dispatch(admitted(state, request), replica);
  REQUIRE(started);
  return started->attempt;
}

/// The same, and it has finished.
SampleId finished(AdmissionState& state, std::uint32_t replica = 0) {
  const Attempt attempt = dispatched(state, replica);
  REQUIRE(state.finish(attempt));
  return attempt.sample;
}

std::vector<SampleId> ids_of(const Batch& batch) {
  std::vector<SampleId> ids;
  for (const Delivered& sample : batch.samples) ids.push_back(sample.sample);
  return ids;
}

TEST_CASE("a sample goes from admission to hand-over, and is counted at each place") {
  AdmissionState state = state_of("areal:batch=1");
  REQUIRE(state.replica_joins(7, 0));
  const SampleId id = admitted(state);
  CHECK(state.counts().undispatched == 1);
  const auto started = state.dispatch(id, 7);
  REQUIRE(started);
  CHECK(started->version == 0);
  CHECK(state.counts().generating == 1);
  REQUIRE(state.extend(started->attempt, 5));
  REQUIRE(state.extend(started->attempt, 2));
  CHECK(state.finish(started->attempt)->kept);
  CHECK(state.counts().finished == 1);
  CHECK(state.counts().running() == 1);
  const auto batch = state.take_batch(1);
  REQUIRE(batch);
  REQUIRE(ids_of(*batch) == std::vector<SampleId>{id});
  CHECK(batch->samples[0].spans == std::vector<Span>{{0, 7}});
  CHECK(batch->samples[0].staleness == 0);
  AdmissionCounts expected;
  expected.admitted = 1;
  expected.delivered = 1;
  CHECK(state.counts() == expected);
  CHECK(state.samples().empty());
}

TEST_CASE("requests beyond the capacity wait, and are refused beyond the waiting limit") {
  AdmissionState state = state_of("areal:eta=0,batch=1", {.waiting_max = 1});
  REQUIRE(state.replica_joins(0, 0));
  const SampleId first = finished(state);
  const auto second = state.request({.deadline = far});
  REQUIRE(second);
  CHECK_FALSE(second->admitted);
  const AdmissionCounts before = state.counts();
  CHECK(state.request({.deadline = far}).error() ==
        Error{ErrorCode::refused,
              "1 requests wait for admission already, which is the most: ask again later"});
  CHECK(state.counts() == before);
  CHECK(state.admit_waiting().empty());
  REQUIRE(state.take_batch(1));
  CHECK(state.admit_waiting().empty());
  REQUIRE(state.publish(1));
  CHECK(state.admit_waiting() == std::vector<SampleId>{second->sample});
  CHECK(second->sample > first);
}

TEST_CASE("nobody overtakes a request that waits") {
  AdmissionState state = state_of("semaphore:size=1");
  const SampleId first = admitted(state);
  const auto second = state.request({.deadline = far});
  REQUIRE(state.reject(first));
  CHECK(state.capacity() == 1);
  const auto third = state.request({.deadline = far});
  REQUIRE(third);
  CHECK_FALSE(third->admitted);
  CHECK(state.admit_waiting() == std::vector<SampleId>{second->sample});
  REQUIRE(state.withdraw(third->sample));
  CHECK(state.withdraw(third->sample).error().code == ErrorCode::not_found);
  CHECK(state.counts().withdrawn == 1);
  CHECK(state.counts().waiting == 0);
}

TEST_CASE("areal lets no more requests wait than a window of batches") {
  // (0 + 1) * 2, whatever the owner allows.
  AdmissionState state = state_of("areal:eta=0,batch=2", {.waiting_max = 100});
  for (int i = 0; i < 4; ++i) REQUIRE(state.request({.deadline = far}));
  CHECK(state.request({.deadline = far}).error().code == ErrorCode::refused);
}

TEST_CASE("dispatch is refused where the sample would be too stale or nobody would run it") {
  AdmissionState state = state_of("semaphore:size=4", {.staleness_max = 1});
  REQUIRE(state.replica_joins(0, 0));
  REQUIRE(state.publish(2));
  const SampleId id = admitted(state);
  CHECK(state.dispatch(id, 0).error() ==
        Error{ErrorCode::refused,
              "rollout replica 0 serves version 0, too old to be handed over at version 2: have it "
              "switch first"});
  CHECK(state.dispatch(id, 1).error() ==
        Error{ErrorCode::not_found, "rollout replica 1 has not joined, or has died"});
  CHECK(state.dispatch(9, 0).error() ==
        Error{ErrorCode::not_found, "sample 9 is not admitted, or has ended"});
  REQUIRE(state.replica_switches(0, 1, InFlight::keep));
  REQUIRE(state.dispatch(id, 0));
  CHECK(state.dispatch(id, 0).error() ==
        Error{ErrorCode::refused, "sample 1 is dispatched already"});
}

TEST_CASE("a sample carries the version it was dispatched with, however late it comes back") {
  AdmissionState state = state_of("semaphore:size=4");
  REQUIRE(state.replica_joins(0, 0));
  REQUIRE(state.replica_joins(1, 0));
  const Attempt slow = dispatched(state, 1);
  REQUIRE(state.publish(1));
  REQUIRE(state.publish(2));
  REQUIRE(state.replica_switches(0, 2, InFlight::keep));
  REQUIRE(state.extend(slow, 3));
  REQUIRE(state.finish(slow));
  REQUIRE(state.replica_switches(1, 2, InFlight::keep));
  const auto batch = state.take_batch(1);
  REQUIRE(batch);
  CHECK(batch->samples[0].spans == std::vector<Span>{{0, 3}});
  CHECK(batch->samples[0].staleness == 2);
}

TEST_CASE("a finished sample is rejected when a version makes it too stale") {
  AdmissionState state = state_of("semaphore:size=4", {.staleness_max = 1});
  REQUIRE(state.replica_joins(0, 0));
  const SampleId id = finished(state);
  const Attempt runs = dispatched(state);
  CHECK(state.publish(1)->rejected.empty());
  const auto swept = state.publish(2);
  REQUIRE(swept);
  CHECK(swept->rejected == std::vector<SampleId>{id});
  CHECK(swept->aborted.empty());
  // One in generation is rejected when it finishes: until then its replica may requeue it.
  CHECK_FALSE(state.finish(runs)->kept);
  CHECK(state.counts().rejected_stale == 2);
  CHECK(state.take_batch(1).error().code == ErrorCode::refused);
}

TEST_CASE("the oldest span decides the staleness, whatever was generated since") {
  AdmissionState state = state_of("semaphore:size=4", {.staleness_max = 1});
  REQUIRE(state.replica_joins(0, 0));
  const Attempt attempt = dispatched(state);
  REQUIRE(state.extend(attempt, 1));
  for (const std::uint64_t version : {1, 2}) {
    REQUIRE(state.publish(version));
    REQUIRE(state.replica_switches(0, version, InFlight::keep));
    REQUIRE(state.extend(attempt, 100));
  }
  CHECK_FALSE(state.finish(attempt)->kept);
}

TEST_CASE("the policy's staleness bound can be lowered and not raised") {
  CHECK(state_of("areal:eta=2,batch=1", {.staleness_max = 5}).staleness_max() == 2);
  CHECK(state_of("areal:eta=2,batch=1", {.staleness_max = 1}).staleness_max() == 1);
  CHECK(state_of("semaphore:size=1").staleness_max() == 8);
}

TEST_CASE("a full queue refuses, and the sample may finish after the next batch") {
  AdmissionState state = state_of("prime:max_concurrent=4", {.queue_max = 1});
  REQUIRE(state.replica_joins(0, 0));
  const Attempt second = dispatched(state);
  const SampleId first = finished(state);
  const AdmissionCounts before = state.counts();
  CHECK(state.finish(second).error() ==
        Error{ErrorCode::refused,
              "1 finished samples wait for the trainer, which is the most: hold sample 1 until a "
              "batch is taken"});
  CHECK(state.counts() == before);
  CHECK(ids_of(*state.take_batch(1)) == std::vector<SampleId>{first});
  CHECK(state.finish(second)->kept);
}

TEST_CASE("verl: a full queue drops its oldest entry") {
  AdmissionState state = state_of("verl:batch=2,staleness=1", {.queue_max = 2});
  REQUIRE(state.replica_joins(0, 0));
  const SampleId first = finished(state);
  const SampleId second = finished(state);
  const Attempt third = dispatched(state);
  // max_required is 4, and 3 of them are alive.
  CHECK(state.capacity() == 1);
  const auto ended = state.finish(third);
  REQUIRE(ended);
  CHECK(ended->kept);
  CHECK(ended->dropped == first);
  CHECK(state.counts().rejected_for_room == 1);
  // The dropped one makes room for another.
  CHECK(state.capacity() == 2);
  CHECK(ids_of(*state.take_batch(2)) == std::vector<SampleId>{second, third.sample});
}

TEST_CASE("a batch is handed over whole or not at all") {
  AdmissionState state = state_of("areal:batch=2");
  REQUIRE(state.replica_joins(0, 0));
  finished(state);
  const AdmissionCounts before = state.counts();
  CHECK(state.take_batch(2).error() ==
        Error{ErrorCode::refused, "a batch of 2 was asked for, 1 samples may be handed over"});
  CHECK(state.take_batch(0).error() ==
        Error{ErrorCode::invalid, "can't hand over a batch of 0: ask for 1 to 2"});
  CHECK(state.take_batch(3).error().code == ErrorCode::invalid);
  CHECK(state.counts() == before);
}

TEST_CASE("a queue that could bring the loop to a stop is refused") {
  auto policy = make_policy(NemoOptions{.batch = 4, .window = 2});
  REQUIRE(policy);
  const auto created = AdmissionState::create(*std::move(policy), {.queue_max = 11});
  CHECK(created.error() ==
        Error{ErrorCode::invalid, "admission: queue_max=11: the policy needs 12 or more"});
}

TEST_CASE("abort and resume keeps the tokens and repeats the prefill") {
  AdmissionState state = state_of("semaphore:size=4");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt old = dispatched(state, 0, {.deadline = far, .prompt_tokens = 100});
  REQUIRE(state.extend(old, 7));
  REQUIRE(state.publish(1));
  const auto switched = state.replica_switches(0, 1, InFlight::abort_and_resume);
  REQUIRE(switched);
  CHECK(switched->done);
  CHECK(switched->aborted == std::vector<Attempt>{old});
  REQUIRE(switched->resumed.size() == 1);
  const Attempt resumed = switched->resumed[0];
  CHECK(resumed.sample == old.sample);
  // A late word of the aborted attempt is nobody's.
  CHECK(state.extend(old, 9).error() ==
        Error{ErrorCode::not_found, "attempt 1 at sample 1 has ended"});
  CHECK(state.finish(old).error().code == ErrorCode::not_found);
  REQUIRE(state.extend(resumed, 4));
  REQUIRE(state.finish(resumed));
  CHECK(state.take_batch(1)->samples[0].spans == std::vector<Span>{{0, 7}, {1, 4}});
  CHECK(state.counts().repeated_prefill_tokens == 107);
  CHECK(state.counts().requeued == 0);
}

TEST_CASE("keep opens a span, and drops the cache only when told to") {
  for (const auto& [how, repeated] :
       {std::pair{InFlight::keep, 0}, std::pair{InFlight::keep_and_drop_cache, 107}}) {
    AdmissionState state = state_of("semaphore:size=4");
    REQUIRE(state.replica_joins(0, 0));
    const Attempt attempt = dispatched(state, 0, {.deadline = far, .prompt_tokens = 100});
    REQUIRE(state.extend(attempt, 7));
    REQUIRE(state.publish(1));
    const auto switched = state.replica_switches(0, 1, how);
    REQUIRE(switched);
    CHECK(switched->done);
    CHECK(switched->aborted.empty());
    REQUIRE(state.extend(attempt, 4));
    REQUIRE(state.finish(attempt));
    CHECK(state.take_batch(1)->samples[0].spans == std::vector<Span>{{0, 7}, {1, 4}});
    CHECK(state.counts().repeated_prefill_tokens == static_cast<std::uint64_t>(repeated));
  }
}

TEST_CASE("a version that generated nothing leaves a span only if it prefilled the prompt") {
  const auto spans_after = [](InFlight how) {
    AdmissionState state = state_of("semaphore:size=4");
    REQUIRE(state.replica_joins(0, 0));
    const Attempt attempt = dispatched(state);
    for (const std::uint64_t version : {1, 2}) {
      REQUIRE(state.publish(version));
      REQUIRE(state.replica_switches(0, version, how));
    }
    return state.samples().at(attempt.sample).spans;
  };
  CHECK(spans_after(InFlight::keep) == std::vector<Span>{{0, 0}, {2, 0}});
  CHECK(spans_after(InFlight::keep_and_drop_cache) == std::vector<Span>{{2, 0}});
  CHECK(spans_after(InFlight::abort_and_resume) == std::vector<Span>{{2, 0}});
}

TEST_CASE("drain names what must end first, and takes no more meanwhile") {
  AdmissionState state = state_of("semaphore:size=4");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt first = dispatched(state);
  const Attempt second = dispatched(state);
  const SampleId third = admitted(state);
  REQUIRE(state.publish(1));
  auto switched = state.replica_switches(0, 1, InFlight::drain);
  REQUIRE(switched);
  CHECK_FALSE(switched->done);
  CHECK(switched->must_end_first == std::vector<Attempt>{first, second});
  CHECK(state.dispatch(third, 0).error() ==
        Error{ErrorCode::refused, "rollout replica 0 drains: dispatch to another one"});
  REQUIRE(state.finish(first));
  CHECK(state.replica_switches(0, 1, InFlight::drain)->must_end_first ==
        std::vector<Attempt>{second});
  REQUIRE(state.reject(second.sample));
  switched = state.replica_switches(0, 1, InFlight::drain);
  CHECK(switched->done);
  CHECK(state.dispatch(third, 0)->version == 1);
  CHECK(state.samples().at(first.sample).spans == std::vector<Span>{{0, 0}});
}

TEST_CASE("a drain that takes too long may end in another way") {
  AdmissionState state = state_of("semaphore:size=4");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt attempt = dispatched(state);
  REQUIRE(state.publish(1));
  CHECK_FALSE(state.replica_switches(0, 1, InFlight::drain)->done);
  CHECK(state.replica_switches(0, 1, InFlight::abort_and_requeue)->done);
  CHECK(state.dispatch(attempt.sample, 0)->version == 1);
}

TEST_CASE("abort and requeue begins anew, and counts what was lost") {
  AdmissionState state = state_of("semaphore:size=4", {.staleness_max = 0});
  REQUIRE(state.replica_joins(0, 0));
  const Attempt old = dispatched(state, 0, {.deadline = far, .prompt_tokens = 100});
  REQUIRE(state.extend(old, 7));
  REQUIRE(state.publish(1));
  const auto switched = state.replica_switches(0, 1, InFlight::abort_and_requeue);
  REQUIRE(switched);
  CHECK(switched->aborted == std::vector<Attempt>{old});
  CHECK(switched->requeued == std::vector<SampleId>{old.sample});
  CHECK(state.undispatched() == std::set<SampleId>{old.sample});
  CHECK(state.counts().discarded_tokens == 7);
  CHECK(state.counts().repeated_prefill_tokens == 100);
  CHECK(state.counts().requeued == 1);
  // It was admitted once, and is fresh again.
  const auto again = state.dispatch(old.sample, 0);
  REQUIRE(again);
  CHECK(again->version == 1);
  CHECK(state.finish(old).error().code == ErrorCode::not_found);
  CHECK(state.finish(again->attempt)->kept);
  CHECK(state.take_batch(1)->samples[0].staleness == 0);
  CHECK(state.counts().admitted == 1);
}

TEST_CASE("a replica serves published versions, and they rise") {
  AdmissionState state = state_of("semaphore:size=4");
  CHECK(state.replica_joins(0, 1).error() ==
        Error{ErrorCode::invalid, "rollout replica 0 serves version 1, which is not published"});
  REQUIRE(state.publish(3));
  REQUIRE(state.replica_joins(0, 2));
  CHECK(state.replica_joins(0, 2).error() ==
        Error{ErrorCode::refused, "rollout replica 0 has joined already"});
  CHECK(state.replica_switches(0, 4, InFlight::keep).error() ==
        Error{ErrorCode::invalid,
              "rollout replica 0 can't switch to version 4, which is not published"});
  CHECK(state.replica_switches(0, 2, InFlight::keep).error() ==
        Error{ErrorCode::invalid, "rollout replica 0 can't switch to version 2 from version 2"});
  CHECK(state.replica_switches(1, 3, InFlight::keep).error().code == ErrorCode::not_found);
  CHECK(state.publish(3).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 3: it must be greater than the last one, 3"});
}

TEST_CASE("a dead replica's samples are requeued until their retries are used up") {
  AdmissionState state = state_of("semaphore:size=4", {.retries_max = 1});
  REQUIRE(state.replica_joins(0, 0));
  REQUIRE(state.replica_joins(1, 0));
  const Attempt first = dispatched(state, 0);
  REQUIRE(state.extend(first, 5));
  const SampleId done = finished(state, 0);
  auto lost = state.replica_dies(0);
  REQUIRE(lost);
  CHECK(lost->requeued == std::vector<SampleId>{first.sample});
  CHECK(lost->expired.empty());
  CHECK(state.finish(first).error().code == ErrorCode::not_found);
  REQUIRE(state.dispatch(first.sample, 1));
  lost = state.replica_dies(1);
  REQUIRE(lost);
  CHECK(lost->requeued.empty());
  CHECK(lost->expired == std::vector<SampleId>{first.sample});
  CHECK(state.counts().expired_replica == 1);
  CHECK(state.counts().discarded_tokens == 5);
  CHECK(state.replica_dies(1).error().code == ErrorCode::not_found);
  // What had finished is not lost with the replica.
  CHECK(ids_of(*state.take_batch(1)) == std::vector<SampleId>{done});
}

TEST_CASE("what is not finished by its deadline expires, wherever it is") {
  AdmissionState state = state_of("semaphore:size=3");
  REQUIRE(state.replica_joins(0, 0));
  CHECK_FALSE(state.next_deadline());
  const Attempt runs = dispatched(state, 0, {.deadline = 5s});
  const SampleId idle = admitted(state, {.deadline = 4s});
  const Attempt ends = dispatched(state, 0, {.deadline = 3s});
  const auto waits = state.request({.deadline = 2s});
  CHECK(state.next_deadline() == Duration(2s));
  REQUIRE(state.finish(ends));
  CHECK(state.expire(1s).waiting.empty());
  const Expired expired = state.expire(5s);
  CHECK(expired.waiting == std::vector<SampleId>{waits->sample});
  CHECK(expired.samples == std::vector<SampleId>{idle, runs.sample});
  CHECK(expired.aborted == std::vector<Attempt>{runs});
  CHECK(state.counts().expired_deadline == 2);
  CHECK(state.counts().lapsed == 1);
  CHECK(state.counts().finished == 1);
  CHECK_FALSE(state.next_deadline());
}

TEST_CASE("a producer may give up a sample anywhere, and once") {
  AdmissionState state = state_of("semaphore:size=3");
  REQUIRE(state.replica_joins(0, 0));
  const SampleId idle = admitted(state);
  const Attempt runs = dispatched(state);
  const SampleId done = finished(state);
  for (const SampleId id : {idle, runs.sample, done}) {
    REQUIRE(state.reject(id));
    CHECK(state.reject(id).error().code == ErrorCode::not_found);
  }
  CHECK(state.counts().rejected_by_producer == 3);
  CHECK(state.capacity() == 3);
}

TEST_CASE("verl_span drop: a group beyond the threshold is rejected as it finishes") {
  AdmissionState state = state_of("verl_span:batch=1,groups=3,threshold=1");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt slow = dispatched(state);
  finished(state);
  REQUIRE(state.take_batch(1));
  // Its span is 1 - 0 + 1 = 2 now.
  CHECK_FALSE(state.finish(slow)->kept);
  CHECK(state.counts().rejected_by_policy == 1);
}

TEST_CASE("nemo windowed: a version aborts what runs below its window") {
  AdmissionState state = state_of("nemo:batch=2,window=1,sampler=windowed");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt attempt = dispatched(state);
  REQUIRE(state.publish(1));
  const auto swept = state.publish(2);
  REQUIRE(swept);
  CHECK(swept->rejected == std::vector<SampleId>{attempt.sample});
  CHECK(swept->aborted == std::vector<Attempt>{attempt});
  CHECK(state.counts().rejected_by_policy == 1);
  CHECK(state.counts().rejected_stale == 0);
}

TEST_CASE("nemo windowed: what begins anew is judged by its new version alone") {
  AdmissionState state = state_of("nemo:batch=2,window=1,sampler=windowed");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt attempt = dispatched(state);
  REQUIRE(state.publish(1));
  REQUIRE(state.replica_switches(0, 1, InFlight::abort_and_requeue));
  CHECK(state.publish(2)->rejected.empty());
  CHECK(state.dispatch(attempt.sample, 0)->version == 1);
}

TEST_CASE("nemo in_order: what was rejected is made up for in its own step") {
  AdmissionState state = state_of("nemo:batch=1,window=1");
  REQUIRE(state.replica_joins(0, 0));
  const Attempt first = dispatched(state);
  const SampleId second = finished(state);
  CHECK(state.capacity() == 0);
  // The second is for step 1: it is not handed over in place of the first.
  CHECK(state.take_batch(1).error().code == ErrorCode::refused);
  REQUIRE(state.reject(first.sample));
  const SampleId third = finished(state);
  CHECK(state.samples().at(third).target == 0);
  CHECK(ids_of(*state.take_batch(1)) == std::vector<SampleId>{third});
  CHECK(ids_of(*state.take_batch(1)) == std::vector<SampleId>{second});
}

}  // namespace
}  // namespace weir
