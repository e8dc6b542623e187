// Goal: a replica reads a version that is still being written only where it loses nothing should
// that come to nothing, and else treats it like any other.
// Method: the coordinator's decisions are driven directly; what is to be done is compared as text.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "actors/replica_state.hpp"
#include "tests/actors/driven_replica.hpp"

namespace weir {
namespace {

using namespace driven_replica;

TEST_CASE("a version that is being written is read into spare memory, and told of as it grows") {
  Driven replica = serving(GENERATE(Placement::second_buffer, Placement::staging));
  replica.state.begun(2);
  replica.effects();
  replica.state.leased({1, 2, {{Side::trainer, 0, 0}}, {0}});
  CHECK(replica.effects().size() == 2);
  replica.state.fetched(replica.from(0), 10);
  replica.state.standing(9, {5});
  replica.state.standing(1, {7});
  CHECK(replica.effects() == Texts{"tell 1 of 7"});
  replica.state.announce(2);
  CHECK(replica.effects().empty());
  replica.state.fetched(replica.from(1), 10);
  CHECK(replica.effects() == Texts{"confirm 1"});
}

TEST_CASE("what would be torn if the version came to nothing is not read early") {
  Driven live = serving(Placement::in_place);
  live.state.begun(2);
  CHECK(live.effects().empty());
  Driven fresh(Placement::second_buffer);
  fresh.state.begun(1);
  CHECK(fresh.effects().empty());
}

TEST_CASE("a version that is ready comes before one that is not") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.announce(2);
  replica.effects();
  replica.state.begun(3);
  CHECK(replica.effects().empty());
  replica.lease(2);
  replica.fetched();
  replica.state.confirmed(true);
  replica.both(&ReplicaState::paused);
  replica.installed(2, 1);
  replica.effects();
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"committed 2 in 1 moved 20", "lease 3 into 0"});
}

TEST_CASE(
    "a version that comes to nothing is given up, and read again when it is ready after all") {
  Driven replica = serving(Placement::second_buffer, GENERATE(Follow::finish, Follow::jump));
  replica.state.begun(2);
  replica.lease(2);
  replica.effects();
  replica.state.revoked(1);
  CHECK(replica.effects() == Texts{"cancel 0", "cancel 1"});
  replica.both(&ReplicaState::cancelled);
  CHECK(replica.effects().empty());
  CHECK(replica.state.in_service());
  CHECK(replica.state.version() == 1);
  replica.state.announce(2);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
}

TEST_CASE("a version that can't be read early is not asked for again before it is ready") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.begun(2);
  replica.effects();
  replica.state.not_leased();
  CHECK(replica.effects().empty());
  replica.state.announce(2);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
}

TEST_CASE("a version that becomes ready while it is read early is not jumped over") {
  Driven replica = serving(Placement::second_buffer, Follow::jump);
  replica.state.begun(2);
  replica.lease(2);
  replica.effects();
  replica.state.announce(2);
  CHECK(replica.effects().empty());
  replica.state.announce(3);
  CHECK(replica.effects() == Texts{"cancel 0", "cancel 1"});
}

}  // namespace
}  // namespace weir
