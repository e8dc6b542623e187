// Goal: whoever dies or falls silent, at whatever moment, the rest goes on within the time that it
// takes to notice, nothing that is not whole is served, and who comes back takes its place.
// Method: stories in virtual time (`world.hpp`), in which every engine checks every byte that it
// reads at every step. A run is repeated with a death at one step after the other.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "tests/actors/world.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr Duration never_again = 1000h;

/// Steps of the world from a request on, after which something happens.
void take_steps(Story& story, std::uint64_t steps) {
  const std::uint64_t then = story.world.net().steps() + steps;
  story.until([&story, then] { return story.world.net().steps() >= then; });
}

/// So many steps of the world does the publication of version 2 take.
std::uint64_t steps_of_publication(const Scene& scene, std::uint64_t seed) {
  Story story(seed, scene);
  story.must_publish(1);
  const std::uint64_t before = story.world.net().steps();
  story.must_publish(2);
  return story.world.net().steps() - before;
}

/// Few engines' steps, so that most steps are the protocol's.
Scene calm_scene(std::uint32_t replicas, Placement placement) {
  Scene scene = scene_of(replicas, placement);
  scene.rest_most = 1s;
  return scene;
}

TEST_CASE(
    "a version whose trainer dies at any step before all have staged it is never ready, "
    "and publish() says so at once") {
  const Scene scene = calm_scene(2, Placement::second_buffer);
  std::uint64_t died_before = 0;
  std::uint64_t died_after = 0;
  for (std::uint64_t steps = 0; steps < 160; steps += 5) {
    CAPTURE(steps);
    Story story(steps, scene);
    story.must_publish(1);
    const auto report = story.publish(2);
    take_steps(story, steps);
    story.world.kill(story.trainer(0, 1), true, never_again);
    story.pass(10s);
    REQUIRE(report->has_value());
    // All may have staged it before anyone could notice.
    if (story.world.newest_whole == 2) {
      ++died_after;
      if (**report) continue;
      CHECK_THAT((*report)->error().text, StartsWith("trainer 0.1 died while updating") ||
                                              ContainsSubstring("nobody holds it any more"));
      continue;
    }
    ++died_before;
    REQUIRE_FALSE(**report);
    CHECK_THAT((*report)->error().text, StartsWith("trainer 0.1 died while updating to version 2"));
    CHECK(story.status().ready == 1);
    CHECK(story.serves(0, 1));
    CHECK(story.serves(1, 1));
  }
  CHECK(died_before > 5);
  CHECK(died_after > 5);
}

TEST_CASE("a trainer that comes back publishes on") {
  Story story(1, calm_scene(2, Placement::staging));
  story.settle(1);
  story.go_to(3);
  story.until([&story] { return story.world.newest_whole == 2; });
  story.world.kill(story.trainer(0, 0), false, 5s);
  story.until([&story] { return story.world.settled(3); }, 120s);
  CHECK(story.world.restarts == 1);
}

/// Kills a trainer of the first replica when `done` bytes of version 2 are there, and returns how
/// many bytes were written for version 2 in all.
std::uint64_t bytes_after_death(Story& story, std::uint64_t done) {
  const std::uint64_t before = story.bytes_written();
  const auto report = story.publish(2);
  story.until([&] { return story.bytes_written() >= before + done; });
  story.world.kill(story.trainer(0, 1), true, never_again);
  story.until([&story] { return story.world.settled(2); }, 60s);
  CHECK(report->has_value());
  return story.bytes_written() - before;
}

/// A chunk takes a tenth of a second.
void slow_down(Story& story) {
  SimLink slow;
  slow.delay_least = 100ms;
  slow.delay_most = 100ms;
  story.world.bytes().set_link(slow);
}

TEST_CASE("what a dead trainer can't give comes from another trainer replica, and nothing twice") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  Scene scene = calm_scene(1, placement);
  scene.exchange.trainer_replicas = 2;
  scene.window_bytes_max = 32;
  for (const std::uint64_t done : {1U, 100U, 200U, 300U, 400U, 500U}) {
    CAPTURE(done);
    Story story(done, scene);
    story.must_publish(1);
    slow_down(story);
    const std::uint64_t bytes = bytes_after_death(story, done);
    CHECK(bytes >= story.bytes_of_replica());
    // Only what was in flight, at most a window for each shard, is fetched again.
    CHECK(bytes <= story.bytes_of_replica() + 2 * scene.window_bytes_max);
  }
}

TEST_CASE("what a dead trainer can't give comes from a replica that serves it, and nothing twice") {
  const auto placement = GENERATE(Placement::in_place, Placement::second_buffer);
  Scene scene = calm_scene(2, placement);
  scene.window_bytes_max = 32;
  for (const std::uint64_t done : {50U, 150U, 250U, 350U, 450U, 550U}) {
    CAPTURE(done);
    Story story(done, scene);
    story.must_publish(1);
    // The first replica has the version at once, the second one a chunk every tenth of a second.
    SimLink slow;
    slow.delay_least = 100ms;
    slow.delay_most = 100ms;
    for (const std::uint32_t trainer : {0U, 1U}) {
      for (const std::uint32_t rank : {0U, 1U}) {
        story.world.bytes().set_link(
            {story.trainer(0, trainer).number, story.rollout(1, rank).number}, slow);
      }
    }
    const std::uint64_t before = story.bytes_written();
    const auto report = story.publish(2);
    story.until([&] {
      return story.serves(0, 2) &&
             story.bytes_written() >= before + story.bytes_of_replica() + done;
    });
    CHECK_FALSE(story.serves(1, 2));
    story.world.kill(story.trainer(0, 0), true, never_again);
    story.world.kill(story.trainer(0, 1), true, never_again);
    story.until([&story] { return story.serves(1, 2); }, 60s);
    CHECK(story.bytes_written() - before <=
          2 * story.bytes_of_replica() + 2 * scene.window_bytes_max);
    REQUIRE(story.outcome(report, 5s));
  }
}

// NeMo-RL#3591: after the death of one rank the next broadcast blocked for ever.
TEST_CASE("a receiver that dies at any step leaves its replica out, and the other goes on") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  const Scene scene = calm_scene(2, placement);
  const std::uint64_t last = steps_of_publication(scene, 1);
  CHECK(last > 100);
  for (std::uint64_t steps = 0; steps < last; steps += 4) {
    CAPTURE(steps);
    Story story(1, scene);
    story.must_publish(1);
    const auto report = story.publish(2);
    take_steps(story, steps);
    story.world.kill(story.rollout(1, 0), true, 60s);
    story.until([&story] { return story.serves(0, 2); }, 10s);
    story.pass(10s);
    // Its peer serves nothing alone.
    CHECK_FALSE(story.rollout(1, 1).running);
    const ExchangeStatus status = story.status();
    CHECK(status.replicas[0].in_service);
    CHECK_FALSE(status.replicas[1].in_service);
    CHECK_THAT(status.replicas[1].trouble, StartsWith("rollout 1.0 died while "));
    REQUIRE(report->has_value());
    story.until([&story] { return story.world.settled(2); }, 70s);
    CHECK(story.world.restarts == 1);
  }
}

TEST_CASE("a member that comes back does not have its whole peers fetch again") {
  Story story(3, calm_scene(1, Placement::staging));
  story.must_publish(1);
  const std::uint64_t before = story.bytes_written();
  story.world.kill(story.rollout(0, 0), true, 1s);
  story.pass(500ms);
  story.until([&story] { return story.world.settled(1); }, 60s);
  CHECK(story.bytes_written() - before == story.bytes_of_replica() / 2);
}

TEST_CASE("a member that is refused memory says so, and comes when there is some; others go on") {
  const ShardId shard = GENERATE(ShardId{Side::trainer, 0, 1}, ShardId{Side::rollout, 0, 1});
  Scene scene = calm_scene(2, Placement::second_buffer);
  // So few bytes at once that a plan is bound in many pieces.
  scene.window_bytes_max = 32;
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Story story(seed, scene);
    story.settle(1);
    story.world.starve(shard, 20s);
    story.world.kill(*story.world.host(shard), true, 10ms);
    story.pass(15s);
    CHECK(story.serves(1, 1));
    story.pass(10s);
    story.settle(2);
    for (const std::string& line : story.world.story) {
      const std::string error =
          text_of(shard) + " has ended: " + text_of(shard) + " can't show region";
      if (line.find(error) == std::string::npos) continue;
      CHECK_THAT(line, ContainsSubstring("has no memory left: free some"));
      ++refused;
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("a reader that can't map its source keeps what it serves, and reads once it can") {
  Story story(1, calm_scene(2, Placement::second_buffer));
  story.settle(1);
  // What is bound before the trainer is another process is of no use after.
  story.world.starve({Side::rollout, 0, 0}, 30s);
  story.world.kill(story.trainer(0, 0), true, 10ms);
  story.go_to(2);
  story.until([&story] { return story.serves(1, 2); });
  story.pass(5s);
  CHECK((story.serves(0, 1) || story.serves(0, 2)));
  story.until([&story] { return story.world.settled(2); });
}

// Mooncake#3188, Mooncake#3299: a stale endpoint after a reconnection, and storms of them.
TEST_CASE("a peer that restarts ten times is read where it is now") {
  const ShardId shard = GENERATE(ShardId{Side::trainer, 0, 1}, ShardId{Side::rollout, 0, 1});
  const bool notice = GENERATE(true, false);
  Story story(4, calm_scene(2, Placement::second_buffer));
  story.settle(1);
  for (std::uint64_t round = 1; round <= 10; ++round) {
    story.world.kill(*story.world.host(shard), notice, 1s);
    story.settle(round + 1);
  }
  // It came back when it was started again, and nobody else was disturbed.
  CHECK(story.world.restarts == 10);
  // Versions are written once by each replica, and once more by the shard that lost its memory.
  CHECK(story.bytes_written() <= 31 * story.bytes_of_replica());
}

TEST_CASE(
    "a late replica comes to the present version, disturbs no fetch, and serves nothing "
    "before") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  Scene scene = calm_scene(2, placement);
  scene.exchange.rollout_replicas_min = 1;
  scene.late_replicas = 1;
  scene.window_bytes_max = 32;
  Story story(5, scene);
  story.world.finish_at(1);
  story.until([&story] { return story.world.newest_whole == 1 && story.serves(0, 1); });
  slow_down(story);
  std::uint64_t resumed = 0;
  story.world.watch_hooks([&](const Host& host, HookKind kind, const HookCall& call) {
    if (host.shard.replica == 1 && kind == HookKind::resume) {
      ++resumed;
      CHECK(call.version >= 1);
      CHECK(story.world.model.holds(host.shard, 2, call.version, host.live()));
    }
    return HookManner{};
  });
  const std::uint64_t before = story.bytes_written();
  story.go_to(2);
  story.until([&] { return story.bytes_written() >= before + story.bytes_of_replica() / 2; });
  story.world.come(1);
  story.until([&story] { return story.world.settled(2); }, 60s);
  CHECK(resumed >= 2);
  CHECK(story.world.restarts == 0);
  CHECK(story.status().revoked == 0);
  // Each of both has fetched version 2 once.
  CHECK(story.bytes_written() - before == 2 * story.bytes_of_replica());
  story.settle(3);
}

/// Whenever the actor is about to run for the nth time, it dies. Returns whether there was an nth.
bool settles_without(const std::string& name, std::uint64_t nth, Placement placement) {
  CAPTURE(name, nth);
  Story story(nth, calm_scene(2, placement));
  story.settle(1);
  story.go_to(2);
  bool crashed = false;
  std::uint64_t runs = 0;
  story.until([&] {
    if (crashed || story.world.newest_whole < 1) return true;
    if (++runs > nth) crashed = story.world.crash_actor(name);
    return crashed || story.world.settled(2);
  });
  if (!crashed) return false;
  story.until([&story] { return story.world.settled(2); }, 120s);
  CHECK(story.status().restarts == 1);
  CHECK(story.world.restarts == 0);
  story.settle(3);
  return true;
}

TEST_CASE("whichever actor of the exchange dies, at whatever step, its members make up for it") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  for (const std::string name : {"planner", "ledger", "coordinator"}) {
    std::uint64_t crashes = 0;
    for (std::uint64_t steps = 0; settles_without(name, steps, placement); steps += 9) ++crashes;
    CHECK(crashes > 3);
  }
}

TEST_CASE("the death of the ledger is not taken for that of whoever holds a version") {
  std::uint64_t crashes = 0;
  for (std::uint64_t steps = 0; steps < 160; steps += 3) {
    CAPTURE(steps);
    Story story(steps, calm_scene(2, Placement::second_buffer));
    story.must_publish(1);
    const auto report = story.publish(2);
    take_steps(story, steps);
    if (report->has_value()) break;
    story.until([&] { return report->has_value() || story.world.crash_actor("ledger"); });
    if (report->has_value()) continue;
    ++crashes;
    const auto outcome = story.outcome(report);
    if (!outcome) CHECK_THAT(outcome.error().text, !ContainsSubstring("the receiver is gone"));
  }
  CHECK(crashes > 10);
}

TEST_CASE("the exchange's process dies at any step, and is rebuilt from its members") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  const Scene scene = calm_scene(2, placement);
  const std::uint64_t last = steps_of_publication(scene, 2);
  for (std::uint64_t steps = 0; steps < last; steps += 9) {
    CAPTURE(steps);
    Story story(2, scene);
    story.settle(1);
    story.go_to(2);
    take_steps(story, steps);
    const std::uint64_t decodes = story.world.decodes;
    story.world.kill_exchange(steps % 2 == 0, 20s);
    story.pass(15s);
    if (story.serves(0, 2)) CHECK(story.world.newest_whole == 2);
    // Members that serve a whole version go on serving it.
    if (story.serves(0, 1) || story.serves(0, 2)) CHECK(story.world.decodes > decodes);
    story.pass(10s);
    CHECK(story.world.restarts == 1);
    story.until([&story] { return story.world.settled(2); }, 120s);
    story.settle(3);
  }
}

TEST_CASE("a member that falls silent is noticed within silence_max") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  const auto manner = GENERATE(0, 1, 2);
  Scene scene = calm_scene(2, placement);
  scene.exchange.silence_max = 2s;
  Story story(6, scene);
  story.settle(1);
  const Duration begun_at = story.now();
  Host& host = story.rollout(1, 1);
  if (manner == 0) story.world.hang(host, 100s);
  if (manner == 1) story.world.cut(host, Net::Way::both, 100s);
  if (manner == 2) story.world.kill(host, false, 100s);
  story.until([&story] { return !story.rollout(1, 0).running; }, 10s);
  // The silence itself, and then a step of the engine and some messages.
  CHECK(story.now() - begun_at <= 2s + 100ms);
  CHECK_FALSE(story.status().replicas[1].in_service);
  CHECK(story.status().replicas[0].in_service);
  story.settle(1);
  CHECK(story.now() - begun_at >= 100s);
}

}  // namespace
}  // namespace weir
