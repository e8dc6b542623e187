// Goal: whatever fails, and in whatever order things happen, no invariant is broken, and once
// nothing fails any more every replica comes to the newest version; and a seed replays its run.
// Method: whole exchanges in virtual time (`simulate`), each with faults that its seed decides.
// Under the address sanitizer 85 seeds a minute ran on one of two cores that others kept busy, in a
// release build 2700.

#include "actors/simulation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <set>
#include <utility>

#include "tests/actors/shown_results.hpp"

namespace weir {
namespace {

SimulationReport report_of(std::uint64_t seed, bool faults) {
  const auto report = simulate({.seed = seed, .faults = faults});
  REQUIRE(report);
  return *report;
}

TEST_CASE("no seed breaks an invariant, and every sample is accounted for") {
  std::uint64_t faults = 0;
  std::uint64_t restarts = 0;
  std::uint64_t commits = 0;
  std::uint64_t with_samples = 0;
  std::uint64_t early = 0;
  std::uint64_t moved = 0;
  constexpr std::uint64_t seeds = 60;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimulationReport report = report_of(seed, true);
    CHECK(report.versions >= 3);
    CHECK(report.commits > 0);
    CHECK(report.decodes > 0);
    faults += report.faults;
    restarts += report.restarts;
    commits += report.commits;
    if (report.batches != 0) ++with_samples;
    early += report.bytes_read_early;
    moved += report.bytes_moved;
  }
  // A storm strikes nine times on average: far fewer would mean that nothing is tested.
  CHECK(faults > 2 * seeds);
  CHECK(restarts > seeds);
  CHECK(commits > 10 * seeds);
  CHECK(with_samples > seeds / 4);
  // Versions are fetched while they are written wherever there is memory to spare: about a third.
  CHECK(early > moved / 100);
}

TEST_CASE("without faults nothing restarts, and each seed is an order of its own") {
  std::set<std::pair<std::uint64_t, std::uint64_t>> traces;
  constexpr std::uint64_t seeds = 20;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimulationReport report = report_of(seed, false);
    CHECK(report.faults == 0);
    CHECK(report.restarts == 0);
    CHECK(report.commits > 0);
    traces.emplace(report.trace.high, report.trace.low);
  }
  CHECK(traces.size() == seeds);
}

TEST_CASE("the same seed gives the same run") {
  for (const bool faults : {false, true}) {
    for (std::uint64_t seed = 1001; seed <= 1010; ++seed) {
      CAPTURE(seed, faults);
      const SimulationOptions options{.seed = seed, .faults = faults, .narrate = true};
      const auto first = simulate(options);
      const auto second = simulate(options);
      REQUIRE(first);
      REQUIRE(second);
      CHECK(first->trace == second->trace);
      CHECK(first->last_draw == second->last_draw);
      CHECK(*first == *second);
    }
  }
}

TEST_CASE("a run that does not end in its steps is an error that tells the seed") {
  const auto report = simulate({.seed = 7, .faults = false, .steps_max = 100});
  REQUIRE_FALSE(report);
  CHECK(report.error().code == ErrorCode::invalid);
  CHECK(report.error().text.starts_with(
      "seed 7: not every replica came to version 3 after all faults had ended"));
}

}  // namespace
}  // namespace weir
