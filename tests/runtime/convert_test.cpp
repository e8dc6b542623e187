#include "runtime/convert.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/runtime/levels.hpp"
#include "tests/runtime/nearest_code.hpp"

namespace weir {

// Goal: f32, bf16 and f16 become one another by the rule of rounding, at every level of vector
// instructions. Method: all 16-bit values, and f32 values around every border of rounding, against
// an oracle that looks for the nearest among all codes; then every level against single elements.

namespace {

constexpr ElementType floats[] = {ElementType::f32, ElementType::f16, ElementType::bf16};

/// As the header's functions for single elements have it.
std::uint32_t one(ElementType source, std::uint32_t bits, ElementType target) {
  const auto half = static_cast<std::uint16_t>(bits);
  const std::uint32_t wide = source == ElementType::f32   ? bits
                             : source == ElementType::f16 ? f32_of_f16(half)
                                                          : f32_of_bf16(half);
  if (target == ElementType::f32) return wide;
  return target == ElementType::f16 ? f16_of_f32(wide) : bf16_of_f32(wide);
}

void check(ElementType source, std::uint32_t bits, ElementType target) {
  if (one(source, bits, target) == converted(source, bits, target)) return;
  CAPTURE(name_of(source), bits, name_of(target), converted(source, bits, target));
  FAIL("became " << one(source, bits, target));
}

}  // namespace

TEST_CASE("every f16 and bf16 becomes the nearest of the other types", "[runtime][convert]") {
  for (const ElementType source : {ElementType::f16, ElementType::bf16}) {
    for (const ElementType target : floats) {
      if (source == target) continue;
      for (std::uint32_t bits = 0; bits < 0x10000; ++bits) check(source, bits, target);
    }
  }
}

TEST_CASE("every f16 and bf16 comes back from f32 as it was, NaNs quiet", "[runtime][convert]") {
  for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
    const std::uint32_t quiet = type == ElementType::f16 ? 0x0200 : 0x0040;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const std::uint32_t back = one(ElementType::f32, one(type, bits, ElementType::f32), type);
      const std::uint32_t expected = code_table(type).is_nan(bits) ? bits | quiet : bits;
      if (back != expected) FAIL(name_of(type) << " " << bits << " came back as " << back);
    }
  }
}

TEST_CASE("an f32 around each border between two codes goes to the nearer one, or the even one",
          "[runtime][convert]") {
  for (const ElementType target : {ElementType::f16, ElementType::bf16}) {
    const std::vector<double>& values = code_table(target).values();
    for (std::size_t code = 0; code + 1 < values.size(); ++code) {
      // The border lies half way; it, and every code, is an f32.
      for (const double place : {values[code], (values[code] + values[code + 1]) / 2}) {
        const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(place));
        for (const std::uint32_t near : {bits, bits + 1, bits == 0 ? bits : bits - 1}) {
          check(ElementType::f32, near, target);
          check(ElementType::f32, near | 0x8000'0000U, target);
        }
      }
    }
  }
}

TEST_CASE("any f32 becomes the nearest f16 and bf16", "[runtime][convert]") {
  std::mt19937 random(11);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    // As it is, and with an exponent that f16 has or nearly has.
    for (const std::uint32_t near :
         {bits, (bits & 0x83ff'ffffU) + 0x3300'0000U + (bits >> 5 & 1)}) {
      check(ElementType::f32, near, ElementType::f16);
      check(ElementType::f32, near, ElementType::bf16);
    }
  }
}

TEST_CASE("rounding worked by hand", "[runtime][convert]") {
  REQUIRE(bf16_of_f32(0x3f808000) == 0x3f80);  // Half way between 1 and the next: 1 is even.
  REQUIRE(bf16_of_f32(0x3f818000) == 0x3f82);  // Half way above an odd one: up.
  REQUIRE(bf16_of_f32(0x7f7fffff) == 0x7f80);  // The largest f32 becomes infinity.
  REQUIRE(bf16_of_f32(0x7f800001) == 0x7fc0);  // A signalling NaN becomes quiet, not infinity.
  REQUIRE(bf16_of_f32(0x00000001) == 0x0000);  // The smallest subnormal becomes zero,
  REQUIRE(bf16_of_f32(0x80008001) == 0x8001);  // and subnormals round like all others.
  REQUIRE(f16_of_f32(0x3f801000) == 0x3c00);   // 1 + 2^-11 is half way: 1 is even.
  REQUIRE(f16_of_f32(0x3f803000) == 0x3c02);   // 1 + 3 * 2^-11: up.
  REQUIRE(f16_of_f32(0x477fefff) == 0x7bff);   // Just below 65520: 65504, the largest;
  REQUIRE(f16_of_f32(0x477ff000) == 0x7c00);   // 65520 is half way to 65536: infinity.
  REQUIRE(f16_of_f32(0x33000000) == 0x0000);   // 2^-25 is half of the smallest: zero is even;
  REQUIRE(f16_of_f32(0xb3000001) == 0x8001);   // anything more is not.
  REQUIRE(f16_of_f32(0xffc02000) == 0xfe01);   // The upper payload stays,
  REQUIRE(f16_of_f32(0x7f800001) == 0x7e00);   // the lower goes.
  REQUIRE(f32_of_f16(0x0001) == 0x33800000);   // 2^-24
  REQUIRE(f32_of_f16(0x83ff) == 0xb87fc000);   // -1023 * 2^-24
}

TEST_CASE("only f32, bf16 and f16 are converted, and not to themselves", "[runtime][convert]") {
  for (int from = 0; from < element_type_count; ++from) {
    for (int to = 0; to < element_type_count; ++to) {
      const auto is_float = [](int type) {
        return std::ranges::find(floats, static_cast<ElementType>(type)) != std::end(floats);
      };
      REQUIRE(conversion_exists(static_cast<ElementType>(from), static_cast<ElementType>(to)) ==
              (from != to && is_float(from) && is_float(to)));
    }
  }
}

TEST_CASE("runs of any length and alignment are converted alike at every level",
          "[runtime][convert]") {
  std::mt19937_64 random(20260612);
  for (const ElementType source : floats) {
    for (const ElementType target : floats) {
      if (source == target) continue;
      for_each_run(random, size_of(source), size_of(target), [&](const Run& run) {
        std::vector<std::byte> expected(run.target_bytes);
        for (std::size_t i = 0; i < run.count; ++i) {
          std::uint32_t bits = 0;
          std::memcpy(&bits, run.source + i * size_of(source), size_of(source));
          bits = one(source, bits, target);
          std::memcpy(expected.data() + i * size_of(target), &bits, size_of(target));
        }
        require_at_every_level(run, expected, [&](std::byte* to, SimdLevel level) {
          convert_run({.source = source, .target = target}, to, run.source, run.count, level);
        });
      });
    }
  }
}

}  // namespace weir
