// Goal: the owner of an exchange is told which replica runs each sample and when an attempt is
// over, whatever replicas do, and no sample goes out of account.
// Method: the admission actor alone, in virtual time; the test plays owner, coordinators and
// supervisor.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "tests/actors/admission_bench.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;
using bench::far;
using Bench = bench::AdmissionBench;

std::uint64_t accounted(const AdmissionCounts& counts) {
  return counts.delivered + counts.rejected() + counts.expired() + counts.running();
}

}  // namespace

TEST_CASE("a sample goes to the least loaded replica, with the version that it serves",
          "[actors][admission]") {
  Bench bench;
  bench.with_replicas();
  bench.publish(2);
  bench.switch_over(1, 2);
  const Assignment first = bench.assigned();
  CHECK(first == Assignment{.attempt = {1, 1}, .replica = 0, .version = 1, .tokens = 0});
  CHECK(bench.assigned() == Assignment{.attempt = {2, 1}, .replica = 1, .version = 2, .tokens = 0});
  CHECK(bench.assigned().replica == 0);
  bench.finished(first.attempt);
  // One each again, so the first replica is next.
  CHECK(bench.assigned().replica == 0);
}

TEST_CASE("a replica that is too far behind gets no sample", "[actors][admission]") {
  Bench bench("semaphore:size=4,until=finished", {.staleness_max = 1});
  bench.with_replicas();
  bench.publish(2);
  bench.publish(3);
  bench.switch_over(1, 3);
  CHECK(bench.assigned().replica == 1);
  CHECK(bench.assigned().replica == 1);
}

TEST_CASE("nothing goes out before the first version, and who waits for it has a deadline",
          "[actors][admission]") {
  Bench bench("semaphore:size=4,until=finished", {.waiting_max = 2});
  const auto late = bench.admit(1s);
  const auto patient = bench.admit(1min);
  CHECK(bench.error(bench.admit()) == ErrorCode::refused);
  CHECK(bench.counts().waiting == 2);
  bench.pass(2s);
  CHECK(bench.error(late) == ErrorCode::timeout);
  bench.publish(7);
  CHECK_FALSE(patient->has_value());
  bench.serve(0, 7);
  CHECK(bench.now(patient)->version == 7);
}

TEST_CASE("generation is paced from the first version on, whatever its number",
          "[actors][admission]") {
  Bench bench("areal:eta=0,batch=2,max_concurrent=64");
  bench.publish(40);
  bench.serve(0, 40);
  bench.assigned();
  bench.assigned();
  // With η = 0 a version has one batch, and not 41.
  const auto third = bench.admit();
  CHECK_FALSE(third->has_value());
  bench.publish(41);
  bench.switch_over(0, 41);
  CHECK(bench.now(third)->version == 41);
}

TEST_CASE("a replica gets no sample from its pause until it serves again", "[actors][admission]") {
  Bench bench;
  bench.publish(1);
  bench.serve(0, 1);
  bench.pause(0);
  const auto waits = bench.admit();
  CHECK_FALSE(waits->has_value());
  bench.publish(2);
  bench.resume(0, 2);
  CHECK_FALSE(waits->has_value());
  bench.serve(0, 2);
  CHECK(bench.now(waits)->version == 2);
}

TEST_CASE("a switch does to samples what its way of treating them says", "[actors][admission]") {
  const auto way =
      GENERATE(InFlight::abort_and_resume, InFlight::keep, InFlight::keep_and_drop_cache,
               InFlight::drain, InFlight::abort_and_requeue);
  CAPTURE(static_cast<int>(way));
  Bench bench("semaphore:size=4,until=finished", {}, way);
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt first = bench.assigned().attempt;
  REQUIRE(bench.now(bench.extend(first, {1, 5})));
  bench.publish(2);
  bench.pause(0);
  const bool aborts = way == InFlight::abort_and_resume || way == InFlight::abort_and_requeue;
  // An engine that aborts does so at its pause; the owner asks for what comes next at once.
  const auto next = aborts ? bench.next(first) : nullptr;
  bench.resume(0, 2);
  bench.serve(0, 2);
  Attempt attempt = first;
  if (aborts) {
    const bool resumes = way == InFlight::abort_and_resume;
    CHECK(bench.now(next) ==
          Result<Assignment>(Assignment{
              .attempt = {1, 2}, .replica = 0, .version = 2, .tokens = resumes ? 5U : 0U}));
    CHECK(bench.error(bench.extend(first, {1, 1})) == ErrorCode::not_found);
    attempt = bench.now(next)->attempt;
  }
  REQUIRE(bench.now(bench.extend(attempt, {2, 3})));
  bench.finished(attempt);
  const auto batch = bench.now(bench.take(1));
  REQUIRE(batch);
  std::vector<Span> spans{{1, 5}, {2, 3}};
  if (way == InFlight::abort_and_requeue) spans = {{2, 3}};
  CHECK(batch->front().spans == spans);
  CHECK(batch->front().staleness == (way == InFlight::abort_and_requeue ? 0 : 1));
  CHECK(bench.counts().requeued == (way == InFlight::abort_and_requeue ? 1 : 0));
  CHECK(bench.counts().discarded_tokens == (way == InFlight::abort_and_requeue ? 5 : 0));
}

TEST_CASE("a replica that goes on with its old version replaces what its pause has aborted",
          "[actors][admission]") {
  const auto way = GENERATE(InFlight::abort_and_resume, InFlight::abort_and_requeue);
  Bench bench("semaphore:size=4,until=finished", {.retries_max = 0}, way);
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt first = bench.assigned().attempt;
  REQUIRE(bench.now(bench.extend(first, {1, 5})));
  bench.pause(0);
  const auto next = bench.next(first);
  CHECK_FALSE(next->has_value());
  // The installation failed, and every shard has the version before.
  bench.resume(0, 1);
  bench.serve(0, 1);
  REQUIRE(bench.now(next));
  CHECK(bench.now(next)->attempt == Attempt{1, 2});
  CHECK(bench.now(next)->tokens == (way == InFlight::abort_and_resume ? 5 : 0));
}

TEST_CASE("tokens count for the version that made them, however late they are told",
          "[actors][admission]") {
  const auto way = GENERATE(InFlight::keep, InFlight::keep_and_drop_cache, InFlight::drain);
  Bench bench("semaphore:size=4,until=finished", {}, way);
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt attempt = bench.assigned().attempt;
  bench.publish(2);
  bench.switch_over(0, 2);
  REQUIRE(bench.now(bench.extend(attempt, {2, 4})));
  REQUIRE(bench.now(bench.extend(attempt, {1, 7})));
  CHECK(bench.error(bench.extend(attempt, {3, 1})) == ErrorCode::invalid);
  bench.finished(attempt);
  const auto batch = bench.now(bench.take(1));
  REQUIRE(batch);
  CHECK(batch->front().spans == std::vector<Span>{{1, 7}, {2, 4}});
  CHECK(batch->front().staleness == 1);
}

TEST_CASE("a sample whose replica dies goes to another, as often as it may",
          "[actors][admission]") {
  Bench bench;
  bench.with_replicas();
  const Assignment first = bench.assigned();
  REQUIRE(bench.now(bench.extend(first.attempt, {1, 5})));
  const auto second = bench.next(first.attempt, far);
  // The owner's engine gave it up by itself, and only then the replica is found to be dead.
  CHECK(bench.now(second) ==
        Result<Assignment>(Assignment{.attempt = {1, 2}, .replica = 0, .version = 1, .tokens = 0}));
  CHECK(bench.counts().discarded_tokens == 5);
  bench.leave(0);
  const auto none = bench.next({1, 2});
  CHECK(bench.error(none) == ErrorCode::not_found);
  CHECK(bench.counts().expired_replica == 1);

  const Assignment other = bench.assigned();
  CHECK(other.replica == 1);
  bench.leave(1);
  const auto waits = bench.next(other.attempt);
  CHECK_FALSE(waits->has_value());
  bench.serve(0, 1);
  CHECK(bench.now(waits)->replica == 0);
  const auto last = bench.next(bench.now(waits)->attempt);
  CHECK(bench.error(last) == ErrorCode::unavailable);
  CHECK(bench.counts().expired_replica == 2);
  CHECK(accounted(bench.counts()) == 2);
}

TEST_CASE("a pause is no loss to a sample that the engine gave up meanwhile, its end may be one",
          "[actors][admission]") {
  Bench bench("semaphore:size=4,until=finished", {.retries_max = 1}, InFlight::keep);
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt first = bench.assigned().attempt;
  bench.pause(0);
  // An engine that keeps what it has should not have given it up.
  const auto next = bench.next(first);
  CHECK_FALSE(next->has_value());
  bench.publish(2);
  bench.resume(0, 2);
  bench.serve(0, 2);
  CHECK(bench.now(next)->attempt == Attempt{1, 2});
  CHECK(bench.now(next)->version == 2);
}

TEST_CASE("what is not finished by its deadline expires, and its replica's word says so",
          "[actors][admission]") {
  Bench bench("semaphore:size=1,until=finished");
  bench.with_replicas();
  const Attempt attempt = bench.assigned(2s).attempt;
  const auto waits = bench.admit(1s);
  bench.pass(1s);
  CHECK(bench.error(waits) == ErrorCode::timeout);
  CHECK(bench.counts().lapsed == 1);
  REQUIRE(bench.now(bench.extend(attempt, {1, 1})));
  const auto heir = bench.admit(1min);
  bench.pass(1s);
  CHECK(bench.counts().expired_deadline == 1);
  CHECK(bench.error(bench.extend(attempt, {1, 1})) == ErrorCode::not_found);
  CHECK(bench.error(bench.finish(attempt)) == ErrorCode::not_found);
  CHECK(bench.now(heir));
}

TEST_CASE("who waits for the next attempt is answered by its deadline, and the sample lives on",
          "[actors][admission]") {
  Bench bench;
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt attempt = bench.assigned().attempt;
  bench.leave(0);
  const auto next = bench.next(attempt, 1s);
  CHECK(bench.error(bench.next(attempt, 1s)) == ErrorCode::refused);
  bench.pass(1s);
  CHECK(bench.error(next) == ErrorCode::timeout);
  CHECK(bench.counts().undispatched == 1);
  // Nobody is there to run it: it is not sent out, and keeps its one retry.
  bench.serve(0, 1);
  CHECK(bench.counts().undispatched == 1);
  CHECK(bench.now(bench.next(attempt))->attempt == Attempt{1, 2});
}

TEST_CASE("a full queue holds what is finished until a batch is taken", "[actors][admission]") {
  Bench bench("semaphore:size=2,until=finished", {.queue_max = 2});
  bench.with_replicas();
  const Attempt first = bench.assigned().attempt;
  const Attempt second = bench.assigned().attempt;
  bench.finished(first);
  const Attempt third = bench.assigned().attempt;
  bench.finished(second);
  const auto late = bench.finish(third, 1s);
  CHECK(bench.error(bench.finish(third)) == ErrorCode::refused);
  bench.pass(1s);
  CHECK(bench.error(late) == ErrorCode::timeout);
  const auto patient = bench.finish(third);
  CHECK_FALSE(patient->has_value());
  REQUIRE(bench.now(bench.take(2)));
  CHECK(bench.now(patient) == Result<bool>(true));
  CHECK(bench.counts().finished == 1);
}

TEST_CASE("too many who wait for admission are refused", "[actors][admission]") {
  Bench bench("semaphore:size=1,until=finished", {.waiting_max = 1});
  bench.with_replicas();
  bench.assigned();
  const auto waits = bench.admit();
  CHECK_FALSE(waits->has_value());
  CHECK(bench.error(bench.admit()) == ErrorCode::refused);
}

TEST_CASE("a batch is waited for, whole, by one", "[actors][admission]") {
  Bench bench;
  bench.with_replicas();
  CHECK(bench.error(bench.take(5)) == ErrorCode::invalid);
  const auto late = bench.take(2, 1s);
  CHECK(bench.error(bench.take(2)) == ErrorCode::refused);
  const Attempt first = bench.assigned().attempt;
  const Attempt second = bench.assigned().attempt;
  bench.finished(first);
  bench.pass(1s);
  CHECK(bench.error(late) == ErrorCode::timeout);
  const auto batch = bench.take(2);
  CHECK_FALSE(batch->has_value());
  bench.finished(second);
  REQUIRE(bench.now(batch));
  CHECK(bench.now(batch)->size() == 2);
  const auto status = bench.now(bench.ask<SamplingStatus>(StatusAtom::value));
  CHECK(status->counts.delivered == 2);
  CHECK(status->staleness == std::vector<std::uint64_t>{2});
}

TEST_CASE("a sample that is given up ends for whoever waits for it", "[actors][admission]") {
  Bench bench;
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt attempt = bench.assigned().attempt;
  bench.leave(0);
  const auto next = bench.next(attempt);
  CHECK(bench.now(bench.ask<caf::ok_atom>(RejectAtom::value, SampleId{1})));
  CHECK(bench.error(next) == ErrorCode::not_found);
  CHECK(bench.error(bench.ask<caf::ok_atom>(RejectAtom::value, SampleId{1})) ==
        ErrorCode::not_found);
  CHECK(bench.counts().rejected_by_producer == 1);
}

TEST_CASE("without more versions batches pace generation", "[actors][admission]") {
  Bench bench("areal:eta=0,batch=1,max_concurrent=64");
  bench.publish(1);
  bench.serve(0, 1);
  const Attempt first = bench.assigned().attempt;
  const auto second = bench.admit();
  bench.finished(first);
  REQUIRE(bench.now(bench.take(1)));
  CHECK_FALSE(second->has_value());
  REQUIRE(bench.now(bench.ask<caf::ok_atom>(LastAtom::value)));
  CHECK(bench.now(second));
}

TEST_CASE("coordinators of an earlier life are not listened to", "[actors][admission]") {
  Bench bench;
  bench.with_replicas();
  const Attempt attempt = bench.assigned().attempt;
  bench.begin_life(2);
  // Until the new ones have spoken, nobody is trusted to run samples; what runs goes on.
  const auto waits = bench.admit();
  CHECK_FALSE(waits->has_value());
  bench.life = 1;
  bench.serve(0, 1);
  bench.leave(0);
  CHECK_FALSE(waits->has_value());
  REQUIRE(bench.now(bench.extend(attempt, {1, 1})));
  bench.life = 2;
  bench.serve(1, 1);
  CHECK(bench.now(waits)->replica == 1);
}

TEST_CASE("the actor's successor goes on with its samples, without those who waited",
          "[actors][admission]") {
  Bench bench("semaphore:size=1,until=finished");
  bench.with_replicas();
  const Attempt attempt = bench.assigned().attempt;
  const auto waits = bench.admit();
  const auto batch = bench.take(1);
  bench.fail();
  CHECK(bench.error(waits) == ErrorCode::unavailable);
  CHECK(bench.error(batch) == ErrorCode::unavailable);
  CHECK(bench.counts().withdrawn == 1);
  CHECK(bench.counts().generating == 1);
  bench.finished(attempt);
  REQUIRE(bench.now(bench.take(1)));
  CHECK(bench.counts().delivered == 1);
  CHECK(accounted(bench.counts()) == bench.counts().admitted);
}

TEST_CASE("when the exchange has failed, so has every request", "[actors][admission]") {
  Bench bench;
  const auto waits = bench.admit();
  bench.tell(FailAtom::value, Error{ErrorCode::unavailable, "Ctrl-C"});
  CHECK(bench.error(waits) == ErrorCode::unavailable);
  CHECK(bench.now(waits).error().text == "Ctrl-C");
  CHECK(bench.now(bench.admit()).error().text == "Ctrl-C");
  CHECK(bench.now(bench.extend({1, 1}, {1, 1})).error().text == "Ctrl-C");
}

}  // namespace weir
