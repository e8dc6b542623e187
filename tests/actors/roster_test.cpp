// Goal: what members say of themselves is checked, terms and wholeness follow from seats, and a
// reader is sent to those who hold what it needs.
// Method: rosters and leases written by hand, and the routes that follow from the rule.

#include "actors/roster.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/actors/rosters.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {
namespace {

Manifest manifest_of(const ShardId& shard, std::uint32_t slots) {
  Manifest manifest;
  manifest.shard = shard;
  manifest.slots = slots;
  return manifest;
}

Error invalid(const std::string& text) {
  return {ErrorCode::invalid, text};
}

TEST_CASE("what a trainer says of its slots must be possible") {
  const Manifest manifest = manifest_of({Side::trainer, 0, 1}, 2);
  MemberStatus status;
  CHECK(check(status, manifest));
  status.slots = {{SlotState::whole, 3}, {SlotState::writing, 4}};
  CHECK(check(status, manifest));
  status.slots.push_back({});
  CHECK(check(status, manifest).error() == invalid("trainer 0.1 reports on 3 slots, but has 2"));
  status.slots = {{SlotState::empty, 3}};
  const Error both = invalid("trainer 0.1 reports a slot with and without a version");
  CHECK(check(status, manifest).error() == both);
  status.slots = {{SlotState::whole, 0}};
  CHECK(check(status, manifest).error() == both);
  status.slots = {{static_cast<SlotState>(3), 3}};
  CHECK(check(status, manifest).error() == invalid("trainer 0.1 reports a slot in no known state"));
  status.slots.clear();
  status.seat = ~std::uint64_t{0};
  CHECK(check(status, manifest).error() ==
        invalid("trainer 0.1 reports a seat that no exchange can have given"));
}

TEST_CASE("what a rollout says of its weights must be possible") {
  Manifest manifest = manifest_of({Side::rollout, 0, 0}, 1);
  MemberStatus status;
  status.placement = Placement::staging;
  status.installed = 2;
  status.running = true;
  CHECK(check(status, manifest));
  status.installed = 0;
  CHECK(check(status, manifest).error() == invalid("rollout 0.0 runs without a version"));
  status.running = false;
  status.installed_slot = 1;
  CHECK(check(status, manifest).error() ==
        invalid("rollout 0.0 serves from a slot that it does not have"));
  status.placement = Placement::second_buffer;
  CHECK(check(status, manifest).error() ==
        invalid("rollout 0.0 has 1 slots, but its placement needs 2"));
  manifest.slots = 2;
  CHECK(check(status, manifest));
  status.placement = static_cast<Placement>(3);
  CHECK(check(status, manifest).error() == invalid("rollout 0.0 reports no known placement"));
}

TEST_CASE("a replica is whole with all its shards, and its term is its newest seat") {
  SmallRoster roster(1, 1, 2, 2);
  roster.rollout(0, 0, Placement::in_place).rollout(1, 0, Placement::in_place);
  roster.rollout(0, 1, Placement::in_place);
  CHECK((*roster).whole({Side::rollout, 0}));
  CHECK((*roster).term({Side::rollout, 0}) == 3);
  CHECK_FALSE((*roster).whole({Side::rollout, 1}));
  CHECK((*roster).term({Side::rollout, 1}) == 2);
  CHECK((*roster).term({Side::trainer, 0}) == 0);
  CHECK((*roster).find({Side::trainer, 0, 0}) == nullptr);
  CHECK((*roster).find({Side::rollout, 0, 1})->seat == 3);
}

TEST_CASE("each source is read where it holds the version, else where one like it does") {
  SmallRoster small(3, 2, 3, 1);
  small->patterns[{Side::trainer, 2}] = 1;
  small->patterns[{Side::rollout, 2}] = 1;
  const ShardId target{Side::rollout, 0, 0};
  // Sources are numbered 0.0, 0.1, 1.0, 1.1, 2.0, 2.1.
  Lease lease{1, 5, {{Side::trainer, 0, 1}, {Side::trainer, 1, 0}, {Side::trainer, 2, 3}}};
  const auto by_source = [&] { return routes_for(*small, lease, target)->by_source; };
  CHECK(by_source() == std::vector<Route>{{0, 1}, {1, 1}, {2, 0}, {3, 0}, {4, 3}, {5, 3}});
  lease.holders = {{Side::trainer, 1, 0}, {Side::trainer, 2, 3}};
  CHECK(by_source() == std::vector<Route>{{2, 0}, {3, 0}, {2, 0}, {3, 0}, {4, 3}, {5, 3}});
  // Nobody is like trainer replica 2.
  lease.holders = {{Side::trainer, 0, 1}};
  CHECK(routes_for(*small, lease, target).error() ==
        Error{ErrorCode::unavailable, "nobody holds the part of trainer 2.0 of version 5"});
  // A rollout replica of our own shape stands in for whatever is missing.
  lease.holders = {{Side::trainer, 0, 1}, {Side::rollout, 1, 1}};
  CHECK(by_source() ==
        std::vector<Route>{{0, 1}, {1, 1}, {0, 1}, {1, 1}, {0, 1, true}, {0, 1, true}});
  CHECK(routes_for(*small, lease, target)->peer == ShardId{Side::rollout, 1, 0});
  // We don't stand in for ourselves, nor does one of another shape.
  lease.holders = {{Side::rollout, 0, 0}, {Side::rollout, 2, 0}};
  CHECK(routes_for(*small, lease, target).error() ==
        Error{ErrorCode::unavailable, "nobody holds the part of trainer 0.0 of version 5"});
}

}  // namespace
}  // namespace weir
