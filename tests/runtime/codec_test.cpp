#include "runtime/codec.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runtime/planner.hpp"
#include "tests/runtime/random_model.hpp"

namespace weir {

// Goal: what crosses a process border arrives as it was sent, or is refused with a reason.
// Method: random manifests and their plans there and back; hand-made values over each limit.

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("manifests and plans arrive as they were sent", "[runtime][codec]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    testing::Random random(seed);
    const std::vector<Manifest> manifests = testing::random_manifests(random);
    for (const Manifest& manifest : manifests) {
      REQUIRE(decode_manifest(bytes_of(encode(manifest))) == manifest);
    }
    const auto plan = make_plan(manifests);
    REQUIRE(plan);
    REQUIRE(decode_plan(bytes_of(encode(*plan))) == *plan);
  }
}

}  // namespace weir
