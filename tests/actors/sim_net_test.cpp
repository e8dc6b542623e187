// Goal: simulated time only goes on, for each process by a clock that is a little wrong. Method:
// clocks are read on both sides of every border at which their arithmetic could slip.

#include "actors/internal/sim_net.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

// A clock that went back by 50 us each ms once left a timeout for ever just ahead, and its world
// running in a circle.
TEST_CASE("the clock of a process never goes back, and is at most a twentieth fast or slow") {
  Random random(1);
  for (int i = 0; i < 20; ++i) {
    const Process process("process", random);
    const Duration begin = process.local(0ns);
    Duration last = begin;
    for (Duration world = 0ns; world < 1h; world += 1ms + world / 10) {
      for (const Duration near : {-1ns, 0ns, 1ns}) {
        const Duration time = world / 1ms * 1ms + near;
        if (time < 0ns) continue;
        const Duration shown = process.local(time);
        REQUIRE(shown >= last);
        REQUIRE(shown - begin <= time + time / 20 + 1ns);
        REQUIRE(shown - begin >= time - time / 20 - 1ns);
        last = shown;
      }
    }
  }
}

}  // namespace
}  // namespace weir::sim
