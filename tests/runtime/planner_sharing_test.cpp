#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/planner.hpp"
#include "tests/runtime/planner_shards.hpp"

// Goal: what equal replicas share, and that their sources end level all the same.
// Method: small manifests by hand that count as large. That every byte arrives is shown by
// planner_oracle_test.cpp.

namespace weir {

using namespace testing;

TEST_CASE("equal rollout replicas share copies, and trainer replicas serve them in turn",
          "[runtime][planner]") {
  // Each trainer replica: half of "cut" on either rank, and all of "both" on both.
  std::vector<Shard> shards;
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      shards.push_back(trainer(replica, rank, 2).add("cut", {8}, {{4 * rank}, {4}}));
      shards.back().add("both", {4});
    }
  }
  for (std::uint32_t replica = 0; replica < 4; ++replica) {
    shards.push_back(rollout(replica).add("cut", {8}).add("both", {4}));
  }
  const Plan plan = *make_plan(members(shards), 0);
  REQUIRE(plan.parts.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    std::uint64_t bytes = 0;
    for (const Copy& copy : plan.parts[i].copies) {
      REQUIRE(plan.sources[copy.source].shard.replica == i % 2);
      bytes += target_bytes(copy);
    }
    REQUIRE(bytes == 24);
    REQUIRE(plan.parts[i].copies.data() == plan.parts[i % 2].copies.data());
  }
  // Of each trainer replica's 48 bytes, 16 are forced on either rank.
  const auto served = served_bytes(plan);
  REQUIRE(served[0] + served[1] == 48);
  REQUIRE(served[2] == served[0]);
  REQUIRE(std::min(served[0], served[1]) == 16);
}

TEST_CASE("where trainer replicas can't take turns, each still serves", "[runtime][planner]") {
  std::vector<Shard> shards = {trainer(0), trainer(1)};
  for (std::uint32_t replica = 0; replica < 3; ++replica) shards.push_back(rollout(replica));
  for (Shard& shard : shards) {
    for (int tensor = 0; tensor < 60; ++tensor) shard.add("t" + std::to_string(tensor), {50});
  }
  const Plan plan = *make_plan(members(shards), 0);
  REQUIRE(plan.parts[2].copies.data() == plan.parts[0].copies.data());
  // 3 x 6000 bytes from two; copies count twice in the list that two replicas share.
  const auto served = served_bytes(plan);
  REQUIRE(served[0] + served[1] == 18000);
  REQUIRE(std::max(served[0], served[1]) <= 9600);
}

TEST_CASE("shards may share the manifest of their rank", "[runtime][planner]") {
  const std::vector<Manifest> apart = members({trainer().add("a", {4}), rollout(0).add("a", {4}),
                                               rollout(1).add("a", {4}), rollout(7).add("a", {4})});
  std::vector<Participant> sharing;
  for (const Manifest& manifest : apart) {
    const bool trains = manifest.shard.side == Side::trainer;
    sharing.push_back({manifest.shard, &apart[trains ? 0 : 1]});
  }
  REQUIRE(make_plan(sharing) == make_plan(apart));
}

}  // namespace weir
