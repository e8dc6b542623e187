#include "runtime/plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <utility>
#include <vector>

namespace weir {

// Goal: the digest by which both sides compare plans sees all that matters, and only that.
// Method: a small plan by hand, changed in one place at a time.

namespace {

Plan small_plan() {
  Copy copy;
  copy.source_type = ElementType::f32;
  copy.target_type = ElementType::bf16;
  copy.source_offset = 8;
  copy.target_offset = 16;
  copy.extent = {3, 5};
  copy.source_stride = {40, 4};
  copy.target_stride = {100, 2};
  Plan plan;
  plan.sources = {{{Side::trainer, 0, 0}, {{RegionKind::host_shared, 200, {{"shm", "ticket"}}}}}};
  plan.parts = {{{Side::rollout, 0, 0}, {copy}}};
  plan.unused = {"bias"};
  return plan;
}

/// That change to the plan's first copy.
std::function<void(Plan&)> of_copy(const std::function<void(Copy&)>& change) {
  return [change](Plan& plan) {
    CopyList& planned = plan.parts[0].copies;
    std::vector<Copy> copies(planned.begin(), planned.end());
    change(copies[0]);
    planned = std::move(copies);
  };
}

}  // namespace

TEST_CASE("a copy's bytes are counted on each side by that side's type", "[runtime][plan]") {
  const Copy copy = small_plan().parts[0].copies[0];
  REQUIRE(source_bytes(copy) == 60);
  REQUIRE(target_bytes(copy) == 30);
  REQUIRE(target_bytes(Copy{}) == 2);  // One bf16 element.
}

TEST_CASE("a plan's digest sees every field but tickets", "[runtime][plan]") {
  const Digest digest = digest_of(small_plan());
  const std::function<void(Plan&)> changes[] = {
      [](Plan& p) { p.sources[0].shard.replica = 1; },
      [](Plan& p) { p.sources[0].shard.rank = 1; },
      [](Plan& p) { p.sources[0].regions[0].bytes = 201; },
      [](Plan& p) { p.sources[0].regions[0].kind = RegionKind::host_private; },
      [](Plan& p) { p.sources[0].regions.clear(); },
      [](Plan& p) { p.sources[0].slots = 2; },
      [](Plan& p) { p.parts[0].target.side = Side::trainer; },
      [](Plan& p) { p.parts[0].target.rank = 1; },
      of_copy([](Copy& c) { c.source = 1; }),
      of_copy([](Copy& c) { c.source_region = 1; }),
      of_copy([](Copy& c) { c.target_region = 1; }),
      of_copy([](Copy& c) { c.source_type = ElementType::bf16; }),
      of_copy([](Copy& c) { c.target_type = ElementType::f32; }),
      of_copy([](Copy& c) { c.source_offset = 9; }),
      of_copy([](Copy& c) { c.target_offset = 17; }),
      of_copy([](Copy& c) { c.extent[1] = 4; }),
      of_copy([](Copy& c) { c.source_stride[0] = 44; }),
      of_copy([](Copy& c) { c.target_stride[1] = 4; }),
      [](Plan& p) { p.parts[0].copies = {}; },
      [](Plan& p) {
        p.unused = {"bia", "s"};
      },
  };
  for (const auto& change : changes) {
    Plan plan = small_plan();
    change(plan);
    REQUIRE(digest_of(plan) != digest);
  }
  Plan plan = small_plan();
  plan.sources[0].regions[0].tickets = {{"shm", "another run's ticket"}};
  plan.digest = {1, 2};
  REQUIRE(digest_of(plan) == digest);
}

TEST_CASE("a plan is the same whether its parts share copies or hold equal ones",
          "[runtime][plan]") {
  Plan shared = small_plan();
  shared.parts.push_back({{Side::rollout, 1, 0}, shared.parts[0].copies});
  Plan apart = small_plan();
  apart.parts.push_back({{Side::rollout, 1, 0}, small_plan().parts[0].copies});
  REQUIRE(shared.parts[0].copies.data() == shared.parts[1].copies.data());
  REQUIRE(apart.parts[0].copies.data() != apart.parts[1].copies.data());
  REQUIRE(shared == apart);
  REQUIRE(digest_of(shared) == digest_of(apart));
}

}  // namespace weir
