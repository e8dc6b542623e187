// Goal: of a version that is being written, a fetch reads what stands and nothing else, and is
// whole when the version is. Method: chunks and orders by hand.

#include <catch2/catch_test_macros.hpp>

#include "actors/fetch_state.hpp"
#include "tests/actors/parts.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {
namespace {

using namespace parts;

TEST_CASE("a source's chunks follow its memory, and say how far they reach",
          "[actors][fetch_state]") {
  Copy last;  // Rows of 2 of 8 bytes each, from byte 20 of the second region on: up to byte 38.
  last.source_region = 1;
  last.source_offset = 20;
  last.source_type = last.target_type = ElementType::u8;
  last.extent = {3, 2};
  last.source_stride = {8, 1};
  last.target_stride = {2, 1};
  Copy first = last;  // Up to byte 28 of the first region.
  first.source_region = 0;
  first.source_offset = 10;
  first.target_offset = 6;
  const auto chunks = chunks_of({{}, {last, first}}, sources(1), 6);
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].reach == 28);
  CHECK(chunks[0].copies[0].target_offset == 6);
  CHECK(chunks[1].reach == 1'000'000 + 38);
}

TEST_CASE("what does not stand yet is not started, holds no credit, and holds nothing else up",
          "[actors][fetch_state]") {
  FetchState state(chunks_of(part_of({30, 30}), sources(2), 10), 40);
  // By turns: chunk 0 is of source 0, chunk 1 of source 1, and so on.
  state.begin(claim, routes({0, 19}));
  REQUIRE(state.start_next(1) == 1);
  REQUIRE_FALSE(state.start_next(2));
  CHECK(state.bytes_in_flight() == 10);
  state.stand({10, 20, 0, 0, 0});
  REQUIRE(state.start_next(3) == 0);
  REQUIRE(state.start_next(4) == 3);
  REQUIRE_FALSE(state.start_next(5));
  state.stand({everything, 0, 0, 0, 0});
  REQUIRE(state.start_next(6) == 2);
  REQUIRE_FALSE(state.start_next(7));  // The window is full.
  for (const std::uint64_t start : {1U, 3U, 4U, 6U}) state.end(start, true);
  REQUIRE(state.start_next(8) == 4);
  REQUIRE_FALSE(state.start_next(9));
  CHECK(state.waits_for() == 1U);
}

TEST_CASE("a fetch is whole when its sources are, even if it has all bytes that it needs",
          "[actors][fetch_state]") {
  FetchState state(chunks_of(part_of({10}), sources(1), 10), 20);
  state.begin(claim, routes({10, everything, 500}));
  REQUIRE(state.start_next(1) == 0);
  state.end(1, true);
  CHECK_FALSE(state.whole());
  CHECK(state.waits_for() == 0U);
  state.stand({everything, 0, 0, 0, 0});
  CHECK(state.waits_for() == 2U);
  state.stand({0, 0, everything, 0, 0});
  CHECK(state.whole());
}

TEST_CASE("what counts is how much stands of whoever is read", "[actors][fetch_state]") {
  FetchState state(chunks_of(part_of({10, 10}), sources(2), 10), 20);
  FetchRoutes other = routes({0, 0, 10});
  other.by_source[0].source = 2;
  other.by_source[1].peer = true;
  state.begin(claim, other);
  REQUIRE(state.start_next(1) == 0);
  REQUIRE(state.start_next(2) == 1);
}

}  // namespace
}  // namespace weir
