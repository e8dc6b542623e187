#include "runtime/strided_copy.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/convert.hpp"
#include "runtime/internal/stream_copy.hpp"

namespace weir {

// Goal: a planned copy moves exactly its elements, converted by the rule, and nothing else; what
// would leave its regions is refused. Method: random copies of every rank, type and order of
// strides against a naive loop over elements, and conversions against arithmetic on doubles.

namespace {

using Bytes = std::vector<std::byte>;

/// The rule of rounding, by arithmetic and not by bits: the nearer neighbour, ties to even.
std::uint16_t nearest_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  const auto low = static_cast<std::uint16_t>(bits >> 16);  // Towards zero.
  if (std::isinf(value)) return low;
  const auto widened = [](std::uint32_t number) {
    // The step after the largest finite number is where infinity would be on an endless scale.
    if ((number & 0x7fffU) == 0x7f80U) return std::ldexp((number >> 15) != 0 ? -1.0 : 1.0, 128);
    const std::uint32_t wide = number << 16;
    float result = 0;
    std::memcpy(&result, &wide, sizeof result);
    return static_cast<double>(result);
  };
  const double below = std::abs(static_cast<double>(value) - widened(low));
  const double above = std::abs(widened(low + 1U) - static_cast<double>(value));
  if (below != above) return below < above ? low : static_cast<std::uint16_t>(low + 1);
  return low % 2 == 0 ? low : static_cast<std::uint16_t>(low + 1);
}

void naive_element(const Copy& copy, const std::byte* from, std::byte* to) {
  if (copy.source_type == copy.target_type) {
    for (std::size_t i = 0; i < size_of(copy.source_type); ++i) to[i] = from[i];
  } else if (copy.source_type == ElementType::f32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    const std::uint16_t result = nearest_bf16(value);
    std::memcpy(to, &result, sizeof result);
  } else {
    to[0] = to[1] = std::byte{0};
    to[2] = from[0];
    to[3] = from[1];
  }
}

void naive_copy(const Copy& copy, const Bytes& source, Bytes& target) {
  std::array<std::int64_t, rank_max> extent{1, 1, 1, 1};
  std::array<std::int64_t, rank_max> read{};
  std::array<std::int64_t, rank_max> write{};
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    extent[d] = copy.extent[dim];
    read[d] = copy.source_stride[dim];
    write[d] = copy.target_stride[dim];
  }
  for (std::int64_t i = 0; i < extent[0]; ++i)
    for (std::int64_t j = 0; j < extent[1]; ++j)
      for (std::int64_t k = 0; k < extent[2]; ++k)
        for (std::int64_t l = 0; l < extent[3]; ++l) {
          const auto at = [&](const auto& stride) {
            return i * stride[0] + j * stride[1] + k * stride[2] + l * stride[3];
          };
          naive_element(copy,
                        source.data() + copy.source_offset + static_cast<std::uint64_t>(at(read)),
                        target.data() + copy.target_offset + static_cast<std::uint64_t>(at(write)));
        }
}

std::int64_t draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// Strides that give every element bytes of its own, in a random order of dimensions, some with
/// gaps. Returns the bytes that they span.
std::int64_t draw_strides(std::mt19937_64& random, const Dims& extent, std::int64_t element,
                          Dims& stride) {
  std::array<int, rank_max> order{0, 1, 2, 3};
  std::shuffle(order.begin(), order.begin() + extent.rank(), random);
  // Falling order most of the time: that is what layouts have.
  if (random() % 2 == 0) std::sort(order.begin(), order.end(), std::greater<>());
  stride = Dims::filled(extent.rank(), 0);
  std::int64_t reach = element;
  for (const int dim : order) {
    if (dim >= extent.rank()) continue;
    if (random() % 3 == 0) reach += element * draw(random, 0, 3);
    if (random() % 8 == 0) reach += draw(random, 0, 9);
    stride[dim] = reach;
    reach *= extent[dim];
  }
  return reach;
}

Copy draw_copy(std::mt19937_64& random, std::uint64_t& source_bytes, std::uint64_t& target_bytes) {
  Copy copy;
  copy.source_type = static_cast<ElementType>(random() % element_type_count);
  copy.target_type = copy.source_type;
  if (random() % 4 == 0) {
    const bool narrow = random() % 2 == 0;
    copy.source_type = narrow ? ElementType::f32 : ElementType::bf16;
    copy.target_type = narrow ? ElementType::bf16 : ElementType::f32;
  }
  copy.extent = Dims::filled(static_cast<int>(draw(random, 0, rank_max)), 1);
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    const bool last = dim + 1 == copy.extent.rank();
    copy.extent[dim] = draw(random, 1, last && random() % 2 == 0 ? 1500 : 9);
  }
  const auto source_size = static_cast<std::int64_t>(size_of(copy.source_type));
  const auto target_size = static_cast<std::int64_t>(size_of(copy.target_type));
  copy.source_offset = static_cast<std::uint64_t>(draw(random, 0, 200));
  copy.target_offset = static_cast<std::uint64_t>(draw(random, 0, 200));
  const auto source = draw_strides(random, copy.extent, source_size, copy.source_stride);
  const auto target = draw_strides(random, copy.extent, target_size, copy.target_stride);
  source_bytes = copy.source_offset + static_cast<std::uint64_t>(source);
  target_bytes = copy.target_offset + static_cast<std::uint64_t>(target);
  return copy;
}

Bytes draw_bytes(std::mt19937_64& random, std::uint64_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 32);
  return bytes;
}

Copy row_copy(std::int64_t rows, std::int64_t columns) {
  return {.extent = {rows, columns},
          .source_stride = {2 * columns, 2},
          .target_stride = {4 * columns, 2}};
}

}  // namespace

TEST_CASE("a strided copy does what a loop over its elements does", "[runtime]") {
  std::mt19937_64 random(20240607);
  for (int round = 0; round < 1000; ++round) {
    std::uint64_t source_bytes = 0;
    std::uint64_t target_bytes = 0;
    const Copy copy = draw_copy(random, source_bytes, target_bytes);
    const Bytes source = draw_bytes(random, source_bytes);
    Bytes expected(target_bytes, std::byte{0xa5});
    Bytes whole = expected;
    Bytes parts = expected;
    REQUIRE(check_bounds(copy, source_bytes, target_bytes).has_value());
    naive_copy(copy, source, expected);
    copy_strided(copy, source, whole);
    INFO("round " << round);
    REQUIRE(whole == expected);
    for (const Copy& part : split(copy, 1 + random() % 600)) copy_strided(part, source, parts);
    REQUIRE(parts == expected);
  }
}

TEST_CASE("a transpose of whole planes puts each element where it belongs", "[runtime]") {
  const Copy copy{.source_type = ElementType::i32,
                  .target_type = ElementType::i32,
                  .extent = {3, 70, 130},
                  .source_stride = {4 * 70 * 130, 4, 4 * 70},
                  .target_stride = {4 * 70 * 130, 4 * 130, 4}};
  Bytes source(4 * 3 * 70 * 130);
  for (std::uint32_t i = 0; i < source.size() / 4; ++i) std::memcpy(&source[i * 4], &i, 4);
  Bytes target(source.size());
  copy_strided(copy, source, target);
  for (std::uint32_t plane = 0; plane < 3; ++plane)
    for (std::uint32_t row = 0; row < 70; ++row)
      for (std::uint32_t column = 0; column < 130; ++column) {
        std::uint32_t value = 0;
        std::memcpy(&value, &target[((plane * 70 + row) * 130 + column) * 4], 4);
        REQUIRE(value == (plane * 130 + column) * 70 + row);
      }
}

TEST_CASE("parts of a copy are no larger than asked, unless one element is", "[runtime]") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::uint64_t unused = 0;
    const Copy copy = draw_copy(random, unused, unused);
    const std::uint64_t size = size_of(copy.target_type);
    const std::uint64_t limit = 1 + random() % 5000;
    std::uint64_t total = 0;
    for (const Copy& part : split(copy, limit)) {
      const auto bytes = static_cast<std::uint64_t>(element_count(part.extent)) * size;
      REQUIRE(bytes <= std::max(limit, size));
      total += bytes;
    }
    REQUIRE(total == static_cast<std::uint64_t>(element_count(copy.extent)) * size);
  }
}

TEST_CASE("a copy that fits is not cut", "[runtime]") {
  const Copy copy = row_copy(8, 16);
  REQUIRE(split(copy, 256) == std::vector<Copy>{copy});
  REQUIRE(split(copy, std::numeric_limits<std::uint64_t>::max()) == std::vector<Copy>{copy});
  REQUIRE(split(copy, 128).size() == 2);
}

TEST_CASE("streamed runs of every length and alignment are exact", "[runtime]") {
  std::mt19937_64 random(3);
  const Bytes source = draw_bytes(random, 2048);
  for (std::size_t skew = 0; skew < 64; skew += 7) {
    for (std::size_t bytes = 0; bytes < 1200; bytes += 1 + bytes / 8) {
      Bytes target(2048, std::byte{1});
      stream_copy(target.data() + skew, source.data() + 3 * skew, bytes);
      stream_fence();
      Bytes expected(2048, std::byte{1});
      std::memcpy(expected.data() + skew, source.data() + 3 * skew, bytes);
      REQUIRE(target == expected);
    }
  }
}

TEST_CASE("the last byte of a region may be used and the next may not", "[runtime]") {
  const Copy copy = row_copy(4, 8);  // Reads 64 bytes; writes up to 3 * 32 + 16 = 112.
  REQUIRE(check_bounds(copy, 64, 112).has_value());
  const auto read = check_bounds(copy, 63, 112);
  REQUIRE(read.error().code == ErrorCode::invalid);
  REQUIRE(read.error().text ==
          "copy of 4x8 bf16 elements reads up to byte 64 of a source region that has 63; plan and "
          "regions do not belong together");
  const auto write = check_bounds(copy, 64, 111);
  REQUIRE(write.error().code == ErrorCode::invalid);
  REQUIRE(write.error().text.find("writes up to byte 112 of a target region that has 111") !=
          std::string::npos);
}

TEST_CASE("offsets and strides that overflow are refused", "[runtime]") {
  constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  Copy copy = row_copy(4, 8);
  copy.source_offset = huge - 1;
  REQUIRE(check_bounds(copy, huge, huge).error().text.find("more than 2^64") != std::string::npos);
  copy = row_copy(4, 8);
  copy.target_stride[0] = std::numeric_limits<std::int64_t>::max();
  REQUIRE_FALSE(check_bounds(copy, huge, huge).has_value());
  copy = row_copy(4, 8);
  copy.extent = Dims::filled(2, std::int64_t{1} << 40);
  copy.source_stride = copy.target_stride = Dims::filled(2, 1);
  REQUIRE(check_bounds(copy, huge, huge).error().text.find("writes more bytes than its target") !=
          std::string::npos);
}

TEST_CASE("a copy that contradicts itself is refused", "[runtime]") {
  Copy copy = row_copy(4, 8);
  copy.source_stride = Dims{2};
  REQUIRE(check_bounds(copy, 999, 999).error().text.find("another rank") != std::string::npos);
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-2}}) {
    copy = row_copy(4, 8);
    copy.extent[1] = wrong;
    REQUIRE(check_bounds(copy, 999, 999).error().text.find("not positive") != std::string::npos);
    copy = row_copy(4, 8);
    copy.target_stride[1] = wrong;
    REQUIRE_FALSE(check_bounds(copy, 999, 999).has_value());
  }
  copy = row_copy(4, 8);
  copy.target_type = ElementType::f16;
  REQUIRE(check_bounds(copy, 999, 999).error().text.find("can't be converted to f16") !=
          std::string::npos);
  copy.target_type = copy.source_type = static_cast<ElementType>(200);
  REQUIRE(check_bounds(copy, 999, 999).error().text.find("unknown element type") !=
          std::string::npos);
}

TEST_CASE("every bf16 widens exactly and narrows back to itself", "[runtime]") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    const std::uint32_t wide = f32_of_bf16(narrow);
    const bool nan = (bits & 0x7fffU) > 0x7f80U;
    const bool right = wide == bits << 16 && bf16_of_f32(wide) == (nan ? (bits | 0x40U) : bits);
    if (!right) FAIL("bits " << bits);
  }
}

TEST_CASE("f32 rounds to the nearest bf16, ties to even", "[runtime]") {
  const auto check = [](std::uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (bf16_of_f32(bits) != nearest_bf16(value)) FAIL("bits " << bits);
  };
  // Around every tie: all upper halves with the lower halves that decide.
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      check(high << 16 | low);
    }
  }
  std::mt19937_64 random(11);
  for (int i = 0; i < 100000; ++i) check(static_cast<std::uint32_t>(random()));
  REQUIRE(bf16_of_f32(0x3f808000) == 0x3f80);  // Half way between 1 and the next: 1 is even.
  REQUIRE(bf16_of_f32(0x3f818000) == 0x3f82);  // Half way above an odd one: up.
  REQUIRE(bf16_of_f32(0x7f7fffff) == 0x7f80);  // The largest f32 becomes infinity.
  REQUIRE(bf16_of_f32(0x7f800001) == 0x7fc0);  // A signalling NaN becomes quiet, not infinity.
  REQUIRE(bf16_of_f32(0x00000001) == 0x0000);  // The smallest denormal becomes zero,
  REQUIRE(bf16_of_f32(0x80008001) == 0x8001);  // and denormals round like all others.
}

}  // namespace weir
