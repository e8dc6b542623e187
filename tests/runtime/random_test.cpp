#include "runtime/random.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <set>

namespace weir {

// Goal: a seed means the same numbers everywhere, and bounds are kept.
// Method: the published first numbers of SplitMix64; every value of small ranges is met.

TEST_CASE("a seed gives the published numbers of SplitMix64", "[runtime][random]") {
  // As Rosetta Code lists them for seed 1234567 (task "Pseudo-random numbers/Splitmix64").
  Random random(1234567);
  REQUIRE(random.next() == 6457827717110365317U);
  REQUIRE(random.next() == 3203168211198807973U);
  REQUIRE(random.next() == 9817491932198370423U);
}

TEST_CASE("both ends of a range are met, and nothing beyond", "[runtime][random]") {
  Random random(1);
  std::set<std::int64_t> met;
  for (int i = 0; i < 1000; ++i) met.insert(random.between(-2, 2));
  REQUIRE(met == std::set<std::int64_t>{-2, -1, 0, 1, 2});
  REQUIRE(random.between(7, 7) == 7);
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  std::set<bool> signs;
  for (int i = 0; i < 100; ++i) signs.insert(random.between(least, most) < 0);
  REQUIRE(signs.size() == 2);
}

TEST_CASE("chances are kept", "[runtime][random]") {
  Random random(1);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    REQUIRE_FALSE(random.chance(0, 3));
    REQUIRE(random.chance(3, 3));
    if (random.chance(1, 4)) ++hits;
  }
  // 2500 expected; the standard deviation is 43.
  REQUIRE(hits > 2500 - 6 * 43);
  REQUIRE(hits < 2500 + 6 * 43);
}

}  // namespace weir
