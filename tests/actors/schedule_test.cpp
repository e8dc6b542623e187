// Goal: faults of the kinds that were reported of other systems for the order of pausing, fetching,
// installing and resuming are not possible here. Each test names the reports that it answers.
// Method: stories in virtual time (`world.hpp`), in which every engine checks every byte that it
// reads at every step; here hooks, paths and deadlines are slow, late or failing on order.
// Reports about how far generation may run ahead (prime-rl#3004, prime-rl#2990, AReaL#1471) are
// answered in `admission_loop_test.cpp` and `admission_random_test.cpp`.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <utility>
#include <vector>

#include "tests/actors/world.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr Placement all_placements[] = {Placement::in_place, Placement::second_buffer,
                                        Placement::staging};

using Calls = std::vector<std::pair<HookKind, std::uint64_t>>;

// slime#2331: engines that wait for their sources in different orders wait for each other.
TEST_CASE("two receivers that hear two sources in opposite orders both get the version") {
  for (const Placement placement : all_placements) {
    Scene scene = scene_of(2, placement);
    scene.exchange.rollout_ranks = 1;
    scene.window_bytes_max = 32;
    Story story(1, scene);
    story.must_publish(1);
    const SimPath first{story.trainer(0, 0).number, story.rollout(0, 0).number};
    const SimPath second{story.trainer(0, 1).number, story.rollout(1, 0).number};
    story.world.bytes().cut(first, SimCut::hang);
    story.world.bytes().cut(second, SimCut::hang);
    const auto report = story.publish(2);
    story.pass(20s);
    CHECK_FALSE(report->has_value());
    story.world.bytes().heal(second);
    story.until([&story] { return story.serves(1, 2); }, 5s);
    story.world.bytes().heal(first);
    const auto published = story.outcome(report, 5s);
    REQUIRE(published);
    CHECK(published->bytes_moved == published->bytes_needed);
  }
}

// trl#6796, trl#6797, trl#6913, trl#7103: a receiver's error is dropped, and its sender hangs.
TEST_CASE("whichever chunk fails, the version arrives and its sender goes on") {
  Scene scene = scene_of(1, Placement::second_buffer);
  scene.exchange.trainer_ranks = 1;
  scene.exchange.rollout_ranks = 1;
  scene.trainer_slots = 1;
  // Chunks of four elements: 36 for the matrix of 12 × 12.
  scene.window_bytes_max = 32;
  constexpr int chunks = 36;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    CAPTURE(chunk);
    Story story(static_cast<std::uint64_t>(chunk), scene);
    story.must_publish(1);
    CHECK(story.world.bytes().starts() == chunks);
    story.world.bytes().fault_next(SimFault::none, chunk);
    story.world.bytes().fault_next(SimFault::fail);
    CHECK(story.must_publish(2).bytes_moved == story.bytes_of_replica());
    CHECK(story.world.bytes().starts() > 2 * chunks);
    CHECK(story.must_publish(3).bytes_moved == story.bytes_of_replica());
  }
}

// trl#7103: one slow receiver among three or more.
TEST_CASE("one slow receiver of three holds up neither the sender nor the other two") {
  Scene scene = scene_of(3, Placement::second_buffer);
  scene.trainer_slots = 3;
  scene.window_bytes_max = 32;
  Story story(1, scene);
  story.settle(1);
  SimLink slow;
  slow.bytes_per_second = 20;
  for (const std::uint32_t trainer : {0U, 1U}) {
    for (const std::uint32_t rank : {0U, 1U}) {
      story.world.bytes().set_link(
          {story.trainer(0, trainer).number, story.rollout(2, rank).number}, slow);
    }
  }
  story.go_to(6);
  // A shard's 288 bytes take 7.2 s, two chunks at a time.
  story.until([&story] { return story.serves(0, 6) && story.serves(1, 6); }, 6s);
  CHECK(story.serves(2, 1));
  story.until([&story] { return story.world.settled(6); }, 60s);
  CHECK(story.status().revoked == 0);
}

// miles#2372, miles#2589: stamping a version aborted every request. prime-rl#2841: an abort that
// came after the resumption killed the engine. NeMo-RL#4018, SkyRL#2246, prime-rl#1650: caches of
// old versions lived on, since nobody told the engine.
TEST_CASE("an engine is asked to pause, install and resume once for each version, and told why") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  const auto in_flight =
      GENERATE(InFlight::abort_and_resume, InFlight::keep, InFlight::keep_and_drop_cache,
               InFlight::drain, InFlight::abort_and_requeue);
  Scene scene = scene_of(2, placement);
  scene.exchange.in_flight = in_flight;
  scene.rest_most = 1s;
  Story story(2, scene);
  std::map<ShardId, Calls> calls;
  story.world.watch_hooks([&](const Host& host, HookKind kind, const HookCall& call) {
    if (host.shard.side == Side::rollout) calls[host.shard].emplace_back(kind, call.version);
    if (kind == HookKind::pause) CHECK(call.in_flight == in_flight);
    return HookManner{};
  });
  for (const std::uint64_t version : {1U, 2U, 5U}) story.must_publish(version);
  // Nothing comes late, either.
  story.pass(10min);
  const Calls expected{{HookKind::install, 1}, {HookKind::resume, 1}, {HookKind::pause, 2},
                       {HookKind::install, 2}, {HookKind::resume, 2}, {HookKind::pause, 5},
                       {HookKind::install, 5}, {HookKind::resume, 5}};
  CHECK(calls.size() == 4);
  for (const auto& [shard, own] : calls) CHECK(own == expected);
}

// miles#2372: requests stop for as long as a version is on its way. verl#7083: what was enqueued
// was taken for done, and its buffer used again.
TEST_CASE("with memory to spare an engine pauses only when every byte of the version is there") {
  const auto placement = GENERATE(Placement::second_buffer, Placement::staging);
  Scene scene = scene_of(1, placement);
  scene.trainer_slots = 1;
  Story story(3, scene);
  std::uint64_t pauses = 0;
  story.world.watch_hooks([&](const Host&, HookKind kind, const HookCall& call) {
    if (kind == HookKind::pause || kind == HookKind::install) {
      ++pauses;
      CHECK(story.bytes_written() == call.version * story.bytes_of_replica());
    }
    return HookManner{};
  });
  story.must_publish(1);
  // The transport has long accepted what takes half a minute to come.
  story.world.bytes().set_late_by(30s);
  story.world.bytes().fault_next(SimFault::late, 4);
  const Duration begun_at = story.now();
  story.must_publish(2);
  CHECK(story.now() - begun_at >= 30s);
  story.must_publish(3);
  // Two shards: two installations of the first version, two of both orders for the others.
  CHECK(pauses == 2 + 2 * 4);
}

// verl#7083: the other half: the sender writes over what was not read yet.
TEST_CASE("a trainer without spare memory does not write before the late bytes were read") {
  Scene scene = scene_of(2, Placement::staging);
  scene.trainer_slots = 1;
  Story story(4, scene);
  story.settle(1);
  story.world.bytes().set_late_by(3s);
  story.world.bytes().fault_next(SimFault::late, 8);
  story.go_to(3);
  story.until([&story] { return story.world.newest_whole == 2; });
  const Duration whole_at = story.now();
  story.until([&story] { return story.world.newest_whole == 3; });
  CHECK(story.now() - whole_at >= 3s);
  story.until([&story] { return story.world.settled(3); });
  CHECK(story.status().revoked == 0);
}

// sglang#24462, sglang#22754, sglang#29670: a pause reaches one worker of several, or comes after
// the update.
TEST_CASE(
    "no engine installs before all of its replica have paused, none resumes before all have "
    "installed") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    Story story(seed, scene_of(2, placement));
    story.world.watch_hooks([&](const Host& host, HookKind kind, const HookCall& call) {
      if (host.shard.side == Side::trainer) return HookManner{};
      const std::uint64_t written = story.bytes_written();
      for (const std::uint32_t rank : {0U, 1U}) {
        const Host& peer = story.rollout(host.shard.replica, rank);
        if (kind == HookKind::install) CHECK_FALSE((peer.running || peer.stepping));
        if (kind == HookKind::install) CHECK(written > 0);
        if (kind == HookKind::resume) CHECK(peer.version == call.version);
      }
      // Now the one is slow, now the other.
      return HookManner{.delay = story.world.between(0ns, 5s)};
    });
    for (const std::uint64_t version : {1U, 2U, 3U}) story.must_publish(version);
  }
}

// AReaL#1618: a second client kept sending during the update. NeMo-RL#2180: an update overlapped a
// forward pass.
TEST_CASE("a second client of any single engine never reads two versions") {
  const auto placement =
      GENERATE(Placement::in_place, Placement::second_buffer, Placement::staging);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    Scene scene = scene_of(2, placement);
    scene.trainer_slots = 1;
    scene.window_bytes_max = 32;
    Story story(seed, scene);
    std::uint64_t reads = 0;
    std::uint64_t wrong = 0;
    story.go_to(5);
    story.until([&] {
      for (const std::uint32_t replica : {0U, 1U}) {
        const Host& first = story.rollout(replica, 0);
        const Host& second = story.rollout(replica, 1);
        if (first.running && second.running && first.version != second.version) ++wrong;
        for (const Host* host : {&first, &second}) {
          if (!host->running && !host->stepping) continue;
          ++reads;
          if (!story.world.model.holds(host->shard, 2, host->version, host->live())) ++wrong;
        }
      }
      return story.world.settled(5);
    });
    CHECK(reads > 1000);
    CHECK(wrong == 0);
  }
}

// prime-rl#2337: members enter a collective early, and a watchdog kills them.
TEST_CASE("a version that becomes ready ten minutes late finds everyone waiting") {
  for (const Placement placement : all_placements) {
    Scene scene = scene_of(2, placement);
    scene.train_time = 10min;
    scene.rest_most = 10s;
    Story story(5, scene);
    story.world.finish_at(3);
    story.until([&story] { return story.world.settled(3); }, 2h);
    CHECK(story.world.restarts == 0);
    CHECK(story.now() > 15min);
    for (const ReplicaStatus& replica : story.status().replicas) {
      CHECK(replica.in_service);
      CHECK(replica.trouble.empty());
    }
  }
}

// vllm#57853: an update of a sleeping engine crashed.
TEST_CASE("updates of an engine that sleeps for ten minutes wait, and the newest is taken") {
  for (const Placement placement : all_placements) {
    CAPTURE(static_cast<int>(placement));
    Scene scene = scene_of(2, placement);
    scene.exchange.pause_deadline = 1h;
    scene.rest_most = 1s;
    Story story(6, scene);
    story.settle(1);
    bool asleep = false;
    story.world.watch_hooks([&asleep](const Host& host, HookKind kind, const HookCall&) {
      const bool sleeps =
          kind == HookKind::pause && host.shard.replica == 0 && !std::exchange(asleep, true);
      return HookManner{.delay = sleeps ? Duration(10min) : Duration{}};
    });
    story.go_to(4);
    story.until([&story] { return story.serves(1, 4); }, 60s);
    CHECK(asleep);
    CHECK_FALSE(story.serves(0, 4));
    story.until([&story] { return story.world.settled(4); }, 15min);
    CHECK(story.world.restarts == 0);
  }
}

// vllm#57854: an update that failed at one layer left both versions in place.
TEST_CASE("an installation that fails at any rank leaves no replica with two versions") {
  for (const Placement placement : all_placements) {
    for (const std::uint32_t rank : {0U, 1U, 2U}) {
      CAPTURE(static_cast<int>(placement), rank);
      Scene scene = scene_of(2, placement);
      scene.exchange.rollout_ranks = 3;
      Story story(7, scene);
      story.must_publish(1);
      bool failed = false;
      story.world.watch_hooks([&](const Host& host, HookKind kind, const HookCall&) {
        const bool fails = kind == HookKind::install &&
                           host.shard == ShardId{Side::rollout, 0, rank} &&
                           !std::exchange(failed, true);
        return HookManner{.fails = fails};
      });
      const auto report = story.outcome(story.publish(2));
      const std::string trouble = "rollout 0." + std::to_string(rank) +
                                  " failed while installing version 2: the engine is out";
      // With a second buffer the version before goes on, and nothing is out.
      CHECK(report.has_value() == (placement == Placement::second_buffer));
      if (!report) CHECK(report.error() == Error{ErrorCode::unavailable, trouble});
      story.until([&story] { return story.world.settled(2); }, 60s);
      CHECK(failed);
      CHECK(story.world.restarts == 0);
      story.must_publish(3);
    }
  }
}

TEST_CASE("with a second buffer a failed installation costs no more than a pause") {
  Scene scene = scene_of(1, Placement::second_buffer);
  scene.exchange.retry_delay = 30s;
  Story story(8, scene);
  story.must_publish(1);
  bool failed = false;
  story.world.watch_hooks([&](const Host& host, HookKind kind, const HookCall&) {
    const bool fails =
        kind == HookKind::install && host.shard.rank == 1 && !std::exchange(failed, true);
    return HookManner{.fails = fails};
  });
  const auto report = story.publish(2);
  story.until([&failed] { return failed; });
  story.until([&story] { return story.serves(0, 1); }, 1s);
  const std::uint64_t decodes = story.world.decodes;
  story.pass(20s);
  CHECK(story.world.decodes > decodes + 100);
  CHECK(story.serves(0, 1));
  REQUIRE(story.outcome(report));
  CHECK(story.serves(0, 2));
}

// checkpoint-engine#38, checkpoint-engine#43: one worker's error hung the server.
TEST_CASE("one engine's error hangs neither the owner nor the other replica") {
  const bool ends = GENERATE(true, false);
  Story story(9, scene_of(2, Placement::staging));
  story.must_publish(1);
  bool broken = true;
  story.world.watch_hooks([&](const Host& host, HookKind kind, const HookCall&) {
    const bool fails =
        broken && kind == HookKind::install && host.shard == ShardId{Side::rollout, 1, 1};
    return HookManner{.fails = fails && ends, .ends = !fails || ends};
  });
  const auto second = story.outcome(story.publish(2), 70s);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().text, ContainsSubstring("rollout 1.1"));
  story.until([&story] { return story.serves(0, 2); }, 1s);
  const auto third = story.publish(3);
  story.until([&story] { return story.serves(0, 3); }, 100s);
  broken = false;
  story.until([&story] { return story.serves(1, 3); }, 300s);
  story.until([&third] { return third->has_value(); }, 120s);
}

// NIXL#2047: a transfer is "in progress" for ever.
TEST_CASE("a transfer that neither ends nor fails costs its lease's time, and no more") {
  for (const Placement placement : all_placements) {
    Scene scene = scene_of(2, placement);
    scene.exchange.lease_deadline = 10s;
    Story story(10, scene);
    story.must_publish(1);
    story.world.bytes().fault_next(SimFault::never);
    const Duration begun_at = story.now();
    const auto report = story.outcome(story.publish(2));
    // Without memory to spare nothing is left to serve meanwhile, and the owner hears of it.
    CHECK(report.has_value() == (placement != Placement::in_place));
    if (!report) {
      CHECK_THAT(report.error().text, ContainsSubstring("lost its lease before it had all bytes"));
    }
    story.until([&story] { return story.world.settled(2); }, 30s);
    CHECK(story.now() - begun_at >= 9s);
    CHECK(story.now() - begun_at < 15s);
    CHECK(story.world.restarts == 0);
    CHECK(story.status().revoked == 1);
  }
}

// SkyRL#1399, verl#6620: with more than one trainer replica, rank offsets were wrong.
// NIXL#1978, NIXL#135: copies were expanded to rows.
TEST_CASE("with two trainer replicas of two ranks every rollout rank gets its own columns") {
  for (const Placement placement : all_placements) {
    Scene scene = scene_of(2, placement);
    scene.exchange.trainer_replicas = 2;
    Story story(11, scene);
    const auto plan = story.outcome(story.await_plan());
    REQUIRE(plan);
    // Each of four rollout shards needs columns of the rows of two trainer ranks: one strided copy
    // of each, be it of the one replica or of the other.
    CHECK((*plan)->sources.size() <= 4);
    REQUIRE((*plan)->parts.size() == 4);
    for (const PlanPart& part : (*plan)->parts) CHECK(part.copies.size() == 2);
    for (const std::uint64_t version : {1U, 2U, 3U}) story.must_publish(version);
    for (const std::uint32_t replica : {0U, 1U}) {
      for (const std::uint32_t rank : {0U, 1U}) {
        const Host& host = story.rollout(replica, rank);
        CHECK(story.world.model.holds(host.shard, 2, 3, host.live()));
      }
    }
  }
}

// verl#6738, slime#1731, sglang#4446: weights were cloned on the way.
TEST_CASE("each byte of each version is written once, into memory that was there before") {
  for (const Placement placement : all_placements) {
    Story story(12, scene_of(2, placement));
    for (std::uint64_t version = 1; version <= 5; ++version) {
      CHECK(story.must_publish(version).bytes_moved == 2 * story.bytes_of_replica());
      CHECK(story.bytes_written() == version * 2 * story.bytes_of_replica());
    }
  }
}

}  // namespace
}  // namespace weir
