#include "runtime/clock.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir {

// Goal: the one place that reads the machine's clock. Method: read it many times.

TEST_CASE("the system clock never goes back, and it moves", "[runtime]") {
  const SystemClock clock;
  const std::chrono::nanoseconds start = clock.now();
  std::chrono::nanoseconds last = start;
  while (last == start) {
    const std::chrono::nanoseconds next = clock.now();
    REQUIRE(next >= last);
    last = next;
  }
}

}  // namespace weir
