#include "runtime/strided_copy.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/internal/stream_copy.hpp"
#include "tests/runtime/naive_copy.hpp"

namespace weir {

// Goal: a planned copy moves exactly its elements, converted by the rule, and nothing else; what
// would leave its regions is refused. Method: random copies of every rank, type and order of
// strides against a naive loop over elements.

namespace {

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
  copy.target_type = ElementType::f8_e4m3;
  REQUIRE(check_bounds(copy, 999, 999).error().text.find("can't be converted to f8_e4m3") !=
          std::string::npos);
  copy.target_type = copy.source_type = static_cast<ElementType>(200);
  REQUIRE(check_bounds(copy, 999, 999).error().text.find("unknown element type") !=
          std::string::npos);
}

}  // namespace weir
