#include "transports/internal/runs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>

#include "runtime/strided_copy.hpp"
#include "tests/runtime/naive_copy.hpp"

namespace weir {

// Goal: a copy by way of runs, direct or through a small buffer, is the same copy. Method: random
// copies against the loop over elements.

TEST_CASE("a copy through packed runs is the same copy, within the buffer", "[transports]") {
  std::mt19937_64 random(77);
  for (int round = 0; round < 200; ++round) {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    const Copy copy = draw_copy(random, reads, writes);
    const Bytes source = draw_bytes(random, reads);
    Bytes expected(writes, std::byte{0xa5});
    Bytes target = expected;
    naive_copy(copy, source, expected);
    const std::uint64_t buffer_bytes = 8 + random() % 3000;
    const std::uint64_t gap_bytes_max = random() % 3 == 0 ? 0 : random() % 600;
    for (const Copy& part : cut_to_fit(copy, gap_bytes_max, buffer_bytes)) {
      const PackedCopy packed = pack(part, gap_bytes_max);
      REQUIRE(packed.runs.bytes() <= buffer_bytes);
      Bytes buffer(packed.runs.bytes());
      for_each_run(packed.runs, [&](std::uint64_t from, std::uint64_t to) {
        if (from + packed.runs.run_bytes > source.size()) FAIL("reads outside of its source");
        std::memcpy(buffer.data() + to, source.data() + from, packed.runs.run_bytes);
      });
      copy_strided(packed.from_packed, buffer, target);
    }
    INFO("round " << round);
    REQUIRE(target == expected);
  }
}

TEST_CASE("direct runs are the same copy, where types agree", "[transports]") {
  std::mt19937_64 random(78);
  for (int round = 0; round < 200; ++round) {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    const Copy copy = draw_copy(random, reads, writes);
    const std::optional<Runs> runs = direct_runs(copy);
    REQUIRE(runs.has_value() == (copy.source_type == copy.target_type));
    if (!runs) continue;
    const Bytes source = draw_bytes(random, reads);
    Bytes expected(writes, std::byte{0xa5});
    Bytes target = expected;
    naive_copy(copy, source, expected);
    for_each_run(*runs, [&](std::uint64_t from, std::uint64_t to) {
      std::memcpy(target.data() + to, source.data() + from, runs->run_bytes);
    });
    REQUIRE(target == expected);
  }
}

TEST_CASE("runs are as long as the gaps allow", "[transports]") {
  // 4 rows of 8 bytes at a pitch of 20: gaps of 12.
  const Copy copy{.extent = {4, 4}, .source_stride = {20, 2}, .target_stride = {8, 2}};
  REQUIRE(pack(copy, 11).runs.run_bytes == 8);
  REQUIRE(pack(copy, 11).runs.bytes() == 32);
  REQUIRE(pack(copy, 12).runs.run_bytes == 68);
  REQUIRE(pack(copy, 12).runs.rank == 0);
  REQUIRE(direct_runs(copy)->run_bytes == 8);
  REQUIRE(cut_to_fit(copy, 12, 68).size() == 1);
  REQUIRE(cut_to_fit(copy, 12, 67).size() == 2);
}

}  // namespace weir
