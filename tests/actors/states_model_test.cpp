// Goal: whatever dies, is late or comes back, nobody generates with torn bytes or two versions, and
// all reach the newest version once the faults stop.
// Method: thousands of exchanges of the real decisions and naive members (states_world.hpp), each
// with a shape and faults that a seed decides. Promises are checked after every step.

#include <catch2/catch_test_macros.hpp>

#include "tests/actors/states_world.hpp"

namespace weir {
namespace {

constexpr std::size_t steps_with_faults = 1500;
/// Many times what the largest exchange below needs.
constexpr std::size_t steps_to_recover = 60'000;

StatesWorld::Options options_for(Random& random) {
  StatesWorld::Options options;
  const auto up_to = [&random](std::int64_t most) {
    return static_cast<std::uint32_t>(random.between(1, most));
  };
  options.trainer_replicas = up_to(2);
  options.trainer_ranks = up_to(2);
  options.trainer_slots = up_to(3);
  options.rollout_replicas = up_to(3);
  options.rollout_ranks = up_to(3);
  for (std::uint32_t replica = 0; replica < options.rollout_replicas; ++replica) {
    options.placements.push_back(static_cast<Placement>(random.below(3)));
  }
  options.follow = random.chance(1, 2) ? Follow::finish : Follow::jump;
  options.dead_memory_is_read = random.chance(1, 2);
  return options;
}

struct Counts {
  std::uint64_t commits = 0;
  std::uint64_t early = 0;
};

Counts run(std::uint64_t seed, bool faults) {
  Random random(seed);
  const StatesWorld::Options options = options_for(random);
  StatesWorld world(options, random.next());
  for (std::size_t step = 0; step < steps_with_faults && world.fault().empty(); ++step) {
    world.step(faults);
  }
  world.begin_recovery();
  std::size_t left = steps_to_recover;
  while (!world.recovered() && left != 0 && world.fault().empty()) {
    world.revive();
    world.step(false);
    --left;
  }
  INFO("seed " << seed << "\n" << world.text());
  CAPTURE(world.fault());
  REQUIRE(world.fault().empty());
  REQUIRE(left != 0);
  return {world.commits(), world.early()};
}

TEST_CASE("an exchange without faults brings every replica to the newest version") {
  std::uint64_t early = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Counts counts = run(seed, false);
    REQUIRE(counts.commits > 0);
    early += counts.early;
  }
  // Some of what is fetched is fetched while it is written, in a third of the shapes.
  CHECK(early > 200);
}

TEST_CASE("no order of faults tears what is served, and all recover from it") {
  std::uint64_t commits = 0;
  std::uint64_t early = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const Counts counts = run(seed, true);
    commits += counts.commits;
    early += counts.early;
  }
  CHECK(early > 1000);
  // Faults must not have kept everything else from happening.
  CHECK(commits > 3000 * 3);
}

}  // namespace
}  // namespace weir
