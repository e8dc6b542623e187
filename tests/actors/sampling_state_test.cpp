// Goal: who waits for a sample, a batch or a place in the queue is answered once, and for the right
// reason.
// Method: the decisions alone, at the edges that the actor's tests do not reach.

#include "actors/sampling_state.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/actors/shown_results.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;

SamplingState state_of(const char* policy, SamplingOptions options = {},
                       InFlight in_flight = InFlight::keep) {
  options.policy = *parse_policy(policy);
  auto state = SamplingState::create(options, in_flight);
  REQUIRE(state);
  return *std::move(state);
}

}  // namespace

TEST_CASE("a queue that its policy could get stuck on is refused", "[actors][admission]") {
  SamplingOptions options{.policy = SemaphoreOptions{.size = 8}, .queue_max = 7};
  const auto state = SamplingState::create(options, InFlight::keep);
  REQUIRE_FALSE(state);
  CHECK(state.error().text == "admission: queue_max=7: the policy needs 8 or more");
}

TEST_CASE("a version that comes after the last gets no samples", "[actors][admission]") {
  SamplingState state = state_of("semaphore:size=4");
  state.begin_life(1);
  state.published(1);
  state.serves(1, 0, 1);
  state.no_more_versions();
  state.resumes(1, 0, 2);
  state.serves(1, 0, 2);
  state.admit(1, 1h, 0);
  CHECK(state.take_answers().empty());
  CHECK(state.status().counts.undispatched == 1);
}

TEST_CASE("a replica whose version went back is taken for a new one", "[actors][admission]") {
  SamplingState state = state_of("semaphore:size=4");
  state.begin_life(1);
  state.published(2);
  state.serves(1, 0, 2);
  state.admit(1, 1h, 0);
  REQUIRE(state.take_answers().size() == 1);
  state.serves(1, 0, 1);
  CHECK(state.status().counts.undispatched == 1);
  state.next(2, {1, 1}, 1h);
  const auto answers = state.take_answers();
  REQUIRE(answers.size() == 1);
  CHECK(std::get<Assignment>(answers[0].value) ==
        Assignment{.attempt = {1, 2}, .replica = 0, .version = 1, .tokens = 0});
}

TEST_CASE("what the next version makes too old ends for whoever finishes it",
          "[actors][admission]") {
  // The queue is full, so that the second has to wait; then it is evicted with its finisher.
  SamplingState state =
      state_of("prime:max_concurrent=2,max_lag=8,max_off_policy=0", {.queue_max = 1});
  state.begin_life(1);
  state.published(1);
  state.serves(1, 0, 1);
  state.admit(1, 1h, 0);
  state.finish(2, {1, 1}, 1h);
  state.admit(3, 1h, 0);
  state.finish(4, {2, 1}, 1h);
  CHECK(state.take_answers().size() == 3);
  state.take_batch(5, 1, 1h);
  const auto answers = state.take_answers();
  // The batch makes the step one ahead of the version, and so the second sample too old.
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].ticket == 4);
  CHECK(std::get<Error>(answers[0].value).code == ErrorCode::not_found);
  CHECK(answers[1].ticket == 5);
  CHECK(std::get<std::vector<Delivered>>(answers[1].value).size() == 1);
  CHECK(state.status().counts.rejected_by_policy == 1);
}

TEST_CASE("an attempt that never was is not waited for", "[actors][admission]") {
  SamplingState state = state_of("semaphore:size=4");
  state.next(1, {1, 1}, 1h);
  state.finish(2, {1, 1}, 1h);
  CHECK(state.take_answers().size() == 2);
  CHECK_FALSE(state.extend({1, 1}, {1, 1}));
  CHECK_FALSE(state.reject(1));
  state.begin_life(1);
  state.published(1);
  state.serves(1, 0, 1);
  state.admit(3, 1h, 0);
  state.take_answers();
  state.next(4, {1, 2}, 1h);
  state.next(5, {1, 0}, 1h);
  CHECK(state.take_answers().size() == 2);
}

TEST_CASE("staleness beyond the last bucket counts to it", "[actors][admission]") {
  SamplingState state = state_of("semaphore:size=1", {.staleness_max = unlimited});
  state.begin_life(1);
  state.published(1);
  state.serves(1, 0, 1);
  state.admit(1, 1h, 0);
  state.finish(2, {1, 1}, 1h);
  state.published(1'000'000);
  state.take_batch(3, 1, 1h);
  const auto staleness = state.status().staleness;
  REQUIRE(staleness.size() == staleness_buckets_max);
  CHECK(staleness.back() == 1);
}

}  // namespace weir
