// Goal: versions only rise, are whole before they are read, and stay while they are read.
// Method: the ledger's decisions are driven directly, in and out of order.

#include "actors/ledger_state.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir {
namespace {

constexpr ShardId first{Side::trainer, 0, 0};
constexpr ShardId second{Side::trainer, 0, 1};

/// A ledger whose version 3 is READY.
LedgerState ledger_with_version_3() {
  LedgerState ledger({second, first});
  REQUIRE(ledger.begin(3));
  REQUIRE(ledger.staged(3, first));
  REQUIRE(ledger.staged(3, second) == true);
  return ledger;
}

TEST_CASE("a version is ready only when every trainer shard has staged it") {
  LedgerState ledger({second, first});
  CHECK_FALSE(ledger.ready());
  REQUIRE(ledger.begin(3));
  CHECK_FALSE(ledger.ready());
  CHECK(ledger.staged(3, second) == false);
  CHECK_FALSE(ledger.ready());
  CHECK(ledger.staged(3, first) == true);
  CHECK(ledger.ready() == 3);
}

TEST_CASE("a published version is greater than every one before") {
  LedgerState ledger({first});
  CHECK(ledger.begin(0).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 0: it must be greater than the last one, 0"});
  ledger = ledger_with_version_3();
  CHECK(ledger.begin(3).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 3: it must be greater than the last one, 3"});
  CHECK(ledger.begin(2).error().code == ErrorCode::invalid);
  CHECK(ledger.ready() == 3);
  CHECK(ledger.begin(5));
}

TEST_CASE("one version is staged at a time") {
  LedgerState ledger({first});
  REQUIRE(ledger.begin(1));
  CHECK(ledger.begin(2).error() ==
        Error{ErrorCode::refused, "can't publish version 2 while version 1 is being staged"});
  CHECK(ledger.staged(1, first) == true);
}

TEST_CASE("what trainer shards report is checked") {
  LedgerState ledger({first, second});
  CHECK(ledger.staged(1, first).error() ==
        Error{ErrorCode::refused, "trainer 0.0 reports version 1, which is not being staged"});
  REQUIRE(ledger.begin(1));
  CHECK(ledger.staged(2, first).error().text ==
        "trainer 0.0 reports version 2, which is not being staged");
  CHECK(ledger.staged(1, {Side::rollout, 0, 0}).error() ==
        Error{ErrorCode::refused,
              "rollout 0.0 reports version 1, but is no trainer of this exchange"});
  CHECK(ledger.staged(1, first) == false);
  CHECK(ledger.staged(1, first).error() ==
        Error{ErrorCode::refused, "trainer 0.0 reports version 1 twice"});
  // None of this brought the version nearer.
  CHECK_FALSE(ledger.ready());
  CHECK(ledger.staged(1, second) == true);
}

TEST_CASE("only a ready version is leased, and once to each replica") {
  LedgerState ledger = ledger_with_version_3();
  CHECK(ledger.lease(2, 0).error() ==
        Error{ErrorCode::refused, "rollout replica 0 can't read version 2: it is not ready"});
  const auto lease = ledger.lease(3, 0);
  REQUIRE(lease);
  CHECK(ledger.lease(3, 0).error() ==
        Error{ErrorCode::refused, "rollout replica 0 reads version 3 already"});
  const auto other = ledger.lease(3, 1);
  REQUIRE(other);
  CHECK(*lease != *other);
  CHECK(ledger.lease_count() == 2);
}

TEST_CASE("a leased version is not overwritten") {
  LedgerState ledger = ledger_with_version_3();
  const auto lease = ledger.lease(3, 1);
  REQUIRE(lease);
  CHECK(
      ledger.begin(4).error() ==
      Error{ErrorCode::refused, "can't publish version 4 while rollout replica 1 reads version 3"});
  CHECK(ledger.ready() == 3);
  REQUIRE(ledger.release(*lease));
  CHECK(ledger.release(*lease).error() ==
        Error{ErrorCode::refused, "there is no lease " + std::to_string(*lease)});
  REQUIRE(ledger.begin(4));
  // The trainers have one place for their weights: version 3 is gone.
  CHECK_FALSE(ledger.lease(3, 1));
}

TEST_CASE("the ledger knows what a trainer shard is doing") {
  LedgerState ledger({first, second});
  CHECK(ledger.doing(first) == "waiting for the first version");
  REQUIRE(ledger.begin(1));
  CHECK(ledger.doing(first) == "updating to version 1");
  REQUIRE(ledger.staged(1, first));
  CHECK(ledger.doing(first) == "holding its part of version 1");
  CHECK(ledger.doing(second) == "updating to version 1");
  REQUIRE(ledger.staged(1, second));
  CHECK(ledger.doing(first) == "holding version 1");
}

}  // namespace
}  // namespace weir
