// Goal: no shard of a replica commits before all have fetched the whole version, and each answers
// each phase once.
// Method: the coordinator's decisions are driven directly, with answers in and out of order.

#include "actors/replica_state.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir {
namespace {

/// Replica 7 of two shards, which need 10 and 20 bytes.
ReplicaState replica() {
  return {7, {10, 20}};
}

TEST_CASE(
    "a replica commits when all its shards have fetched, and serves when all have committed") {
  ReplicaState state = replica();
  REQUIRE(state.begin(1));
  CHECK(state.fetched(1, 1, 20) == false);
  CHECK(state.fetched(0, 1, 10) == true);
  CHECK(state.bytes_moved() == 30);
  CHECK(state.committed(0, 1) == false);
  CHECK(state.committed(1, 1) == true);
  REQUIRE(state.verify(1));
  CHECK(state.verified(1, 1) == false);
  CHECK(state.verified(0, 1) == true);
  // The bytes of each version are counted anew.
  REQUIRE(state.begin(2));
  CHECK(state.bytes_moved() == 0);
}

TEST_CASE("no shard commits before all have fetched") {
  ReplicaState state = replica();
  REQUIRE(state.begin(1));
  REQUIRE(state.fetched(0, 1, 10) == false);
  CHECK(
      state.committed(0, 1).error() ==
      Error{ErrorCode::refused,
            "rollout 7.0 says that it has committed version 1 before all shards have fetched it"});
  CHECK(state.fetched(1, 1, 20) == true);
  CHECK(state.committed(0, 1) == false);
}

TEST_CASE("a fetch of fewer or more bytes than the plan has is no fetch") {
  ReplicaState state = replica();
  REQUIRE(state.begin(1));
  CHECK(state.fetched(1, 1, 19).error() ==
        Error{ErrorCode::invalid, "rollout 7.1 moved 19 of the 20 bytes of version 1"});
  CHECK_FALSE(state.fetched(1, 1, 21));
  CHECK(state.fetched(1, 1, 20) == false);
  CHECK(state.bytes_moved() == 20);
}

TEST_CASE("answers that were not asked for are refused") {
  ReplicaState state = replica();
  CHECK(state.fetched(0, 1, 10).error() ==
        Error{ErrorCode::refused,
              "rollout 7.0 says that it has fetched version 1, which it was not asked for"});
  CHECK_FALSE(state.committed(0, 1));
  CHECK_FALSE(state.verified(0, 1));
  REQUIRE(state.begin(2));
  CHECK_FALSE(state.fetched(0, 1, 10));
  CHECK_FALSE(state.fetched(2, 2, 10));
  CHECK(state.fetched(0, 2, 10) == false);
  CHECK_FALSE(state.fetched(0, 2, 10));
  CHECK(state.verify(2).error() ==
        Error{ErrorCode::refused,
              "rollout replica 7 can't verify version 2, which it has not committed"});
  REQUIRE(state.fetched(1, 2, 20) == true);
  REQUIRE(state.committed(0, 2));
  CHECK(state.committed(0, 2).error().text ==
        "rollout 7.0 says that it has committed version 2, which it was not asked for");
  REQUIRE(state.committed(1, 2) == true);
  CHECK(state.verified(1, 2).error().text ==
        "rollout 7.1 says that it has verified version 2, which it was not asked for");
}

TEST_CASE("versions of a replica rise, one at a time") {
  ReplicaState state = replica();
  CHECK(state.begin(0).error() ==
        Error{ErrorCode::refused, "rollout replica 7 can't go from version 0 to version 0"});
  REQUIRE(state.begin(2));
  CHECK(state.begin(3).error() ==
        Error{ErrorCode::refused,
              "rollout replica 7 can't fetch version 3 before it is done with version 2"});
  for (const std::uint32_t rank : {0U, 1U}) REQUIRE(state.fetched(rank, 2, 10 * (rank + 1)));
  for (const std::uint32_t rank : {0U, 1U}) REQUIRE(state.committed(rank, 2));
  REQUIRE(state.verify(2));
  for (const std::uint32_t rank : {0U, 1U}) REQUIRE(state.verified(rank, 2));
  CHECK_FALSE(state.begin(2));
  CHECK_FALSE(state.begin(1));
  CHECK(state.begin(3));
}

TEST_CASE("the replica knows what each shard is doing") {
  ReplicaState state = replica();
  CHECK(state.doing(0) == "waiting for the first version");
  REQUIRE(state.begin(1));
  CHECK(state.doing(0) == "fetching version 1");
  REQUIRE(state.fetched(0, 1, 10));
  CHECK(state.doing(0) == "holding version 1 for the commit");
  REQUIRE(state.fetched(1, 1, 20));
  CHECK(state.doing(0) == "committing version 1");
  REQUIRE(state.committed(0, 1));
  CHECK(state.doing(0) == "serving version 1");
  REQUIRE(state.committed(1, 1));
  REQUIRE(state.verify(1));
  CHECK(state.doing(0) == "verifying version 1");
  REQUIRE(state.verified(0, 1));
  CHECK(state.doing(0) == "serving version 1");
}

}  // namespace
}  // namespace weir
