// Goal: a shard does only what it may do now, whoever asks, and says of itself what is so.
// Method: the shards' decisions are driven directly; every refusal leaves them as they were.

#include "actors/shard_state.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/actors/shown_results.hpp"

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

Error refused(const std::string& text) {
  return {ErrorCode::refused, text};
}

/// A rollout shard that runs with version 1, in slot 0.
RolloutState running(Placement placement) {
  RolloutState state(rollout, placement);
  REQUIRE(state.begin_fetch(1, 0));
  state.end_fetch(true);
  REQUIRE(state.begin_install(1, 0));
  state.end_order(true);
  REQUIRE(state.begin_resume(1));
  state.end_order(true);
  return state;
}

TEST_CASE("members obey orders for the seat that they have, and for no other") {
  TrainerState state(trainer, 1);
  RolloutState target(rollout, Placement::in_place);
  CHECK(state.obey(0).error() == refused("trainer 0.1 has seat 0, and the order was for seat 0"));
  state.seated(5);
  target.seated(6);
  CHECK(state.obey(5));
  CHECK(target.obey(6));
  CHECK(target.obey(5).error() == refused("rollout 2.3 has seat 6, and the order was for seat 5"));
  CHECK(state.status().seat == 5);
}

TEST_CASE("members take only a plan that is theirs") {
  TrainerState state(trainer, 1);
  state.seated(1);
  CHECK(state.accept(2, plan_for(trainer, rollout)).error().code == ErrorCode::refused);
  CHECK(state.accept(1, plan_for({Side::trainer, 0, 0}, rollout)).error() ==
        Error{ErrorCode::invalid, "trainer 0.1 is not a source of the plan that it was sent"});
  CHECK(state.accept(1, plan_for(trainer, rollout)));
  RolloutState target(rollout, Placement::in_place);
  target.seated(1);
  const Error foreign{ErrorCode::invalid,
                      "rollout 2.3 was sent a plan that is not just its own part"};
  CHECK(target.accept(1, {}).error() == foreign);
  CHECK(target.accept(1, plan_for(trainer, {Side::rollout, 2, 2})).error() == foreign);
  Plan both = plan_for(trainer, rollout);
  both.parts.push_back(both.parts.front());
  CHECK(target.accept(1, both).error() == foreign);
  CHECK(target.accept(1, plan_for(trainer, rollout)));
}

TEST_CASE("a trainer shard's versions rise, and what it has begun it may begin again") {
  TrainerState state(trainer, 2);
  CHECK(state.wants(0).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 0: it must be greater than the last one, 0"});
  CHECK(state.wants(3));
  CHECK(state.staged(3).error() ==
        refused("trainer 0.1 can't publish version 3: it did not begin to write it"));
  CHECK(state.acquired(3, 2).error() ==
        Error{ErrorCode::invalid, "trainer 0.1 was given slot 2, but has 2"});
  REQUIRE(state.acquired(3, 1));
  CHECK(state.status().slots[1] == SlotReport{SlotState::writing, 3});
  CHECK(state.wants(3));
  CHECK_FALSE(state.wants(2));
  REQUIRE(state.staged(3));
  REQUIRE(state.staged(3));
  CHECK(state.wants(3).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 3: it must be greater than the last one, 3"});
  CHECK(state.wants(4));
}

TEST_CASE("a trainer shard that goes on to a newer version has nothing of the one it left") {
  TrainerState state(trainer, 3);
  REQUIRE(state.acquired(1, 0));
  REQUIRE(state.staged(1));
  REQUIRE(state.acquired(2, 1));
  REQUIRE(state.acquired(3, 2));
  CHECK(state.status().slots == std::vector<SlotReport>{{SlotState::whole, 1},
                                                        {SlotState::empty, 0},
                                                        {SlotState::writing, 3}});
  CHECK_FALSE(state.staged(2));
}

TEST_CASE("a fetch writes only what the engine does not read") {
  RolloutState live = running(Placement::in_place);
  CHECK(live.begin_fetch(2, 0).error() ==
        refused("rollout 2.3 can't fetch version 2: its engine reads that memory"));
  CHECK(live.begin_fetch(2, 1).error() == Error{ErrorCode::invalid, "rollout 2.3 has no slot 1"});
  REQUIRE(live.begin_pause());
  CHECK(live.begin_fetch(2, 0).error() ==
        refused("rollout 2.3 can't fetch version 2: its engine is busy"));
  live.end_order(true);
  CHECK(live.status().installed == 1);
  REQUIRE(live.begin_fetch(2, 0));
  CHECK(live.status().installed == 0);
  CHECK(live.begin_fetch(2, 0).error() ==
        refused("rollout 2.3 can't fetch version 2: another fetch is running"));
  CHECK(live.begin_resume(1).error() ==
        refused("rollout 2.3 can't resume with version 1: it is not what it has installed"));
  live.end_fetch(false);
  CHECK(live.status().installed == 0);

  RolloutState buffered = running(Placement::second_buffer);
  CHECK_FALSE(buffered.begin_fetch(2, 0));
  REQUIRE(buffered.begin_fetch(2, 1));
  CHECK(buffered.status().installed == 1);
  CHECK(buffered.status().running);

  RolloutState staged = running(Placement::staging);
  REQUIRE(staged.begin_fetch(2, 0));
  CHECK(staged.status().installed == 1);
}

TEST_CASE(
    "only what was fetched whole is installed, while the engine is paused and nothing comes") {
  RolloutState state = running(Placement::second_buffer);
  REQUIRE(state.begin_fetch(2, 1));
  state.end_fetch(true);
  CHECK(state.begin_install(2, 1).error() ==
        refused("rollout 2.3 can't install version 2: its engine is not paused"));
  REQUIRE(state.begin_pause());
  CHECK(state.begin_pause().error() == refused("rollout 2.3 can't pause: its engine is busy"));
  CHECK_FALSE(state.begin_install(2, 1));
  state.end_order(true);
  const Error partial =
      refused("rollout 2.3 can't install version 2: it does not lie whole in that slot");
  CHECK(state.begin_install(2, 0).error() == partial);
  CHECK(state.begin_install(2, 2).error() == partial);
  CHECK_FALSE(state.begin_install(0, 1));
  REQUIRE(state.begin_install(2, 1));
  CHECK(state.ordered());
  state.end_order(true);
  CHECK(state.status().installed == 2);
  CHECK(state.status().installed_slot == 1);
  // The version before is still there, to go back to.
  REQUIRE(state.begin_install(1, 0));
  state.end_order(true);
  REQUIRE(state.begin_fetch(3, 1));
  CHECK(state.begin_install(1, 0).error() ==
        refused("rollout 2.3 can't install version 1: a fetch is running"));
  state.end_fetch(false);
  CHECK_FALSE(state.begin_install(3, 1));
  CHECK_FALSE(state.begin_install(2, 1));
}

TEST_CASE("an engine order that fails leaves what is so") {
  RolloutState state = running(Placement::second_buffer);
  REQUIRE(state.begin_pause());
  state.end_order(false);
  CHECK(state.status().running);
  REQUIRE(state.begin_pause());
  state.end_order(true);
  CHECK_FALSE(state.status().running);
  REQUIRE(state.begin_install(1, 0));
  state.end_order(false);
  CHECK(state.status().installed == 0);
  CHECK_FALSE(state.begin_resume(1));
  REQUIRE(state.begin_install(1, 0));
  state.end_order(true);
  REQUIRE(state.begin_resume(1));
  state.end_order(false);
  CHECK_FALSE(state.status().running);
  // Nothing was ordered.
  state.end_order(true);
  CHECK_FALSE(state.status().running);
}

TEST_CASE("a shard remembers the newest version that it generated with") {
  RolloutState state = running(Placement::in_place);
  REQUIRE(state.begin_pause());
  state.end_order(true);
  REQUIRE(state.begin_fetch(2, 0));
  state.end_fetch(true);
  REQUIRE(state.begin_install(2, 0));
  state.end_order(true);
  CHECK(state.status().served == 1);
  REQUIRE(state.begin_resume(2));
  state.end_order(true);
  CHECK(state.status().served == 2);
}

}  // namespace
}  // namespace weir
