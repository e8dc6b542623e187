// Goal: whatever an owner asks for and whatever happens meanwhile, there is an answer, in time,
// that says what went wrong and with whom; and the exchange goes on. Method: stories in virtual
// time (`world.hpp`).

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <vector>

#include "tests/actors/world.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace std::chrono_literals;

namespace weir {
namespace {

Scene quiet_scene() {
  Scene scene = scene_of(2, Placement::second_buffer);
  scene.rest_most = 1s;
  return scene;
}

TEST_CASE("a version is answered with what it moved and the time that each step took") {
  Story story(1, quiet_scene());
  story.must_publish(1);
  story.world.watch_hooks([](const Host& host, HookKind kind, const HookCall&) {
    // Slowest where it counts.
    const bool slow = host.shard.rank == 1;
    if (kind == HookKind::update) return HookManner{.delay = slow ? Duration(3s) : Duration(1s)};
    if (kind == HookKind::install) return HookManner{.delay = slow ? Duration(5s) : Duration(2s)};
    return HookManner{};
  });
  const VersionReport report = story.must_publish(2);
  CHECK(report.version == 2);
  CHECK(report.bytes_needed == 2 * story.bytes_of_replica());
  CHECK(report.bytes_moved == report.bytes_needed);
  // Clocks of processes differ by up to a twentieth, and everything else is done in a tenth.
  CHECK(report.update >= 2800ms);
  CHECK(report.update <= 3300ms);
  CHECK(report.publish >= 4700ms);
  CHECK(report.publish <= 5600ms);
}

TEST_CASE("a request that can't be granted now is refused, and the exchange goes on") {
  Story story(3, quiet_scene());
  CHECK(story.outcome(story.publish(1)).error() ==
        Error{ErrorCode::refused, "the members have not all joined"});
  REQUIRE(story.outcome(story.await_plan()));
  const auto first = story.publish(5);
  const auto second = story.publish(6);
  story.until([&] { return first->has_value() && second->has_value(); });
  const auto& refused = (**first).has_value() ? second : first;
  CHECK((**first).has_value() != (**second).has_value());
  CHECK((**refused).error() == Error{ErrorCode::refused, "another version is being published"});
  const auto again = story.outcome(story.publish(5));
  REQUIRE_FALSE(again);
  CHECK(again.error().code == ErrorCode::invalid);
  CHECK_THAT(again.error().text,
             ContainsSubstring("can't publish version 5: it must be greater than the last one"));
  story.must_publish(7);
}

TEST_CASE("a trainer's trouble is told with its name and what it was doing") {
  Scene scene = quiet_scene();
  scene.exchange.publish_deadline = 30s;
  for (const bool ends : {true, false}) {
    Story story(4, scene);
    story.must_publish(1);
    story.world.watch_hooks([ends](const Host& host, HookKind kind, const HookCall& call) {
      const bool fails = kind == HookKind::update && host.shard.rank == 1 && call.version == 2;
      return HookManner{.fails = fails && ends, .ends = !fails || ends};
    });
    const Duration begun_at = story.now();
    const auto report = story.outcome(story.publish(2));
    REQUIRE_FALSE(report);
    CHECK(report.error().code == (ends ? ErrorCode::io : ErrorCode::timeout));
    CHECK_THAT(report.error().text, ContainsSubstring("trainer 0.1"));
    if (ends) {
      CHECK(report.error().text ==
            "trainer 0.1 failed while updating to version 2: the engine is out");
    }
    CHECK(story.now() - begun_at <= (ends ? Duration(1s) : Duration(32s)));
    CHECK(story.serves(0, 1));
    // A trainer whose engine is silent gives its place to another process.
    story.pass(10s);
    story.must_publish(3);
  }
}

TEST_CASE("a version that a replica can't read in time is an error that names it") {
  Scene scene = quiet_scene();
  scene.exchange.publish_deadline = 40s;
  Story story(5, scene);
  story.must_publish(1);
  for (const std::uint32_t trainer : {0U, 1U}) {
    for (const std::uint32_t source : {0U, 1U}) {
      story.world.bytes().cut({story.trainer(0, trainer).number, story.rollout(1, source).number},
                              SimCut::hang);
    }
    story.world.bytes().cut({story.rollout(0, trainer).number, story.rollout(1, trainer).number},
                            SimCut::hang);
  }
  const Duration begun_at = story.now();
  const auto report = story.outcome(story.publish(2));
  REQUIRE_FALSE(report);
  CHECK(report.error().code == ErrorCode::timeout);
  CHECK_THAT(report.error().text,
             ContainsSubstring("version 2 was not committed within 40 s by rollout replica 1"));
  CHECK(story.now() - begun_at >= 38s);
  CHECK(story.now() - begun_at <= 42s);
  CHECK(story.serves(0, 2));
  CHECK(story.serves(1, 1));
}

TEST_CASE("members that do not come are named when the deadline passes") {
  Scene scene = quiet_scene();
  scene.late_replicas = 1;
  scene.exchange.join_deadline = 60s;
  Story story(6, scene);
  const auto plan = story.outcome(story.await_plan());
  REQUIRE_FALSE(plan);
  CHECK(plan.error() == Error{ErrorCode::timeout,
                              "rollout 1.0, rollout 1.1 did not join within 60 s: start them, or "
                              "raise join_deadline"});
}

TEST_CASE("an abort answers whoever waits, at any step, and ends the members") {
  for (std::uint64_t steps = 0; steps < 300; steps += 15) {
    CAPTURE(steps);
    Story story(steps, quiet_scene());
    const auto plan = story.await_plan();
    Answer<VersionReport> report;
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (!report && plan->has_value()) report = story.publish(1);
      REQUIRE(story.world.step());
    }
    story.abort("a person pressed Ctrl-C");
    const Error expected{ErrorCode::unavailable, "a person pressed Ctrl-C"};
    const auto last = story.outcome(story.publish(2), 1s);
    REQUIRE_FALSE(last);
    CHECK(last.error() == expected);
    story.until([&plan] { return plan->has_value(); }, 1s);
    if (!**plan) CHECK((**plan).error() == expected);
    if (!report) continue;
    const auto published = story.outcome(report, 1s);
    if (!published) CHECK(published.error() == expected);
  }
}

}  // namespace
}  // namespace weir
