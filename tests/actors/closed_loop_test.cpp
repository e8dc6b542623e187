// Goal: rollouts, admission, trainers and versions keep each other going, whatever dies on the way,
// and no sample is lost on the way or handed over too old.
// Method: simulated worlds. Those that have an owner check every batch and all counts by
// themselves; here they are run, and seen to have delivered. The first seeds once stood still.

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "actors/simulation.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {

TEST_CASE("batches go on after deaths, switches and pauses, and every sample is accounted for",
          "[actors][admission][simulation]") {
  std::vector<std::uint64_t> seeds{71, 175, 177, 216, 265, 337, 363, 410};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) seeds.push_back(seed);
  std::size_t with_owner = 0;
  for (const std::uint64_t seed : seeds) {
    const auto report = simulate({.seed = seed});
    REQUIRE(report);
    if (report->batches != 0) ++with_owner;
  }
  CHECK(with_owner > seeds.size() / 4);
}

TEST_CASE("a world with an owner is the same each time", "[actors][admission][simulation]") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto first = simulate({.seed = seed});
    const auto second = simulate({.seed = seed});
    REQUIRE(first);
    CHECK(first == second);
  }
}

}  // namespace weir
