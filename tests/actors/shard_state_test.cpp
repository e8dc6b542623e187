// Goal: a shard does only what it may do now, whoever asks: nothing is committed that was not
// fetched whole, and versions only rise.
// Method: the shards' decisions are driven directly.

#include "actors/shard_state.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 1};
constexpr ShardId rollout{Side::rollout, 2, 3};

Plan plan_for(const ShardId& source, const ShardId& target) {
  Plan plan;
  plan.sources = {{source, {}}};
  plan.parts = {{target, {}}};
  return plan;
}

TEST_CASE("a trainer shard updates to rising versions, one at a time, after it has its plan") {
  TrainerState state(trainer);
  CHECK(state.begin_update(1).error() ==
        Error{ErrorCode::refused, "trainer 0.1 can't update to version 1: it has no plan yet"});
  REQUIRE(state.accept(plan_for(trainer, rollout)));
  REQUIRE(state.begin_update(2));
  CHECK(state.begin_update(3).error() ==
        Error{ErrorCode::refused,
              "trainer 0.1 can't update to version 3: another update is running"});
  state.end_update();
  CHECK(state.begin_update(2).error() ==
        Error{ErrorCode::refused, "trainer 0.1 can't update to version 2: versions only rise"});
  CHECK(state.begin_update(3));
}

TEST_CASE("a trainer shard takes one plan, of which it is a source") {
  TrainerState state(trainer);
  CHECK(state.accept(plan_for({Side::trainer, 0, 0}, rollout)).error() ==
        Error{ErrorCode::invalid, "trainer 0.1 is not a source of the plan that it was sent"});
  REQUIRE(state.accept(plan_for(trainer, rollout)));
  CHECK(state.accept(plan_for(trainer, rollout)).error() ==
        Error{ErrorCode::refused, "trainer 0.1 was sent a second plan"});
}

TEST_CASE("a rollout shard takes one plan, which is just its own part") {
  RolloutState state(rollout);
  const Error foreign{ErrorCode::invalid,
                      "rollout 2.3 was sent a plan that is not just its own part"};
  CHECK(state.accept({}).error() == foreign);
  CHECK(state.accept(plan_for(trainer, {Side::rollout, 2, 2})).error() == foreign);
  Plan both = plan_for(trainer, rollout);
  both.parts.push_back(both.parts.front());
  CHECK(state.accept(both).error() == foreign);
  REQUIRE(state.accept(plan_for(trainer, rollout)));
  CHECK(state.accept(plan_for(trainer, rollout)).error() ==
        Error{ErrorCode::refused, "rollout 2.3 was sent a second plan"});
}

TEST_CASE("a rollout shard fetches, commits and verifies a version in this order only") {
  RolloutState state(rollout);
  const Error unprepared{ErrorCode::refused,
                         "rollout 2.3 can't fetch version 1: its part of the "
                         "plan is not prepared"};
  CHECK(state.begin_fetch(1).error() == unprepared);
  REQUIRE(state.accept(plan_for(trainer, rollout)));
  CHECK(state.begin_fetch(1).error() == unprepared);
  state.prepared();
  CHECK(
      state.commit(1).error() ==
      Error{ErrorCode::refused, "rollout 2.3 can't commit version 1: it has not fetched it whole"});
  REQUIRE(state.begin_fetch(1));
  CHECK(state.begin_fetch(2).error() ==
        Error{ErrorCode::refused,
              "rollout 2.3 can't fetch version 2: it is busy with the one before"});
  CHECK_FALSE(state.commit(1));
  state.end_fetch(true);
  CHECK_FALSE(state.commit(2));
  CHECK(state.begin_verify(1).error() ==
        Error{ErrorCode::refused, "rollout 2.3 can't verify version 1: it is not what it serves"});
  CHECK(state.serving() == 0);
  REQUIRE(state.commit(1));
  CHECK(state.serving() == 1);
  CHECK_FALSE(state.commit(1));
  REQUIRE(state.begin_verify(1));
  CHECK_FALSE(state.begin_verify(1));
  CHECK_FALSE(state.begin_fetch(2));
  state.end_verify();
  CHECK(state.begin_fetch(1).error() ==
        Error{ErrorCode::refused, "rollout 2.3 can't fetch version 1: versions only rise"});
  CHECK(state.begin_fetch(2));
}

TEST_CASE("what a failed fetch left behind is never committed") {
  RolloutState state(rollout);
  REQUIRE(state.accept(plan_for(trainer, rollout)));
  state.prepared();
  REQUIRE(state.begin_fetch(1));
  state.end_fetch(false);
  CHECK_FALSE(state.commit(1));
  REQUIRE(state.begin_fetch(2));
  state.end_fetch(true);
  CHECK_FALSE(state.commit(1));
  CHECK(state.commit(2));
}

}  // namespace
}  // namespace weir
