// Goal: a version is fetched while its trainers write it, which brings it sooner and costs nobody
// anything; and if it comes to nothing, nothing of it is served.
// Method: stories in virtual time (`world.hpp`), in which every engine checks every byte that it
// reads at every step, and whatever is read before it stands is of no version.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>

#include "tests/actors/world.hpp"

using namespace std::chrono_literals;

namespace weir {
namespace {

/// A slot is filled in 12 steps of 50 ms on average; a fetch moves 64 bytes at once, of 288.
Scene slow_scene(Placement placement) {
  Scene scene = scene_of(1, placement);
  scene.stages = 12;
  scene.stage_most = 100ms;
  scene.window_bytes_max = 64;
  scene.link.delay_least = scene.link.delay_most = 20ms;
  scene.rest_most = 1s;
  return scene;
}

/// Version 2 is being written, and some of it has been read.
void read_some(Story& story) {
  story.settle(1);
  const std::uint64_t before = story.bytes_written();
  story.go_to(2);
  story.until([&story, before] { return story.bytes_written() > before; });
  REQUIRE(story.world.newest_whole == 1);
}

TEST_CASE("what is read while it is written is there sooner, and every byte is moved once") {
  const Placement placement = GENERATE(Placement::second_buffer, Placement::staging);
  constexpr std::uint64_t versions = 6;
  // From the moment when a version is whole to that when its last byte is there.
  const auto time_to_fetch = [placement](std::uint32_t slots) {
    Scene scene = slow_scene(placement);
    // With one slot a version takes the place of the one before, and is not read early.
    scene.trainer_slots = slots;
    Story story(1, scene);
    story.settle(1);
    Duration total{};
    for (std::uint64_t version = 2; version <= versions; ++version) {
      story.go_to(version);
      story.until([&story, version] { return story.world.newest_whole == version; });
      const Duration whole_at = story.now();
      const std::uint64_t all = version * story.bytes_of_replica();
      story.until([&story, all] { return story.bytes_written() == all; });
      total += story.now() - whole_at;
      story.until([&story, version] { return story.world.settled(version); });
      CHECK(story.bytes_written() == all);
    }
    const bool early = story.world.bytes_read_early > 0;
    CHECK(early == (slots > 1));
    return total / (versions - 1);
  };
  const Duration early = time_to_fetch(2);
  const Duration late = time_to_fetch(1);
  CAPTURE(early.count(), late.count());
  CHECK(early < late / 2);
}

TEST_CASE("live weights that would be torn are not written early") {
  Story story(2, slow_scene(Placement::in_place));
  story.settle(1);
  story.settle(2);
  CHECK(story.world.bytes_read_early == 0);
}

TEST_CASE("a trainer that dies while it is read leaves the version before served") {
  for (const std::uint32_t rank : {0U, 1U}) {
    Story story(3, slow_scene(Placement::second_buffer));
    read_some(story);
    story.world.kill(story.trainer(0, rank), true, 2s);
    story.pass(1s);
    CHECK(story.serves(0, 1));
    story.settle(3);
  }
}

TEST_CASE("an exchange that dies while a version is read early brings it all the same") {
  const bool notice = GENERATE(true, false);
  Story story(4, slow_scene(Placement::staging));
  read_some(story);
  story.world.kill_exchange(notice, 100ms);
  story.until([&story] { return story.world.settled(2); });
}

TEST_CASE("a reader that dies while it reads early holds up neither the trainer nor its peer") {
  Story story(5, slow_scene(Placement::second_buffer));
  read_some(story);
  story.world.kill(story.rollout(0, 1), true, 1s);
  story.until([&story] { return story.world.settled(2); });
  story.settle(3);
}

TEST_CASE("a trainer that begins a version anew waits for no early reader") {
  Scene scene = slow_scene(Placement::second_buffer);
  // Every second filling fails or is slow for seconds.
  scene.stage_trouble = 2;
  scene.write_patience = 60s;
  Story story(6, scene);
  for (std::uint64_t version = 1; version <= 8; ++version) story.settle(version);
  CHECK(story.world.bytes_read_early > 0);
  CHECK(story.now() < 8 * 60s);
}

}  // namespace
}  // namespace weir
