#include "actors/fetch_state.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/element_type.hpp"
#include "runtime/random.hpp"
#include "tests/actors/parts.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {

// Goal: whatever the part, the window and the faults, every byte of a part comes exactly once under
// one claim, from where the plan says, and never more is in flight than the window.
// Method: random parts, expanded to elements by plain loops and held against their chunks; random
// orders of starts, ends and repeated words; each refusal by one change to a good order.

namespace {

using namespace parts;

Copy random_copy(Random& random, std::uint64_t& target_end) {
  static constexpr ElementType types[] = {ElementType::u8, ElementType::bf16, ElementType::f32,
                                          ElementType::i64};
  Copy copy;
  copy.source = static_cast<std::uint32_t>(random.below(source_count - 1));  // The last one idles.
  copy.source_region = static_cast<std::uint32_t>(random.below(2));
  copy.target_region = static_cast<std::uint32_t>(random.below(2));
  copy.source_type = copy.target_type = types[random.below(4)];
  if (copy.source_type == ElementType::f32) copy.target_type = types[1 + random.below(2)];
  const int rank = static_cast<int>(random.below(rank_max + 1));
  std::vector<std::int64_t> extent;
  for (int dim = 0; dim < rank; ++dim) {
    extent.push_back(2 + static_cast<std::int64_t>(random.below(9)));
  }
  copy.extent = Dims(extent);
  const auto gap = [&random] { return static_cast<std::int64_t>(random.below(2)); };
  copy.target_stride = copy.source_stride = copy.extent;
  auto target = static_cast<std::int64_t>(size_of(copy.target_type));
  auto source = static_cast<std::int64_t>(size_of(copy.source_type));
  for (int dim = rank - 1; dim >= 0; --dim) {
    target += gap() * target;
    source += gap() * source;
    copy.target_stride[dim] = target;
    copy.source_stride[dim] = source;
    target *= copy.extent[dim];
    source *= copy.extent[dim];
  }
  copy.target_offset = target_end;
  copy.source_offset = random.below(1000);
  target_end += static_cast<std::uint64_t>(target);
  return copy;
}

PlanPart random_part(Random& random) {
  const ShardId target{Side::rollout, static_cast<std::uint32_t>(random.below(3)),
                       static_cast<std::uint32_t>(random.below(3))};
  std::vector<Copy> copies;
  std::uint64_t target_end = 0;
  for (std::size_t i = random.below(30); i > 0; --i) {
    copies.push_back(random_copy(random, target_end));
  }
  return {target, std::move(copies)};
}

/// Target region and byte, type of both sides, source, its region and its byte.
using Element = std::tuple<std::uint32_t, std::uint64_t, ElementType, ElementType, std::uint32_t,
                           std::uint32_t, std::uint64_t>;

void expand(const Copy& copy, std::multiset<Element>& elements) {
  std::int64_t extent[rank_max] = {1, 1, 1, 1};
  for (int dim = 0; dim < copy.extent.rank(); ++dim) extent[dim] = copy.extent[dim];
  for (std::int64_t i = 0; i < extent[0]; ++i)
    for (std::int64_t j = 0; j < extent[1]; ++j)
      for (std::int64_t k = 0; k < extent[2]; ++k)
        for (std::int64_t l = 0; l < extent[3]; ++l) {
          const auto at = [&](const Dims& stride) {
            return static_cast<std::uint64_t>(i * stride[0] + j * stride[1] + k * stride[2] +
                                              l * stride[3]);
          };
          elements.emplace(copy.target_region, copy.target_offset + at(copy.target_stride),
                           copy.source_type, copy.target_type, copy.source, copy.source_region,
                           copy.source_offset + at(copy.source_stride));
        }
}

std::multiset<Element> expanded(std::span<const Copy> copies) {
  std::multiset<Element> elements;
  for (const Copy& copy : copies) expand(copy, elements);
  return elements;
}

std::uint64_t bytes_of(std::span<const Copy> copies) {
  std::uint64_t bytes = 0;
  for (const Copy& copy : copies) bytes += target_bytes(copy);
  return bytes;
}

std::vector<std::uint32_t> sources_of(const std::vector<Chunk>& chunks) {
  std::vector<std::uint32_t> sources;
  for (const Chunk& chunk : chunks) sources.push_back(chunk.source);
  return sources;
}

}  // namespace

TEST_CASE("chunks do exactly what their part does", "[actors][fetch_state]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const PlanPart part = random_part(random);
    const std::uint64_t bytes_max = random.below(2) == 0 ? random.below(20) : random.below(3000);
    CAPTURE(bytes_max);
    std::vector<Copy> copies;
    for (const Chunk& chunk : chunks_of(part, sources(source_count), bytes_max)) {
      REQUIRE(chunk.bytes == bytes_of(chunk.copies));
      REQUIRE((chunk.bytes <= bytes_max ||
               (chunk.copies.size() == 1 && element_count(chunk.copies[0].extent) == 1)));
      for (const Copy& copy : chunk.copies) {
        REQUIRE(copy.source == chunk.source);
        copies.push_back(copy);
      }
    }
    REQUIRE(expanded(copies) == expanded(part.copies));
  }
}

TEST_CASE("small copies from one source share a chunk", "[actors][fetch_state]") {
  PlanPart part = part_of({10});
  part.copies = std::vector<Copy>(7, part.copies[0]);
  const auto chunks = chunks_of(part, sources(1), 35);
  REQUIRE(chunks.size() == 3);
  REQUIRE(chunks[0].copies.size() == 3);
  REQUIRE(chunks[0].bytes == 30);
  REQUIRE(chunks[2].bytes == 10);
}

TEST_CASE("chunks take turns among sources, so that all end together", "[actors][fetch_state]") {
  using Sources = std::vector<std::uint32_t>;
  REQUIRE(sources_of(chunks_of(part_of({30, 30, 30}), sources(3), 10)) ==
          Sources{0, 1, 2, 0, 1, 2, 0, 1, 2});
  // Middles of the chunks at 1/8, 3/8, 5/8 and 7/8 of source 0's way, at 1/4 and 3/4 of source 1's.
  REQUIRE(sources_of(chunks_of(part_of({40, 20}), sources(2), 10)) == Sources{0, 1, 0, 0, 1, 0});
}

TEST_CASE("each target begins with another source", "[actors][fetch_state]") {
  using Sources = std::vector<std::uint32_t>;
  REQUIRE(sources_of(chunks_of(part_of({10, 10, 10}, 1), sources(3), 10)) == Sources{1, 2, 0});
  REQUIRE(sources_of(chunks_of(part_of({10, 10, 10}, 5), sources(3), 10)) == Sources{2, 0, 1});
}

TEST_CASE("a part without copies is whole at once", "[actors][fetch_state]") {
  FetchState state(chunks_of({{}, {}}, sources(0), 10), 20);
  state.begin(claim, {});
  REQUIRE(state.whole());
  REQUIRE_FALSE(state.start_next(1));
}

TEST_CASE("whatever fails and however often, each byte counts once and the window holds",
          "[actors][fetch_state]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const PlanPart part = random_part(random);
    const std::uint64_t window = 1 + random.below(random.below(2) == 0 ? 100 : 5000);
    FetchState state(chunks_of(part, sources(source_count), chunk_bytes_max(window)), window);
    const std::vector<Chunk>& chunks = state.chunks();
    std::vector<int> moved(chunks.size());
    std::vector<std::uint64_t> ended;
    std::uint64_t next = 1;
    state.begin(claim, routes());
    while (!state.whole()) {
      if (state.in_flight().empty() && random.below(4) == 0) state.begin(claim, routes());
      if (random.below(2) == 0) {
        const auto chunk = state.start_next(next);
        if (chunk) REQUIRE(state.in_flight().at(next) == *chunk);
        ++next;
        std::uint64_t bytes = 0;
        for (const auto& [start, number] : state.in_flight()) bytes += chunks[number].bytes;
        REQUIRE(bytes == state.bytes_in_flight());
        REQUIRE((bytes <= window || state.in_flight().size() == 1));
      } else if (!state.in_flight().empty()) {
        auto flight = state.in_flight().begin();
        std::advance(flight, static_cast<std::ptrdiff_t>(random.below(state.in_flight().size())));
        const auto [start, number] = *flight;
        const bool good = random.below(3) != 0;
        REQUIRE(state.end(start, good) == number);
        moved[number] += good ? 1 : 0;
        ended.push_back(start);
      }
      if (!ended.empty() && random.below(3) == 0) {
        REQUIRE_FALSE(state.end(ended[random.below(ended.size())], true));
      }
    }
    REQUIRE(std::all_of(moved.begin(), moved.end(), [](int times) { return times == 1; }));
    REQUIRE(state.bytes_done() == bytes_of(part.copies));
    REQUIRE(state.chunks_done() == chunks.size());
  }
}

TEST_CASE("two chunks are in flight where the window is never too small", "[actors][fetch_state]") {
  FetchState state(chunks_of(part_of({100}), sources(1), chunk_bytes_max(20)), 20);
  state.begin(claim, routes());
  REQUIRE(state.start_next(1));
  REQUIRE(state.start_next(2));
  REQUIRE_FALSE(state.start_next(3));
  state.end(2, true);
  REQUIRE(state.start_next(4));
  REQUIRE_FALSE(state.start_next(5));
}

TEST_CASE("an element that is larger than the window flies alone", "[actors][fetch_state]") {
  PlanPart part = part_of({3});
  Copy copy = part.copies[0];
  copy.source_type = copy.target_type = ElementType::i64;
  copy.source_stride = copy.target_stride = {8};
  part.copies = {copy};
  FetchState state(chunks_of(part, sources(1), chunk_bytes_max(5)), 5);
  REQUIRE(state.chunks().size() == 3);
  state.begin(claim, routes());
  REQUIRE(state.start_next(1));
  REQUIRE_FALSE(state.start_next(2));
  state.end(1, true);
  REQUIRE(state.start_next(3));
}

TEST_CASE("what is there counts under the very same claim only", "[actors][fetch_state]") {
  const std::function<void(FetchClaim&)> changes[] = {
      [](FetchClaim& c) { ++c.seat; },
      [](FetchClaim& c) { ++c.lease; },
      [](FetchClaim& c) { ++c.version; },
      [](FetchClaim& c) { ++c.target_slot; },
  };
  for (const auto& change : changes) {
    FetchState state(chunks_of(part_of({30}), sources(1), 10), 20);
    state.begin(claim, routes());
    state.start_next(1);
    state.start_next(2);
    state.end(1, true);
    state.end(2, false);
    state.begin(claim, routes());
    REQUIRE(state.bytes_done() == 10);
    REQUIRE(state.start_next(3) == 1);
    state.end(3, true);
    FetchClaim other = claim;
    change(other);
    state.begin(other, routes());
    REQUIRE(state.bytes_done() == 0);
    REQUIRE(state.chunks_done() == 0);
    REQUIRE(state.start_next(4) == 0);
    REQUIRE_FALSE(state.end(1, true));
  }
}

namespace {

/// Two trainer replicas of two ranks, of which replica 0 is planned; two slots each of 40 bytes and
/// 8 bytes. The target has three slots of 80 and 16 bytes.
Plan good_plan() {
  Plan plan;
  const std::vector<RegionInfo> slot = {{RegionKind::host_shared, 40, {}},
                                        {RegionKind::host_private, 8, {}}};
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::vector<RegionInfo> regions = slot;
    regions.insert(regions.end(), slot.begin(), slot.end());
    plan.sources.push_back({{Side::trainer, i / 2, i % 2}, regions, 2});
  }
  plan.parts = {part_of({40, 40})};
  return plan;
}

TargetShape good_shape() {
  return {3, {80, 16}};
}

FetchRoutes good_routes() {
  FetchRoutes routes;
  routes.target_slot = 2;
  routes.by_source = {{2, 1, false}, {0, 2, true}, {2, 0, false}, {3, 0, false}};
  routes.peer_slots = 3;
  routes.peer = {Side::rollout, 1, 0};
  for (int i = 0; i < 3; ++i) {
    routes.peer_regions.push_back({RegionKind::host_shared, 80, {}});
    routes.peer_regions.push_back({RegionKind::host_shared, 16, {}});
  }
  return routes;
}

bool refuses(const Result<void>& result, const std::string& part) {
  REQUIRE_FALSE(result);
  CAPTURE(result.error().text, part);
  return result.error().code == ErrorCode::invalid &&
         result.error().text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a part that reaches outside slot 0 of its regions is refused", "[actors][fetch_state]") {
  const auto changed = [](const std::function<void(Plan&)>& change) {
    Plan plan = good_plan();
    change(plan);
    return check_part(plan, good_shape());
  };
  REQUIRE(changed([](Plan&) {}));
  REQUIRE(refuses(changed([](Plan& p) { p.parts.clear(); }), "a plan of 0 parts"));
  REQUIRE(refuses(changed([](Plan& p) { p.parts.resize(2); }), "a plan of 2 parts"));
  const auto copy = [&changed](const std::function<void(Copy&)>& change) {
    return changed([&change](Plan& p) {
      const CopyList& good = p.parts[0].copies;
      std::vector<Copy> copies(good.begin(), good.end());
      change(copies[1]);
      p.parts[0].copies = std::move(copies);
    });
  };
  REQUIRE(refuses(copy([](Copy& c) { c.source = 4; }), "source 4 of 4"));
  REQUIRE(refuses(copy([](Copy& c) { c.source_region = 2; }), "region that is not there"));
  REQUIRE(refuses(copy([](Copy& c) { c.target_region = 2; }), "region that is not there"));
  REQUIRE_FALSE(copy([](Copy& c) { c.source_offset = 1; }));
  REQUIRE_FALSE(copy([](Copy& c) { c.target_offset = 41; }));
  REQUIRE(refuses(changed([](Plan& p) { p.sources[3].slots = 0; }), "do not make up its slots"));
  REQUIRE(refuses(changed([](Plan& p) { p.sources[3].slots = 3; }), "do not make up its slots"));
  REQUIRE(refuses(changed([](Plan& p) { p.sources[3].regions[2].bytes = 39; }),
                  "do not make up its slots"));
}

TEST_CASE("a route to what is not there is refused", "[actors][fetch_state]") {
  const auto changed = [](const std::function<void(FetchRoutes&)>& change) {
    FetchRoutes routes = good_routes();
    change(routes);
    return check(routes, good_plan().sources, good_shape());
  };
  REQUIRE(changed([](FetchRoutes&) {}));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.by_source.pop_back(); }), "3 routes for 4"));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.by_source.resize(5); }), "5 routes for 4"));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.target_slot = 3; }), "target slot 3 of 3"));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.by_source[0].source = 4; }), "source 4 of 4"));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.by_source[0].slot = 2; }),
                  "slot 2 of trainer 1.0, which has 2"));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.by_source[1].slot = 3; }),
                  "slot 3 of rollout 1.0, which has 3"));
  const std::string slots = "do not make up its slots";
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.peer_regions.pop_back(); }), slots));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.peer_regions[4].bytes = 81; }), slots));
  REQUIRE(refuses(changed([](FetchRoutes& r) { r.peer_slots = 6; }), slots));
  const std::string others = "has other regions than we";
  REQUIRE(refuses(changed([](FetchRoutes& r) {
                    for (RegionInfo& region : r.peer_regions) region.bytes = 80;
                  }),
                  others));
  REQUIRE(refuses(changed([](FetchRoutes& r) {
                    r.peer_slots = 1;
                    r.by_source[1].slot = 0;
                    for (RegionInfo& region : r.peer_regions) region.bytes = 80;
                  }),
                  others));
  // What nobody reads may be anything.
  REQUIRE(changed([](FetchRoutes& r) {
    r.by_source[1] = {3, 1, false};
    r.peer_regions.clear();
  }));
}

TEST_CASE("a source with other regions can't stand in", "[actors][fetch_state]") {
  FetchRoutes routes = good_routes();
  std::vector<PlanSource> sources = good_plan().sources;
  sources[2].regions[1].bytes = sources[2].regions[3].bytes = 9;
  REQUIRE(refuses(check(routes, sources, good_shape()),
                  "trainer 1.0 has other regions than trainer 0.0"));
  sources = good_plan().sources;
  sources[2].slots = 1;
  REQUIRE(refuses(check(routes, sources, good_shape()), "slot 1 of trainer 1.0, which has 1"));
  routes.by_source[0].slot = 0;
  REQUIRE(refuses(check(routes, sources, good_shape()), "has other regions"));
}

TEST_CASE("a peer is read where we write, a trainer where the plan says", "[actors][fetch_state]") {
  Copy copy;
  copy.source = 3;
  copy.source_region = 1;
  copy.target_region = 2;
  copy.source_type = ElementType::f32;
  copy.target_type = ElementType::bf16;
  copy.source_offset = 12;
  copy.target_offset = 34;
  copy.extent = {2, 3};
  copy.source_stride = {12, 4};
  copy.target_stride = {2, 4};
  const Chunk chunk{3, 12, 0, {copy}};
  Copy expected = copy;
  expected.source = 0;
  REQUIRE(copies_along(chunk, false) == std::vector<Copy>{expected});
  expected.source_region = 2;
  expected.source_type = ElementType::bf16;
  expected.source_offset = 34;
  expected.source_stride = {2, 4};
  REQUIRE(copies_along(chunk, true) == std::vector<Copy>{expected});
}

TEST_CASE("a route leads to the source that it names, or to the peer", "[actors][fetch_state]") {
  const FetchRoutes routes = good_routes();
  const std::vector<PlanSource> sources = good_plan().sources;
  REQUIRE(read_by(routes.by_source[0], routes, sources) == sources[2]);
  REQUIRE(read_by(routes.by_source[1], routes, sources) ==
          PlanSource{routes.peer, routes.peer_regions, 3});
}

}  // namespace weir
