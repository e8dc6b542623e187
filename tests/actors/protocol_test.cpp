// Goal: whatever the order of events, every version reaches every replica whole; and whoever dies,
// fails or falls silent, at whatever moment, everyone gets an answer, the error names the member
// and what it was doing, and every actor ends.
// Method: the production actors in one thread and virtual time (`world.hpp`). A seed decides every
// choice; a member is killed at every step of a run in turn.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "tests/actors/world.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 1};
constexpr ShardId rollout{Side::rollout, 1, 0};

ExchangeOptions two_by_two() {
  return {.trainer_ranks = 2,
          .rollout_replicas = 2,
          .rollout_ranks = 2,
          .join_deadline = 60s,
          .publish_deadline = 300s};
}

void end_in_good_order(World& world) {
  REQUIRE(world.outcome(world.end()));
  world.drain();
  for (const auto& host : world.hosts()) {
    INFO(text_of(host->shard));
    REQUIRE(host->ended);
    CHECK(*host->ended);
  }
  CHECK(world.running() == 0);
}

/// After `error`: later calls get it too, all live members are told, and all actors end.
void end_after(World& world, const Error& error) {
  CHECK(world.outcome(world.await_plan()).error() == error);
  CHECK(world.outcome(world.publish(99)).error() == error);
  REQUIRE(world.outcome(world.end()));
  world.drain();
  for (const auto& host : world.hosts()) {
    if (!host->address) continue;
    INFO(text_of(host->shard));
    REQUIRE(host->ended);
    CHECK_FALSE(*host->ended);
  }
  CHECK(world.running() == 0);
}

/// Four members and the exchange; version 1 is published, so that the next one is 2.
void settle(World& world) {
  world.add_all();
  world.start_all();
  REQUIRE(world.outcome(world.await_plan()));
  REQUIRE(world.outcome(world.publish(1)));
}

TEST_CASE("whatever the order of events, every version reaches every replica whole") {
  std::set<Digest> traces;
  constexpr std::uint64_t seeds = 300;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    INFO("seed " << seed);
    World world(seed, two_by_two());
    world.add_all();
    world.start_all();
    const auto formation = world.outcome(world.await_plan());
    REQUIRE(formation);
    CHECK((*formation)->trainers.size() == 2);
    CHECK((*formation)->rollouts.size() == 4);
    for (const std::uint64_t version : {1U, 2U, 7U}) {
      const auto report = world.outcome(world.publish(version));
      REQUIRE(report);
      CHECK(report->version == version);
      CHECK(report->bytes_needed == 2 * 6 * 8 * 4);
      CHECK(report->bytes_moved == report->bytes_needed);
    }
    end_in_good_order(world);
    traces.insert(world.trace());
  }
  // Each seed is an order of its own.
  CHECK(traces.size() == seeds);
}

TEST_CASE("the same seed gives the same run") {
  const auto trace_of = [](std::uint64_t seed) {
    World world(seed, two_by_two());
    settle(world);
    world.outcome(world.publish(2));
    return std::pair(world.trace(), world.random().next());
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) CHECK(trace_of(seed) == trace_of(seed));
}

/// What the owner of an exchange asks for: the plan, then two versions.
class Owner {
 public:
  explicit Owner(World& world) : world_(world), plan_(world.await_plan()) {}

  /// Asks for the next version once the last answer was a good one. False when nothing is left to
  /// ask for, or an answer was an error.
  bool go_on() {
    if (!plan_->has_value()) return true;
    if (!**plan_) return false;
    if (!reports_.empty() && !reports_.back()->has_value()) return true;
    if (!reports_.empty() && !**reports_.back()) return false;
    if (reports_.size() == 2) return false;
    reports_.push_back(world_.publish(reports_.size() + 1));
    return true;
  }

  /// What ended the exchange: the answer to the last question, or to one more.
  Error error() {
    REQUIRE(world_.until([this] { return !go_on(); }));
    if (!**plan_) return (*plan_)->error();
    if (!**reports_.back()) return (*reports_.back())->error();
    const auto next = world_.outcome(world_.publish(50));
    REQUIRE_FALSE(next);
    return next.error();
  }

 private:
  World& world_;
  Answer<FormationPtr> plan_;
  std::vector<Answer<VersionReport>> reports_;
};

/// Kills `victim` after that many steps of a run. Returns whether the run was not over by then.
bool run_with_death(std::uint64_t seed, const ShardId& victim, std::size_t steps) {
  CAPTURE(seed, steps);
  World world(seed, two_by_two());
  world.add_all();
  world.start_all();
  Owner owner(world);
  while (world.steps() < steps && owner.go_on() && world.step()) {
  }
  const bool in_time = owner.go_on();
  world.kill(world.host(victim).address);
  const Error error = owner.error();
  CHECK(error.code == ErrorCode::unavailable);
  CHECK_THAT(error.text, StartsWith(text_of(victim) + " died while "));
  end_after(world, error);
  return in_time;
}

TEST_CASE("a member that dies at any step is named, and everyone else gets an answer") {
  for (const ShardId& victim : {trainer, rollout}) {
    std::size_t steps = 0;
    while (run_with_death(steps, victim, steps)) ++steps;
    // Two versions for six members do not take less.
    CHECK(steps > 100);
  }
}

TEST_CASE("a version is answered with the time that it took on the exchange's clock") {
  World world(1, two_by_two());
  settle(world);
  const auto report = world.publish(2);
  // Everything but the chores of the world takes no time at all.
  const auto do_chores_after = [&world](Duration delay) {
    world.run_actors();
    world.pass(delay);
    while (!world.chores().empty()) world.do_chore();
  };
  do_chores_after(3s);  // update
  do_chores_after(5s);  // fetch
  do_chores_after(7s);  // verify
  const auto published = world.outcome(report);
  REQUIRE(published);
  CHECK(published->update == 3s);
  CHECK(published->publish == 5s);
  CHECK(published->verify == 7s);
  end_in_good_order(world);
}

TEST_CASE("what a member says twice counts once") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(seed, two_by_two());
    world.add_all();
    for (const auto& host : world.hosts()) {
      host->hook_manner = [](std::uint64_t) { return Manner::say_twice; };
      host->fetch_manner = [](int) { return Manner::say_twice; };
    }
    world.start_all();
    REQUIRE(world.outcome(world.await_plan()));
    for (const std::uint64_t version : {1U, 2U, 3U}) {
      const auto report = world.outcome(world.publish(version));
      REQUIRE(report);
      CHECK(report->bytes_moved == report->bytes_needed);
    }
    end_in_good_order(world);
  }
}

TEST_CASE("a member's trouble is told with its name and what it was doing") {
  struct Case {
    ShardId shard;
    Manner hook;
    Manner fetch;
    Error error;
    Duration after;
  };
  constexpr auto fine = Manner::succeed;
  const std::vector<Case> cases{
      {trainer,
       Manner::fail,
       fine,
       {ErrorCode::io, "trainer 0.1 failed while updating to version 2: the engine is out"},
       0s},
      {trainer,
       Manner::stall,
       fine,
       {ErrorCode::timeout, "trainer 0.1 did not answer within 300 s while updating to version 2"},
       300s},
      {rollout,
       fine,
       Manner::fail,
       {ErrorCode::io, "rollout 1.0 failed while fetching version 2: the wire is cut"},
       0s},
      {rollout,
       fine,
       Manner::stall,
       {ErrorCode::timeout, "rollout 1.0 did not answer within 300 s while fetching version 2"},
       300s},
      {rollout,
       fine,
       Manner::move_little,
       // Half of the 6 × 8 numbers of 4 bytes, but one byte.
       {ErrorCode::invalid, "rollout 1.0 moved 95 of the 96 bytes of version 2"},
       0s},
      {rollout,
       Manner::fail,
       fine,
       {ErrorCode::io, "rollout 1.0 failed while verifying version 2: the engine is out"},
       0s},
      {rollout,
       Manner::stall,
       fine,
       {ErrorCode::timeout, "rollout 1.0 did not answer within 300 s while verifying version 2"},
       300s},
  };
  for (const Case& one : cases) {
    DYNAMIC_SECTION(one.error.text) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        World world(seed, two_by_two());
        settle(world);
        World::Host& host = world.host(one.shard);
        host.hook_manner = [&one](std::uint64_t) { return one.hook; };
        host.fetch_manner = [&one](int) { return one.fetch; };
        const Duration begun_at = world.now();
        const auto report = world.outcome(world.publish(2));
        REQUIRE_FALSE(report);
        CHECK(report.error() == one.error);
        CHECK(world.now() - begun_at == one.after);
        end_after(world, one.error);
        CHECK(host.ended->error() ==
              Error{ErrorCode::unavailable, "the exchange ended: " + one.error.text});
      }
    }
  }
}

TEST_CASE("what ends after its deadline changes nothing") {
  World world(5, two_by_two());
  settle(world);
  const auto report = world.publish(2);
  // The trainers update; the fetches wait until everything is over.
  world.run_actors();
  while (!world.chores().empty()) world.do_chore();
  world.run_actors();
  Chores late;
  std::swap(late, world.chores());
  CHECK(late.size() == 4);
  const auto outcome = world.outcome(report);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code == ErrorCode::timeout);
  end_after(world, outcome.error());
  for (const auto& chore : late) chore();
  world.drain();
  for (const auto& host : world.hosts()) {
    if (host->shard.side == Side::trainer) continue;
    CHECK(world.model.holds(host->shard, 2, 1, host->memory.data()));
  }
}

TEST_CASE("the end of the exchange cancels what is under way") {
  World world(5, two_by_two());
  settle(world);
  const auto report = world.publish(2);
  world.run_actors();
  end_in_good_order(world);
  CHECK(world.outcome(report).error() == Error{ErrorCode::unavailable, "the exchange has ended"});
}

TEST_CASE("members that do not come are named when the deadline passes") {
  World world(3, two_by_two());
  world.add_all();
  for (const auto& host : world.hosts()) {
    if (host->shard != trainer && host->shard != rollout) world.start(*host);
  }
  const Duration begun_at = world.now();
  const auto plan = world.outcome(world.await_plan());
  REQUIRE_FALSE(plan);
  CHECK(plan.error() == Error{ErrorCode::timeout,
                              "trainer 0.1, rollout 1.0 did not join within 60 s: start them, or "
                              "raise join_deadline"});
  CHECK(world.now() - begun_at == 60s);
  end_after(world, plan.error());
}

TEST_CASE("a part that can't be prepared ends the exchange with the transport's reason") {
  World world(3, two_by_two());
  world.add_all();
  world.host(rollout).transport->refuse_to_prepare = true;
  world.start_all();
  const auto plan = world.outcome(world.await_plan());
  REQUIRE_FALSE(plan);
  CHECK(plan.error() ==
        Error{ErrorCode::refused,
              "rollout 1.0 failed while preparing its part of the plan: the kernel says no"});
  end_after(world, plan.error());
}

TEST_CASE("what the planner says of the manifests reaches everyone") {
  World world(3, two_by_two());
  world.add_all();
  // The rollouts want a larger matrix than the trainers have.
  for (const auto& host : world.hosts()) {
    world.model.rows = host->shard.side == Side::trainer ? 6 : 8;
    host->memory.resize(world.model.bytes_of(host->shard, 2));
    host->region = Region::borrow(host->memory);
    world.start(*host);
  }
  const auto plan = world.outcome(world.await_plan());
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == ErrorCode::invalid);
  CHECK_THAT(plan.error().text, ContainsSubstring("matrix"));
  end_after(world, plan.error());
}

TEST_CASE("a request that can't be granted now is refused, and the exchange goes on") {
  World world(3, two_by_two());
  world.add_all();
  CHECK(world.outcome(world.publish(1)).error() ==
        Error{ErrorCode::refused, "the members have not all joined"});
  world.start_all();
  REQUIRE(world.outcome(world.await_plan()));
  const auto first = world.publish(5);
  world.run_actors();
  CHECK(world.outcome(world.publish(6)).error() ==
        Error{ErrorCode::refused, "another version is being published"});
  REQUIRE(world.outcome(first));
  CHECK(world.outcome(world.publish(5)).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 5: it must be greater than the last one, 5"});
  REQUIRE(world.outcome(world.publish(6)));
  end_in_good_order(world);
}

TEST_CASE("an abort answers whoever waits, at any step") {
  for (std::size_t steps = 0; steps < 250; steps += 3) {
    CAPTURE(steps);
    World world(steps, two_by_two());
    world.add_all();
    world.start_all();
    Owner owner(world);
    while (world.steps() < steps && owner.go_on() && world.step()) {
    }
    const Duration aborted_at = world.now();
    world.abort("a person pressed Ctrl-C");
    const Error error = owner.error();
    CHECK(error == Error{ErrorCode::unavailable, "a person pressed Ctrl-C"});
    CHECK(world.now() == aborted_at);
    end_after(world, error);
  }
}

TEST_CASE("the death of an actor of the exchange ends it with an error") {
  for (const std::string name : {"planner", "ledger", "coordinator"}) {
    DYNAMIC_SECTION(name) {
      World world(4, two_by_two());
      settle(world);
      const auto report = world.publish(2);
      if (name == "planner") {
        world.crash(world.planner().address());
      } else {
        REQUIRE(world.until([&] { return world.crash_named(name); }));
      }
      const auto outcome = world.outcome(report);
      REQUIRE_FALSE(outcome);
      CHECK(outcome.error().code == ErrorCode::unavailable);
      CHECK_THAT(outcome.error().text, StartsWith("an actor of the exchange ended: "));
      end_after(world, outcome.error());
    }
  }
}

TEST_CASE("members whose exchange dies end with an error") {
  World world(4, two_by_two());
  settle(world);
  world.publish(2);
  world.run_actors();
  world.kill(world.supervisor().address());
  world.drain();
  for (const auto& host : world.hosts()) {
    REQUIRE(host->ended);
    CHECK(host->ended->error() ==
          Error{ErrorCode::unavailable, text_of(host->shard) + " lost its exchange"});
  }
  CHECK(world.running() == 0);
}

TEST_CASE("a killed shard says so to its host program, and nothing of it is left") {
  World world(4, two_by_two());
  settle(world);
  world.kill(world.host(rollout).address);
  world.drain();
  CHECK(world.host(rollout).ended->error() ==
        Error{ErrorCode::unavailable, "rollout 1.0 was killed"});
  const auto next = world.outcome(world.publish(2));
  REQUIRE_FALSE(next);
  CHECK(next.error().text == "rollout 1.0 died while serving version 1");
  end_after(world, next.error());
}

}  // namespace
}  // namespace weir
