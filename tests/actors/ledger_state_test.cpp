// Goal: versions only rise, are whole before they are read, and stay while they are read, whoever
// comes, goes or is late.
// Method: the ledger's decisions are driven directly; what follows is compared as text.

#include "actors/ledger_state.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/actors/driven_ledger.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {
namespace {

using namespace driven_ledger;

TEST_CASE("a version is ready when all shards of a trainer replica have staged it") {
  Driven ledger = two_ranks();
  REQUIRE(ledger.state.acquire(trainer, 3));
  REQUIRE(ledger.state.acquire(second, 3));
  CHECK(ledger.effects() ==
        Texts{"grant trainer 0.0 3 in slot 0", "grant trainer 0.1 3 in slot 0"});
  REQUIRE(ledger.state.staged(second, 3));
  REQUIRE(ledger.state.staged(second, 3));
  CHECK(ledger.effects().empty());
  CHECK_FALSE(ledger.state.ready());
  CHECK(ledger.state.versions().empty());
  REQUIRE(ledger.state.staged(trainer, 3));
  CHECK(ledger.effects() == Texts{"ready 3"});
  CHECK(ledger.state.ready() == 3);
  CHECK(ledger.state.holders(3) == std::vector<Holder>{{Side::trainer, 0, 0}});
}

TEST_CASE("what trainers ask is checked") {
  Driven ledger = one_trainer({whole(3)});
  CHECK(ledger.state.acquire(second, 4).error() ==
        Error{ErrorCode::refused, "trainer 0.1 is no trainer of this exchange"});
  CHECK(ledger.state.acquire(trainer, 3).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 3: it must be greater than the last one, 3"});
  CHECK(ledger.state.acquire(trainer, 0).error().code == ErrorCode::invalid);
  CHECK(
      ledger.state.staged(trainer, 4).error() ==
      Error{ErrorCode::refused, "trainer 0.0 reports version 4, which it was not asked to stage"});
  CHECK(ledger.state.staged(second, 3).error().code == ErrorCode::refused);
  REQUIRE(ledger.state.acquire(trainer, 6));
  CHECK(ledger.state.acquire(trainer, 5).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 5: it must be greater than the last one, 5"});
}

TEST_CASE("asking for the same version twice is answered twice, in the same slot") {
  Driven ledger = one_trainer({empty, empty});
  REQUIRE(ledger.state.acquire(trainer, 1));
  REQUIRE(ledger.state.acquire(trainer, 1));
  CHECK(ledger.effects() ==
        Texts{"grant trainer 0.0 1 in slot 0", "grant trainer 0.0 1 in slot 0"});
}

TEST_CASE("a pinned slot is written after its last reader, or after the patience of its trainer") {
  Driven ledger = one_trainer({whole(1)});
  CHECK(ledger.effects() == Texts{"ready 1"});
  CHECK(ledger.lease(1, 0) == Texts{"lease 1: trainer replica 0 slot 0,"});
  const std::uint64_t first = ledger.lease_number;
  CHECK(ledger.lease(1, 1).size() == 1);
  REQUIRE(ledger.state.acquire(trainer, 2));
  CHECK(ledger.effects().empty());
  // Nobody begins to read what is about to be overwritten.
  REQUIRE(ledger.state.confirm(first));
  CHECK(ledger.lease(1, 0) ==
        Texts{"no: rollout replica 0 can't read version 1: nobody holds it any more"});
  ledger.state.press(second);
  CHECK(ledger.effects().empty());
  ledger.state.press(trainer);
  CHECK(ledger.effects() == Texts{"revoke from 1", "grant trainer 0.0 2 in slot 0"});
  CHECK(ledger.state.versions().empty());
  CHECK(ledger.state.confirm(ledger.lease_number).error() ==
        Error{ErrorCode::refused,
              "lease " + std::to_string(ledger.lease_number) + " was taken away"});
  CHECK(ledger.state.confirm(first).error().code == ErrorCode::refused);
}

TEST_CASE("a trainer that has given up waiting closes its slot to nobody") {
  Driven ledger = one_trainer({whole(1)});
  CHECK(ledger.lease(1, 0).size() == 2);
  REQUIRE(ledger.state.acquire(trainer, 2));
  CHECK(ledger.state.forget(trainer) == "its readers");
  CHECK(ledger.lease(1, 1) == Texts{"lease 1: trainer replica 0 slot 0,"});
  ledger.roster.lose(trainer);
  CHECK(ledger.update().empty());
  CHECK(ledger.state.forget(trainer) == "trainer 0.0 to join again");
}

TEST_CASE("an empty slot is written first, then that of the oldest version without readers") {
  Driven ledger = one_trainer({whole(1), empty, empty});
  CHECK(ledger.lease(1, 0).size() == 2);
  for (std::uint64_t version = 2; version <= 3; ++version) {
    REQUIRE(ledger.state.acquire(trainer, version));
    CHECK(ledger.effects() == Texts{"grant trainer 0.0 " + std::to_string(version) + " in slot " +
                                    std::to_string(version - 1)});
    REQUIRE(ledger.state.staged(trainer, version));
    CHECK(ledger.effects() == Texts{"ready " + std::to_string(version)});
  }
  // Version 1 is read, 2 is not, 3 is the newest.
  REQUIRE(ledger.state.acquire(trainer, 4));
  CHECK(ledger.effects() == Texts{"grant trainer 0.0 4 in slot 1"});
  CHECK(ledger.state.versions() == std::set<std::uint64_t>{1, 3});
}

TEST_CASE("a full ledger refuses where it is told to, and keeps no more versions than it is told") {
  SmallRoster roster(1, 1, 1, 1);
  roster.trainer(0, 0, {whole(1), empty}).rollout(0, 0, Placement::in_place);
  Driven ledger(roster, {.when_full = WhenFull::refuse, .versions_max = 1});
  CHECK(ledger.lease(1, 0).size() == 2);
  CHECK(ledger.state.acquire(trainer, 2).error() ==
        Error{ErrorCode::refused,
              "no room for version 2: all slots of trainer replica 0 are being read; wait, give it "
              "more slots, or set when_full to wait"});
  ledger.state.release(ledger.lease_number);
  ledger.state.release(ledger.lease_number);
  REQUIRE(ledger.state.acquire(trainer, 2));
  CHECK(ledger.effects() == Texts{"grant trainer 0.0 2 in slot 0"});
}

TEST_CASE("a shard that is ahead leaves its peers' unfinished version behind") {
  SmallRoster roster(1, 2, 1, 1);
  roster.trainer(0, 0, {whole(1)}).trainer(0, 1, {whole(1)});
  roster.rollout(0, 0, Placement::in_place);
  Driven ledger(roster);
  CHECK(ledger.lease(1, 0).size() == 2);
  REQUIRE(ledger.state.acquire(trainer, 2));
  REQUIRE(ledger.state.acquire(second, 3));
  CHECK(ledger.effects() == Texts{"supersede trainer 0.0 2"});
  CHECK(ledger.state.acquire(trainer, 2).error().code == ErrorCode::invalid);
  ledger.state.expire(ledger.lease_number);
  CHECK(ledger.effects() == Texts{"revoke from 0", "grant trainer 0.1 3 in slot 0"});
}

TEST_CASE("a restarted trainer rank takes up the version that its peers have begun") {
  Driven ledger = two_ranks();
  for (const ShardId& shard : {trainer, second}) REQUIRE(ledger.state.acquire(shard, 1));
  for (const ShardId& shard : {trainer, second}) REQUIRE(ledger.state.staged(shard, 1));
  for (const ShardId& shard : {trainer, second}) REQUIRE(ledger.state.acquire(shard, 2));
  REQUIRE(ledger.state.staged(trainer, 2));
  ledger.effects();
  ledger.roster.lose(second);
  CHECK(ledger.update().empty());
  CHECK(ledger.state.holders(1).empty());
  CHECK(ledger.state.acquire(second, 2).error().code == ErrorCode::refused);
  ledger.roster.trainer(0, 1, {empty, empty});
  CHECK(ledger.update().empty());
  REQUIRE(ledger.state.acquire(second, 2));
  CHECK(ledger.effects() == Texts{"grant trainer 0.1 2 in slot 1"});
  REQUIRE(ledger.state.staged(second, 2));
  CHECK(ledger.effects() == Texts{"ready 2"});
  CHECK(ledger.state.holders(2) == std::vector<Holder>{{Side::trainer, 0, 1}});
}

TEST_CASE("no version is begun while a shard of its replica is missing") {
  Driven ledger = two_ranks();
  ledger.roster.lose(second);
  ledger.update();
  REQUIRE(ledger.state.acquire(trainer, 1));
  CHECK(ledger.effects().empty());
  CHECK(ledger.state.forget(trainer) == "trainer 0.1 to join again");
  REQUIRE(ledger.state.acquire(trainer, 1));
  ledger.roster.trainer(0, 1, {empty, empty});
  CHECK(ledger.update() == Texts{"grant trainer 0.0 1 in slot 0"});
}

TEST_CASE("a ledger without memory learns what is whole from the members") {
  SmallRoster roster(1, 2, 2, 1);
  // Slot 0 is whole in both; slot 1 in one only; slot 2 holds two versions.
  roster.trainer(0, 0, {whole(4), whole(5), whole(3)});
  Driven ledger(roster);
  CHECK(ledger.effects().empty());
  ledger.roster.trainer(0, 1, {whole(4), writing(5), whole(2)});
  CHECK(ledger.update() == Texts{"ready 4"});
  CHECK(ledger.state.versions() == std::set<std::uint64_t>{4});
  // Its replica goes on where it was.
  REQUIRE(ledger.state.acquire(second, 5));
  CHECK(ledger.effects() == Texts{"grant trainer 0.1 5 in slot 1"});
  REQUIRE(ledger.state.staged(second, 5));
  CHECK(ledger.effects() == Texts{"ready 5"});
  // What rollouts serve may be newer than what trainers have.
  ledger.roster.rollout(1, 0, Placement::in_place, 6);
  ledger.update();
  ledger.commit(1, 6);
  CHECK(ledger.effects() == Texts{"ready 6"});
}

TEST_CASE("the first whole trainer replica makes a version ready, the other adds itself") {
  SmallRoster roster(2, 1, 2, 1);
  roster.trainer(0, 0, {empty}).trainer(1, 0, {empty});
  roster.rollout(0, 0, Placement::in_place).rollout(1, 0, Placement::in_place);
  Driven ledger(roster);
  REQUIRE(ledger.state.acquire(trainer, 5));
  REQUIRE(ledger.state.acquire(other, 4));
  REQUIRE(ledger.state.staged(trainer, 5));
  ledger.effects();
  CHECK(ledger.state.acquire(other, 4).error() ==
        Error{ErrorCode::invalid,
              "can't publish version 4: it must be greater than the last one, 4"});
  REQUIRE(ledger.state.acquire(other, 5));
  CHECK(ledger.lease(5, 0) ==
        Texts{"grant trainer 1.0 5 in slot 0", "lease 5: trainer replica 0 slot 0,"});
  REQUIRE(ledger.state.staged(other, 5));
  CHECK(ledger.effects().empty());
  CHECK(ledger.lease(5, 1) ==
        Texts{"lease 5: trainer replica 0 slot 0, trainer replica 1 slot 0,"});
  // A lease that was granted before learns of it when it needs it.
  const Result<Lease> renewed = ledger.state.renew(ledger.lease_number, trainer);
  REQUIRE(renewed);
  CHECK(renewed->holders == std::vector<Holder>{{Side::trainer, 1, 0}});
}

TEST_CASE("what can't be leased is refused, with the reason") {
  Driven ledger = one_trainer({whole(3)});
  ledger.effects();
  CHECK(ledger.lease(4, 0) == Texts{"no: rollout replica 0 can't read version 4: it is not ready"});
  CHECK(ledger.lease(2, 0) ==
        Texts{"no: rollout replica 0 can't read version 2: version 3 took its place"});
  ledger.state.lease(3, 0, 0, 1);
  CHECK(ledger.effects() ==
        Texts{"no: rollout replica 0 can't read version 3: its members have changed"});
  CHECK(ledger.lease(3, 0).size() == 1);
  CHECK(ledger.lease(3, 0) ==
        Texts{"no: rollout replica 0 can't read version 3: it holds a lease already"});
  CHECK(ledger.state.lease_count() == 1);
  CHECK(ledger.state.renew(99, trainer).error() ==
        Error{ErrorCode::refused, "there is no lease 99"});
  CHECK(
      ledger.state.renew(ledger.lease_number, trainer).error() ==
      Error{ErrorCode::unavailable, "trainer 0.0 can't be read, and nobody else holds version 3"});
}

TEST_CASE("a source that failed is no longer named, but counts as read until the lease ends") {
  SmallRoster roster(2, 1, 1, 1);
  roster.trainer(0, 0, {whole(1)}).trainer(1, 0, {whole(1)});
  roster.rollout(0, 0, Placement::in_place);
  Driven ledger(roster);
  CHECK(ledger.lease(1, 0).size() == 2);
  REQUIRE(ledger.state.renew(ledger.lease_number, trainer));
  REQUIRE(ledger.state.acquire(trainer, 2));
  CHECK(ledger.effects().empty());
  REQUIRE(ledger.state.confirm(ledger.lease_number));
  CHECK(ledger.effects() == Texts{"grant trainer 0.0 2 in slot 0"});
}

TEST_CASE("a lease ends with a member of its reader, and with the coming of one of its sources") {
  Driven ledger = one_trainer({whole(1)});
  CHECK(ledger.lease(1, 0).size() == 2);
  ledger.roster.lose({Side::rollout, 0, 0});
  CHECK(ledger.update() == Texts{"revoke from 0"});
  CHECK(ledger.lease(1, 1).size() == 1);
  // The dead may still be readable; who has come may be taken for it.
  ledger.roster.lose(trainer);
  CHECK(ledger.update().empty());
  ledger.roster.trainer(0, 0, {empty});
  CHECK(ledger.update() == Texts{"revoke from 1"});
  CHECK_FALSE(ledger.state.confirm(ledger.lease_number));
}

TEST_CASE("rollout replicas stand in where no trainer replica is left") {
  Driven ledger = one_trainer({whole(1)});
  ledger.effects();
  ledger.commit(0, 1);
  CHECK(ledger.lease(1, 1) == Texts{"lease 1: trainer replica 0 slot 0,"});
  ledger.state.release(ledger.lease_number);
  ledger.roster.lose(trainer);
  CHECK(ledger.update().empty());
  CHECK(ledger.lease(1, 1) == Texts{"lease 1: rollout replica 0 slot 0,"});
  // What is read is not overwritten, and nobody reads it any more who has not begun to.
  CHECK(ledger.lease(1, 0) ==
        Texts{"no: rollout replica 0 can't read version 1: nobody holds it any more"});
  ledger.roster.trainer(0, 0, {empty});
  ledger.update();
  REQUIRE(ledger.state.acquire(trainer, 2));
  REQUIRE(ledger.state.staged(trainer, 2));
  CHECK(ledger.effects() == Texts{"grant trainer 0.0 2 in slot 0", "ready 2"});
  CHECK(ledger.lease(2, 0).empty());
  REQUIRE(ledger.state.confirm(ledger.lease_number));
  CHECK(ledger.effects() == Texts{"lease 2: trainer replica 0 slot 0,"});
  CHECK(ledger.state.versions() == std::set<std::uint64_t>{2});
}

TEST_CASE("a wish whose time is over is refused") {
  Driven ledger = one_trainer({whole(1)});
  ledger.commit(0, 1);
  ledger.roster.lose(trainer);
  ledger.update();
  CHECK(ledger.lease(1, 1).size() == 1);
  ledger.roster.trainer(0, 0, {whole(2)});
  ledger.update();
  const std::uint64_t wish = ledger.state.lease(2, 0, 0, (*ledger.roster).term({Side::rollout, 0}));
  CHECK(ledger.effects().empty());
  ledger.state.expire(wish);
  CHECK(ledger.effects() == Texts{"no: what it would overwrite is still being read"});
}

TEST_CASE("a commit of members that have changed since says nothing") {
  SmallRoster roster(1, 1, 1, 2);
  roster.rollout(0, 0, Placement::in_place).rollout(0, 1, Placement::in_place);
  Driven ledger(roster);
  // The newest seat stays the same when the other is lost.
  ledger.roster.lose({Side::rollout, 0, 0});
  ledger.update();
  ledger.state.committed(0, 7, 0, 2);
  CHECK_FALSE(ledger.state.ready());
  ledger.roster.rollout(0, 0, Placement::in_place);
  ledger.update();
  CHECK(ledger.state.versions().empty());
  ledger.state.committed(0, 7, 0, 2);
  CHECK_FALSE(ledger.state.ready());
  ledger.state.committed(0, 7, 0, 3);
  CHECK(ledger.state.ready() == 7);
}

}  // namespace
}  // namespace weir
