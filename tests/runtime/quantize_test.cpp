#include "runtime/quantize.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/runtime/levels.hpp"
#include "tests/runtime/nearest_code.hpp"

namespace weir {

// Goal: scales, codes and what codes stand for follow the formulas of their engines, at every level
// of vector instructions. Method: all 16-bit values and all codes at several scales against
// arithmetic on doubles, where each operation of f32 is one rounding of an exact or nearly exact
// result, and a search for the nearest code.

namespace {

constexpr ElementType floats[] = {ElementType::f32, ElementType::f16, ElementType::bf16};
constexpr Scaling scalings[] = {Scaling::f8_block, Scaling::f8_block_ue8m0, Scaling::f8_channel,
                                Scaling::i8_channel};
constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::bit_cast<float>(0x7fc0'0000U);

/// Common ones, powers of two, and those at the ends of what there is.
const std::vector<float> scales = {1,      0.0123F, 1e-4F / 448, 0x1p-20F, 3.4e38F / 448, 3,
                                   1e-39F, 1e-45F,  infinity,    nan,      0x1.fffffep-9F};

float value_of(ElementType type, const std::byte* from) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, from, size_of(type));
  return std::bit_cast<float>(converted(type, bits, ElementType::f32));
}

/// Double has more than twice the digits of float, so that rounding twice is rounding once.
float over(float a, float b) {
  return static_cast<float>(double{a} / double{b});
}
float times(float a, float b) {
  return static_cast<float>(double{a} * double{b});
}

std::uint8_t expected_code(Scaling scaling, float value, float scale) {
  const bool block = scaling == Scaling::f8_block || scaling == Scaling::f8_block_ue8m0;
  const float quotient = block ? times(value, over(1, scale)) : over(value, scale);
  if (scaling != Scaling::i8_channel) {
    return std::isnan(quotient)
               ? std::uint8_t{0x7f}
               : static_cast<std::uint8_t>(code_table(ElementType::f8_e4m3).nearest(quotient));
  }
  if (std::isnan(quotient)) return 0;
  int nearest = quotient < 0 ? -127 : 127;
  if (std::abs(quotient) > 127) return static_cast<std::uint8_t>(nearest);
  for (int code = -127; code <= 127; ++code) {
    const double before = std::abs(double{quotient} - nearest);
    const double here = std::abs(double{quotient} - code);
    if (here < before || (here == before && code % 2 == 0)) nearest = code;
  }
  return static_cast<std::uint8_t>(nearest);
}

/// Every value of a 16-bit type.
std::vector<std::byte> all_halves() {
  std::vector<std::byte> bytes;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    bytes.push_back(static_cast<std::byte>(bits));
    bytes.push_back(static_cast<std::byte>(bits >> 8));
  }
  return bytes;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

float absmax_of(const std::vector<float>& values, float so_far = 0) {
  const std::vector<std::byte> bytes = bytes_of(values);
  return absmax_run(ElementType::f32, bytes.data(), values.size(), so_far);
}

/// What a block becomes and what it then stands for.
std::vector<float> there_and_back(Scaling scaling, const std::vector<float>& values) {
  const float scale = scale_of(scaling, absmax_of(values));
  const std::vector<std::byte> bytes = bytes_of(values);
  std::vector<std::byte> codes(values.size());
  quantize_run(scaling, scale, codes.data(), ElementType::f32, bytes.data(), values.size());
  std::vector<float> back(values.size());
  dequantize_run({.source = code_type(scaling), .target = ElementType::f32}, scale,
                 reinterpret_cast<std::byte*>(back.data()), codes.data(), values.size());
  return back;
}

}  // namespace

TEST_CASE("every f16 and bf16 gets the code that its scale asks for", "[runtime][quantize]") {
  const std::vector<std::byte> source = all_halves();
  std::vector<std::byte> codes(source.size() / 2);
  for (const Scaling scaling : {Scaling::f8_block, Scaling::f8_channel, Scaling::i8_channel}) {
    for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
      for (const float scale : scales) {
        quantize_run(scaling, scale, codes.data(), type, source.data(), codes.size());
        for (std::size_t i = 0; i < codes.size(); i += scaling == Scaling::i8_channel ? 7 : 1) {
          const float value = value_of(type, &source[2 * i]);
          const auto code = static_cast<std::uint8_t>(codes[i]);
          if (code == expected_code(scaling, value, scale)) continue;
          CAPTURE(static_cast<int>(scaling), name_of(type), scale, value);
          FAIL("got code " << int{code} << ", not " << int{expected_code(scaling, value, scale)});
        }
      }
    }
  }
}

TEST_CASE("f32 around each border between two f8_e4m3 goes to the nearer one, or the even one",
          "[runtime][quantize]") {
  const CodeTable& table = code_table(ElementType::f8_e4m3);
  for (std::size_t code = 0; code + 1 < table.values().size(); ++code) {
    const double border = (table.values()[code] + table.values()[code + 1]) / 2;
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(border));
    for (const std::uint32_t sign : {0U, 0x8000'0000U}) {
      REQUIRE(f8_e4m3_of_f32((bits - 1) | sign) == (code | sign >> 24));
      REQUIRE(f8_e4m3_of_f32((bits + 1) | sign) == ((code + 1) | sign >> 24));
      REQUIRE(f8_e4m3_of_f32(bits | sign) == ((code + code % 2) | sign >> 24));
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto value = std::bit_cast<float>((bits & 0x8fff'ffffU) | 0x3000'0000U);
    const auto code = f8_e4m3_of_f32(std::bit_cast<std::uint32_t>(value));
    if (code != table.nearest(value)) FAIL("of " << value << ": " << int{code});
  }
}

TEST_CASE("f8_e4m3 worked by hand", "[runtime][quantize]") {
  const auto code = [](float value) { return f8_e4m3_of_f32(std::bit_cast<std::uint32_t>(value)); };
  REQUIRE(code(0) == 0x00);
  REQUIRE(code(-0.0F) == 0x80);
  REQUIRE(code(1) == 0x38);
  REQUIRE(code(-448) == 0xfe);
  REQUIRE(code(449) == 0x7e);        // There is no infinity: the largest,
  REQUIRE(code(infinity) == 0x7e);   // however large,
  REQUIRE(code(-infinity) == 0xfe);  // of the same sign.
  REQUIRE(code(nan) == 0x7f);
  REQUIRE(code(-nan) == 0x7f);
  REQUIRE(code(0x1p-6F) == 0x08);    // The smallest normal,
  REQUIRE(code(0x1p-9F) == 0x01);    // the smallest subnormal,
  REQUIRE(code(0x1p-10F) == 0x00);   // its half, which is even at zero,
  REQUIRE(code(0x1.8p-9F) == 0x02);  // and half way to the next.
  REQUIRE(code(0x1.000002p-10F) == 0x01);
  REQUIRE(code(0x1.fp-7F) == 0x08);  // Half way between the largest subnormal and 2^-6.
}

TEST_CASE("every code stands for what its type says, times the scale", "[runtime][quantize]") {
  std::vector<std::byte> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<std::byte>(code));
  const CodeTable& table = code_table(ElementType::f8_e4m3);
  for (const ElementType type : {ElementType::f8_e4m3, ElementType::i8}) {
    for (const ElementType target : floats) {
      for (const float scale : scales) {
        std::vector<std::byte> out(256 * size_of(target));
        dequantize_run({.source = type, .target = target}, scale, out.data(), codes.data(), 256);
        for (std::uint32_t code = 0; code < 256; ++code) {
          const bool missing = type == ElementType::f8_e4m3 && table.is_nan(code);
          const double value = type == ElementType::i8 ? code - (code < 128 ? 0.0 : 256.0)
                               : missing               ? double{nan}
                                                       : table.value(code);
          const float product = times(static_cast<float>(value), scale);
          const std::uint32_t wide =
              std::isnan(product) ? 0x7fc0'0000U : std::bit_cast<std::uint32_t>(product);
          const std::uint32_t expected =
              target == ElementType::f32 ? wide : converted(ElementType::f32, wide, target);
          std::uint32_t got = 0;
          std::memcpy(&got, &out[code * size_of(target)], size_of(target));
          if (got == expected) continue;
          CAPTURE(name_of(type), name_of(target), scale, code);
          FAIL("became " << got << ", not " << expected);
        }
      }
    }
  }
}

TEST_CASE("scales worked by hand", "[runtime][quantize]") {
  REQUIRE(scale_of(Scaling::f8_block, 448) == 1);
  REQUIRE(scale_of(Scaling::f8_block, 0) == 1e-4F / 448.0F);
  REQUIRE(scale_of(Scaling::f8_block, 1e-5F) == 1e-4F / 448.0F);
  REQUIRE(scale_of(Scaling::f8_block, 1) == over(1, 448));
  REQUIRE(scale_of(Scaling::f8_block_ue8m0, 448) == 1);
  REQUIRE(scale_of(Scaling::f8_block_ue8m0, std::nextafter(448.0F, 449.0F)) == 2);
  REQUIRE(scale_of(Scaling::f8_block_ue8m0, 449) == 2);
  REQUIRE(scale_of(Scaling::f8_block_ue8m0, 447) == 1);
  REQUIRE(scale_of(Scaling::f8_block_ue8m0, 0) == 0x1p-22F);  // 1e-4 / 448 is 0.94 * 2^-22.
  REQUIRE(scale_of(Scaling::f8_block_ue8m0, std::numeric_limits<float>::max()) == 0x1p120F);
  REQUIRE(scale_of(Scaling::f8_channel, 896) == 2);
  REQUIRE(scale_of(Scaling::f8_channel, 0) == over(1, 448 * 512));
  REQUIRE(scale_of(Scaling::i8_channel, 254) == 2);
  REQUIRE(scale_of(Scaling::i8_channel, 1e-10F) == over(1e-10F, 127));
  REQUIRE(scale_of(Scaling::i8_channel, 0) == 0x1p-23F);
  for (const Scaling scaling : scalings) {
    REQUIRE(scale_of(scaling, infinity) == infinity);
    REQUIRE(std::bit_cast<std::uint32_t>(scale_of(scaling, -nan)) == 0x7fc0'0000U);
  }
  const OddArithmetic arithmetic;
  const float rounded = scale_of(Scaling::f8_block, 1);
  const float subnormal = scale_of(Scaling::i8_channel, 1e-38F);
  REQUIRE(std::bit_cast<std::uint32_t>(rounded) == 0x3b124925);  // 1/448, to nearest.
  REQUIRE(std::bit_cast<std::uint32_t>(subnormal) == 56191);     // 7136238 * 2^-149, over 127.
}

TEST_CASE("the largest absolute value is found wherever it is, and goes on from others",
          "[runtime][quantize]") {
  REQUIRE(absmax_of({}) == 0);
  REQUIRE(absmax_of({1, -3, 2}) == 3);
  REQUIRE(absmax_of({1, -3, 2}, 7) == 7);
  REQUIRE(absmax_of({-0.0F}) == 0);
  REQUIRE(absmax_of({1e-45F, -3e-45F}) == 3e-45F);
  REQUIRE(absmax_of({1, -infinity}) == infinity);
  REQUIRE(std::isnan(absmax_of({1, -nan, infinity})));
  REQUIRE(std::isnan(absmax_of({1}, nan)));
  std::mt19937_64 random(77);
  for (const ElementType type : floats) {
    const std::size_t size = size_of(type);
    for (std::size_t count = 1; count < 1100; count += count < 300 ? 1 : 77) {
      std::vector<std::byte> bytes(count * size + 3);
      const auto fill = static_cast<std::byte>(0x11);  // A small number in each type.
      std::ranges::fill(bytes, fill);
      const std::size_t place = random() % count;
      bytes[3 + place * size + size - 1] = std::byte{0xd0};  // A larger negative one.
      const float expected = -value_of(type, &bytes[3 + place * size]);
      for (const SimdLevel level : levels_here()) {
        CAPTURE(name_of(type), count, place, name_of(level));
        REQUIRE(absmax_run(type, &bytes[3], count, 0, level) == expected);
      }
    }
  }
}

TEST_CASE("a NaN or an infinity in a block makes all of it NaN", "[runtime][quantize]") {
  for (const Scaling scaling : scalings) {
    for (const float bad : {nan, -nan, infinity, -infinity}) {
      std::vector<float> values(100, 0.5F);
      values[3] = -2;
      values[50] = bad;
      values[99] = 0;
      for (const float back : there_and_back(scaling, values)) REQUIRE(std::isnan(back));
    }
  }
}

TEST_CASE("a block of zeros stays zeros, and what a block holds comes back nearly",
          "[runtime][quantize]") {
  std::mt19937 random(2);
  for (const Scaling scaling : scalings) {
    for (const float back : there_and_back(scaling, std::vector<float>(70, 0))) REQUIRE(back == 0);
    std::vector<float> values;
    for (int i = 0; i < 500; ++i) values.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
    const std::vector<float> back = there_and_back(scaling, values);
    // f8_e4m3 has a sixteenth of a number to either side, down to half of 2^-9 scales; i8 half a
    // scale. A scale is 1/448, at most twice that rounded up, or 1/127.
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float error = std::abs(values[i] - back[i]);
      const float bound = scaling == Scaling::i8_channel
                              ? 0.501F / 127
                              : std::max(std::abs(values[i]) / 15.9F, 0x1p-9F / 448);
      if (error > bound) FAIL(values[i] << " came back as " << back[i]);
    }
  }
}

TEST_CASE("runs of any length and alignment are quantized alike at every level",
          "[runtime][quantize]") {
  std::mt19937_64 random(20260613);
  for (const Scaling scaling : scalings) {
    for (const ElementType type : floats) {
      for_each_run(random, size_of(type), 1, [&](const Run& run) {
        const float scale = scales[random() % scales.size()];
        std::vector<std::byte> expected(run.target_bytes);
        const std::size_t step = scaling == Scaling::i8_channel && run.count > 200 ? 97 : 1;
        quantize_run(scaling, scale, expected.data(), type, run.source, run.count,
                     SimdLevel::scalar);
        for (std::size_t i = 0; i < run.count; i += step) {
          const float value = value_of(type, run.source + i * size_of(type));
          const auto code = static_cast<std::byte>(expected_code(scaling, value, scale));
          if (code != expected[i]) FAIL(value << " at scale " << scale);
        }
        require_at_every_level(run, expected, [&](std::byte* to, SimdLevel level) {
          quantize_run(scaling, scale, to, type, run.source, run.count, level);
        });
      });
    }
  }
}

TEST_CASE("runs of any length and alignment come back alike at every level",
          "[runtime][quantize]") {
  std::mt19937_64 random(20260614);
  for (const ElementType type : {ElementType::f8_e4m3, ElementType::i8}) {
    for (const ElementType target : floats) {
      const TypePair conversion{.source = type, .target = target};
      for_each_run(random, 1, size_of(target), [&](const Run& run) {
        const float scale = scales[random() % scales.size()];
        std::vector<std::byte> expected(run.target_bytes);
        dequantize_run(conversion, scale, expected.data(), run.source, run.count,
                       SimdLevel::scalar);
        require_at_every_level(run, expected, [&](std::byte* to, SimdLevel level) {
          dequantize_run(conversion, scale, to, run.source, run.count, level);
        });
      });
    }
  }
}

}  // namespace weir
