#include <catch2/catch_test_macros.hpp>
#include <map>

#include "runtime/internal/byte_overlap.hpp"
#include "tests/runtime/random_model.hpp"

namespace weir::internal {

// Goal: whether strided pieces claim a byte twice is decided exactly, and in bounded time.
// Method: random small lattices against a count of every byte; worked cases of real layouts;
// strides made to be hard.

namespace {

using Counts = std::map<std::int64_t, int>;

void count_bytes(const ByteLattice& lattice, Counts& counts) {
  for (std::int64_t flat = 0; flat < element_count(lattice.extent); ++flat) {
    std::int64_t place = lattice.offset;
    std::int64_t rest = flat;
    for (int dim = 0; dim < lattice.extent.rank(); ++dim) {
      place += rest % lattice.extent[dim] * lattice.stride[dim];
      rest /= lattice.extent[dim];
    }
    for (std::int64_t byte = 0; byte < lattice.size; ++byte) ++counts[place + byte];
  }
}

bool any_twice(const Counts& counts) {
  return std::any_of(counts.begin(), counts.end(), [](const auto& c) { return c.second > 1; });
}

ByteLattice random_lattice(Random& random) {
  const auto rank = static_cast<int>(random.below(5));
  ByteLattice lattice{random.between(0, 40), std::int64_t{1} << random.below(4),
                      Dims::filled(rank, 1), Dims::filled(rank, 1)};
  for (int dim = 0; dim < rank; ++dim) {
    lattice.extent[dim] = random.between(1, 4);
    lattice.stride[dim] =
        random.chance(1, 2) ? random.between(1, 30) : std::int64_t{4} << random.below(5);
  }
  return lattice;
}

}  // namespace

TEST_CASE("two lattices share a byte exactly when counting finds one", "[runtime][planner]") {
  Random random(1);
  int shared = 0;
  int apart = 0;
  for (int i = 0; i < 4000; ++i) {
    CAPTURE(i);
    const ByteLattice a = random_lattice(random);
    const ByteLattice b = random_lattice(random);
    Counts of_a;
    Counts of_b;
    count_bytes(a, of_a);
    count_bytes(b, of_b);
    const bool meets = std::any_of(of_a.begin(), of_a.end(),
                                   [&](const auto& c) { return of_b.contains(c.first); });
    ++(meets ? shared : apart);
    std::uint64_t steps = search_steps_max;
    REQUIRE(share_bytes(a, b, steps) == meets);
    REQUIRE(share_bytes(b, a, steps) == meets);
    REQUIRE(repeats_bytes(a, steps) == any_twice(of_a));
  }
  REQUIRE(shared > 400);
  REQUIRE(apart > 400);
}

TEST_CASE("real layouts take few steps to prove", "[runtime][planner]") {
  // Two halves of the columns of a 4096x4096 matrix of bf16; the same, transposed in memory.
  const ByteLattice left{0, 2, {4096, 2048}, {8192, 2}};
  const ByteLattice right{4096, 2, {4096, 2048}, {8192, 2}};
  const ByteLattice transposed{2, 2, {2048, 4096}, {4, 8192}};
  const ByteLattice other{0, 2, {2048, 4096}, {4, 8192}};
  std::uint64_t steps = 100;
  REQUIRE(share_bytes(left, right, steps) == false);
  REQUIRE(share_bytes(transposed, other, steps) == false);
  REQUIRE(share_bytes(left, other, steps) == true);
  REQUIRE(repeats_bytes(left, steps) == false);
}

TEST_CASE("a search that would not end in time is refused", "[runtime][planner]") {
  Manifest manifest;
  manifest.shard = {Side::rollout, 0, 0};
  manifest.tensors = {{"a", ElementType::u8, {40, 40, 40, 40}, TensorKind::parameter},
                      {"b", ElementType::u8, {40, 40, 40, 40}, TensorKind::parameter}};
  manifest.regions = {{RegionKind::host_private, 1U << 30, {}}};
  // Whether sums of such strides meet has no quick answer.
  const Dims strides{100003, 100019, 100043, 100049};
  manifest.pieces = {{0, 0, 0, Box::whole({40, 40, 40, 40}), strides},
                     {1, 0, 1, Box::whole({40, 40, 40, 40}), {100057, 100069, 100103, 100109}}};
  REQUIRE(check(manifest));
  const auto order = disjoint_order(manifest, 1000);
  REQUIRE_FALSE(order);
  REQUIRE(order.error().code == ErrorCode::refused);
  REQUIRE(order.error().text.starts_with("rollout 0.0: the strides of [0:40, 0:40, 0:40, 0:40]"));
}

TEST_CASE("pieces come by region and offset", "[runtime][planner]") {
  Manifest manifest;
  manifest.tensors = {{"a", ElementType::u8, {4}, TensorKind::parameter}};
  manifest.regions.resize(2, {RegionKind::host_private, 100, {}});
  manifest.pieces = {
      {0, 1, 0, {{0}, {1}}, {1}}, {0, 0, 50, {{1}, {1}}, {1}}, {0, 0, 7, {{2}, {2}}, {1}}};
  REQUIRE(disjoint_order(manifest) == std::vector<std::uint32_t>{2, 1, 0});
}

}  // namespace weir::internal
