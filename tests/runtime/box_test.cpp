#include "runtime/box.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

namespace weir {

// Goal: the geometry that everything stands on. Method: small boxes worked by hand.

TEST_CASE("two boxes meet in their common part, and touching boxes do not meet", "[runtime]") {
  const Box left{{0, 0}, {4, 8}};
  const Box right{{2, 4}, {4, 8}};
  REQUIRE(intersection(left, right) == Box{{2, 4}, {2, 4}});
  REQUIRE_FALSE(intersection(left, Box{{4, 0}, {1, 8}}).has_value());
}

TEST_CASE("scalars meet in their only element", "[runtime]") {
  REQUIRE(intersection(Box{}, Box{}) == Box{});
  REQUIRE(element_count(Dims{}) == 1);
}

TEST_CASE("a box fits only a shape of its rank that holds it all", "[runtime]") {
  REQUIRE(fits(Box{{1}, {2}}, Dims{3}));
  REQUIRE_FALSE(fits(Box{{2}, {2}}, Dims{3}));
  REQUIRE_FALSE(fits(Box{{-1}, {2}}, Dims{3}));
  REQUIRE_FALSE(fits(Box{{0}, {2}}, Dims{3, 1}));
}

TEST_CASE("dense strides are row-major", "[runtime]") {
  REQUIRE(dense_strides(Dims{2, 3, 5}, 2) == Dims{30, 10, 2});
}

TEST_CASE("boxes and shapes are written as people write them", "[runtime]") {
  REQUIRE(text_of(Box{{0, 64}, {128, 32}}) == "[0:128, 64:96]");
  REQUIRE(text_of(Dims{128, 4096}) == "128x4096");
  // An impossible box, of which an error text must still speak.
  REQUIRE(text_of(Box{{9}, {std::numeric_limits<std::int64_t>::max()}}) ==
          "[9:9223372036854775807]");
}

}  // namespace weir
