#include "transports/rdma/internal/steps.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>

#include "runtime/strided_copy.hpp"
#include "tests/runtime/naive_copy.hpp"

namespace weir::rdma {

// Goal: the READs of a copy's steps, with what is unpacked after them, are the copy, and keep to
// every bound. Method: random copies, with memcpy for the network card, against the loop over
// elements; worked sizes for long and short runs.

namespace {

void read_by_memcpy(const std::vector<Step>& steps, std::uint64_t message_bytes_max,
                    const Bytes& source, Bytes& target) {
  for (const Step& step : steps) {
    Bytes bounce(step.packed ? bounce_bytes : 0);
    Bytes& local = step.packed ? bounce : target;
    std::uint32_t reads = 0;
    std::uint64_t moved = 0;
    for_each_read(runs_of(step), message_bytes_max,
                  [&](std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
                    if (bytes > message_bytes_max) FAIL("a READ longer than a message");
                    if (from + bytes > source.size()) FAIL("reads outside of its source");
                    if (to + bytes > local.size()) FAIL("writes outside of its target");
                    std::memcpy(local.data() + to, source.data() + from, bytes);
                    ++reads;
                    moved += bytes;
                  });
    REQUIRE(reads == step.reads);
    REQUIRE(reads >= 1);
    REQUIRE(reads <= reads_per_step_max);
    REQUIRE(moved == step.bytes);
    REQUIRE(moved <= step_bytes_max);
    if (step.packed) copy_strided(from_bounce(step), bounce, target);
  }
}

Copy rows(std::int64_t count, std::int64_t bytes, std::int64_t source_pitch,
          std::int64_t target_pitch) {
  return {.source_type = ElementType::u8,
          .target_type = ElementType::u8,
          .extent = {count, bytes},
          .source_stride = {source_pitch, 1},
          .target_stride = {target_pitch, 1}};
}

}  // namespace

TEST_CASE("the READs of a random copy do what the copy says", "[transports]") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    const Copy copy = draw_copy(random, reads, writes);
    const Bytes source = draw_bytes(random, reads);
    Bytes expected(writes, std::byte{0xa5});
    Bytes target = expected;
    naive_copy(copy, source, expected);
    const std::uint64_t message_bytes_max = 4096 + random() % 3000;
    read_by_memcpy(cut_to_steps(copy, message_bytes_max), message_bytes_max, source, target);
    INFO("round " << round);
    REQUIRE(target == expected);
  }
}

TEST_CASE("long runs are read straight into the target, at most 32 at once", "[transports]") {
  // 100 rows of 8 KiB: 32 of them are 256 KiB, so that four steps are needed.
  const std::vector<Step> steps = cut_to_steps(rows(100, 8192, 16384, 8200), 1 << 20);
  REQUIRE(steps.size() == 4);
  std::uint32_t reads = 0;
  for (const Step& step : steps) {
    REQUIRE_FALSE(step.packed);
    REQUIRE(step.bytes == std::uint64_t{step.reads} * 8192);
    reads += step.reads;
  }
  REQUIRE(reads == 100);
}

TEST_CASE("a run longer than a step or a message is cut", "[transports]") {
  const std::vector<Step> steps = cut_to_steps(rows(1, 5 << 20, 5 << 20, 5 << 20), 1 << 16);
  REQUIRE(steps.size() == 10);  // 512 KiB each, in 8 messages of 64 KiB.
  for (const Step& step : steps) REQUIRE(step.reads == 8);
}

TEST_CASE("short runs with small gaps are read as one, gaps and all", "[transports]") {
  // 16 rows of 1 KiB, 2 KiB apart: the gaps of 1 KiB are read along, all but the last one.
  const std::vector<Step> steps = cut_to_steps(rows(16, 1024, 2048, 1024), 1 << 20);
  REQUIRE(steps.size() == 1);
  REQUIRE(steps[0].packed);
  REQUIRE(steps[0].reads == 1);
  REQUIRE(steps[0].bytes == 15 * 2048 + 1024);
}

TEST_CASE("short runs with wide gaps are read one by one", "[transports]") {
  const std::vector<Step> steps = cut_to_steps(rows(64, 1024, 8192, 1024), 1 << 20);
  REQUIRE(steps.size() == 2);
  for (const Step& step : steps) {
    REQUIRE(step.packed);
    REQUIRE(step.reads == 32);
    REQUIRE(step.bytes == 32 * 1024);
  }
}

TEST_CASE("what is converted goes through a buffer in READs as long as it holds", "[transports]") {
  // 1 MiB of f32 to bf16: four buffers of 256 KiB, one READ each.
  const Copy copy{.source_type = ElementType::f32,
                  .target_type = ElementType::bf16,
                  .extent = {1 << 18},
                  .source_stride = {4},
                  .target_stride = {2}};
  const std::vector<Step> steps = cut_to_steps(copy, 1 << 20);
  REQUIRE(steps.size() == 4);
  for (const Step& step : steps) {
    REQUIRE(step.packed);
    REQUIRE(step.reads == 1);
    REQUIRE(step.bytes == bounce_bytes);
  }
}

}  // namespace weir::rdma
