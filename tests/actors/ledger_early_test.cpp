// Goal: a version may be read while it is written, and what is read so counts only if the version
// becomes READY as it was begun; nobody who writes waits for such a reader.
// Method: the ledger's decisions are driven directly; what follows is compared as text.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "actors/ledger_state.hpp"
#include "tests/actors/driven_ledger.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {
namespace {

using namespace driven_ledger;

/// Two ranks that hold version 1 in slot 0 and are writing version 2 to slot 1; a rollout replica.
Driven writing_two() {
  SmallRoster roster(1, 2, 1, 1);
  roster.trainer(0, 0, {whole(1), writing(2)}).trainer(0, 1, {whole(1), writing(2)});
  roster.rollout(0, 0, Placement::second_buffer);
  Driven ledger(roster);
  REQUIRE(ledger.effects() == Texts{"ready 1"});
  return ledger;
}

/// The same, of which 100 and 200 bytes stand, read early.
Driven read_early() {
  Driven ledger = writing_two();
  ledger.state.standing(trainer, 2, 100);
  REQUIRE(ledger.effects().empty());
  ledger.state.standing(second, 2, 200);
  REQUIRE(ledger.effects() == Texts{"begun 2"});
  REQUIRE(ledger.lease(2, 0) == Texts{"lease 2: trainer replica 0 slot 1,"});
  return ledger;
}

TEST_CASE("a version is begun when some of every shard stands, and may be leased from then on") {
  Driven ledger = writing_two();
  ledger.state.standing(trainer, 2, 100);
  CHECK(ledger.lease(2, 0) == Texts{"no: rollout replica 0 can't read version 2: it is not ready"});
  REQUIRE(ledger.state.staged(second, 2));
  CHECK(ledger.effects() == Texts{"begun 2"});
  ledger.state.lease(2, 0, 0, 3);
  const auto effects = ledger.state.take_effects();
  REQUIRE(effects.size() == 1);
  CHECK(std::get<ledger::Leased>(effects[0]).lease.stands ==
        std::vector<std::uint64_t>{100, everything});
}

TEST_CASE("early readers are told when more stands, and of everything when the version is ready") {
  Driven ledger = read_early();
  ledger.state.tell_standing();
  CHECK(ledger.effects().empty());
  ledger.state.standing(second, 2, 300);
  CHECK(ledger.effects().empty());
  ledger.state.tell_standing();
  CHECK(ledger.effects() == Texts{"stands for 0: 100 300"});
  REQUIRE(ledger.state.staged(trainer, 2));
  REQUIRE(ledger.state.staged(second, 2));
  CHECK(ledger.effects() == Texts{"ready 2", "stands for 0: all all"});
  CHECK(ledger.state.confirm(ledger.lease_number));
  CHECK(ledger.state.lease_count() == 0);
}

TEST_CASE("what is read early does not count before the version is ready") {
  Driven ledger = read_early();
  REQUIRE(ledger.state.staged(trainer, 2));
  CHECK(ledger.state.confirm(ledger.lease_number).error() ==
        Error{ErrorCode::refused, "version 2 is not ready"});
  CHECK(ledger.state.lease_count() == 0);
}

TEST_CASE("a shard that begins a version anew ends its early readers, and waits for none of them") {
  Driven ledger = read_early();
  REQUIRE(ledger.state.acquire(trainer, 2));
  CHECK(ledger.effects() == Texts{"revoke from 0", "grant trainer 0.0 2 in slot 1"});
  // What stood before does not stand any more.
  CHECK(ledger.lease(2, 0).front().starts_with("no: "));
  ledger.state.standing(trainer, 2, 50);
  CHECK(ledger.effects().empty());  // Begun it was before.
  CHECK(ledger.lease(2, 0) == Texts{"lease 2: trainer replica 0 slot 1,"});
}

TEST_CASE("a shard that goes on to another version ends the early readers of the one before") {
  SmallRoster roster(1, 2, 1, 1);
  for (std::uint32_t rank : {0U, 1U}) roster.trainer(0, rank, {whole(1), writing(2), empty});
  roster.rollout(0, 0, Placement::second_buffer);
  Driven ledger(roster);
  ledger.state.standing(trainer, 2, 100);
  ledger.state.standing(second, 2, 100);
  ledger.effects();
  ledger.lease(2, 0);
  REQUIRE(ledger.state.acquire(trainer, 3));
  CHECK(ledger.effects() == Texts{"grant trainer 0.0 3 in slot 2", "revoke from 0"});
  CHECK(ledger.state.staged(trainer, 2).error().code == ErrorCode::refused);
}

TEST_CASE("one who has written a version may go on before the others, and it is read on") {
  SmallRoster roster(1, 2, 1, 1);
  for (std::uint32_t rank : {0U, 1U}) roster.trainer(0, rank, {whole(1), writing(2), empty});
  roster.rollout(0, 0, Placement::second_buffer);
  Driven ledger(roster);
  REQUIRE(ledger.state.staged(trainer, 2));
  ledger.state.standing(second, 2, 100);
  ledger.effects();
  ledger.lease(2, 0);
  REQUIRE(ledger.state.acquire(trainer, 3));
  CHECK(ledger.effects() == Texts{"grant trainer 0.0 3 in slot 2"});
  REQUIRE(ledger.state.staged(second, 2));
  CHECK(ledger.effects() == Texts{"ready 2", "stands for 0: all all"});
  CHECK(ledger.state.confirm(ledger.lease_number));
}

TEST_CASE(
    "a shard that dies while it writes ends the early readers, and one that has written too") {
  Driven ledger = read_early();
  REQUIRE(ledger.state.staged(second, 2));
  ledger.effects();
  ledger.roster.lose(GENERATE(trainer, second));
  CHECK(ledger.update() == Texts{"revoke from 0"});
}

TEST_CASE("a version is begun only while the one before is whole in a trainer") {
  SmallRoster roster(1, 1, 1, 1);
  roster.trainer(0, 0, {writing(2)}).rollout(0, 0, Placement::second_buffer, 1, true);
  Driven ledger(roster);
  ledger.commit(0, 1);
  ledger.effects();
  ledger.state.standing(trainer, 2, 100);
  CHECK(ledger.effects().empty());
  CHECK(ledger.lease(2, 0).front().starts_with("no: "));
}

TEST_CASE("a version is begun when all trainer replicas write it, and ready when one has") {
  SmallRoster roster(2, 1, 1, 1);
  roster.trainer(0, 0, {whole(1), writing(2)}).trainer(1, 0, {whole(1), empty});
  roster.rollout(0, 0, Placement::second_buffer);
  Driven ledger(roster);
  ledger.state.standing(trainer, 2, 10);
  CHECK(ledger.effects() == Texts{"ready 1"});
  REQUIRE(ledger.state.acquire(other, 2));
  ledger.state.standing(other, 2, 20);
  CHECK(ledger.effects() == Texts{"grant trainer 1.0 2 in slot 1", "begun 2"});
  CHECK(ledger.lease(2, 0) ==
        Texts{"lease 2: trainer replica 0 slot 1, trainer replica 1 slot 1,"});
  REQUIRE(ledger.state.staged(other, 2));
  CHECK(ledger.effects() == Texts{"ready 2", "stands for 0: 10 all"});
  // A source that writes no more has failed: who is whole takes its place.
  const auto renewed = ledger.state.renew(ledger.lease_number, trainer);
  REQUIRE(renewed);
  CHECK(renewed->holders == std::vector<Holder>{{Side::trainer, 1, 1}});
  CHECK(renewed->stands == std::vector<std::uint64_t>{10, everything});
  CHECK(ledger.state.confirm(ledger.lease_number));
}

TEST_CASE("of two that write, one that fails is replaced by the other; of one, by nobody") {
  SmallRoster roster(2, 1, 1, 1);
  roster.trainer(0, 0, {whole(1), writing(2)}).trainer(1, 0, {whole(1), writing(2)});
  roster.rollout(0, 0, Placement::second_buffer);
  Driven ledger(roster);
  ledger.state.standing(trainer, 2, 10);
  ledger.state.standing(other, 2, 20);
  ledger.lease(2, 0);
  const auto renewed = ledger.state.renew(ledger.lease_number, trainer);
  REQUIRE(renewed);
  CHECK(renewed->holders == std::vector<Holder>{{Side::trainer, 1, 1}});
  CHECK(ledger.state.renew(ledger.lease_number, other).error().code == ErrorCode::unavailable);
}

TEST_CASE("word of what a shard is not writing says nothing") {
  Driven ledger = writing_two();
  ledger.state.standing(trainer, 2, 100);
  ledger.state.standing(second, 3, 100);
  ledger.state.standing(second, 1, 100);
  ledger.state.standing(other, 2, 100);
  CHECK(ledger.effects().empty());
  // Whole it is only when it says that it is staged.
  ledger.state.standing(second, 2, everything);
  CHECK(ledger.effects() == Texts{"begun 2"});
  ledger.state.lease(2, 0, 0, 3);
  CHECK(std::get<ledger::Leased>(ledger.state.take_effects().at(0)).lease.stands ==
        std::vector<std::uint64_t>{100, everything - 1});
}

TEST_CASE("an early reader does not count as one where a full trainer refuses") {
  SmallRoster roster(1, 1, 1, 1);
  roster.trainer(0, 0, {whole(1), writing(2)}).rollout(0, 0, Placement::second_buffer);
  Driven ledger(roster, {.when_full = WhenFull::refuse});
  ledger.state.standing(trainer, 2, 100);
  ledger.effects();
  ledger.lease(2, 0);
  REQUIRE(ledger.state.acquire(trainer, 3));
  CHECK(ledger.effects() == Texts{"revoke from 0", "grant trainer 0.0 3 in slot 1"});
}

}  // namespace
}  // namespace weir
