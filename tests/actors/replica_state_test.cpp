// Goal: the shards of a replica switch to a version together or not at all, and whatever fails
// leaves them at a version that all of them have.
// Method: the coordinator's decisions are driven directly; what is to be done is compared as text.
// Replicas have two shards, "0" and "1", whose seats are 1 and 2 unless one has come back.

#include "actors/replica_state.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/actors/driven_replica.hpp"

namespace weir {
namespace {

using namespace driven_replica;

TEST_CASE("a second buffer is filled while the engines run, and swapped while all are paused") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.announce(2);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
  replica.lease(2);
  CHECK(replica.effects() == Texts{"fetch 0 into 1", "fetch 1 into 1"});
  CHECK(replica.state.doing(0) == "fetching version 2");
  replica.state.fetched(replica.from(1), 10);
  CHECK(replica.effects().empty());
  replica.state.fetched(replica.from(0), 10);
  CHECK(replica.effects() == Texts{"confirm 1"});
  replica.state.confirmed(true);
  CHECK(replica.effects() == Texts{"pause 0", "pause 1"});
  replica.state.paused(replica.from(0));
  CHECK(replica.effects().empty());
  replica.state.paused(replica.from(1));
  CHECK(replica.effects() == Texts{"install 2 at 0", "install 2 at 1"});
  replica.state.installed(replica.from(0), 2, 1);
  CHECK(replica.effects().empty());
  CHECK(replica.state.doing(1) == "installing version 2");
  replica.state.installed(replica.from(1), 2, 1);
  CHECK(replica.effects() == Texts{"resume 2 at 0", "resume 2 at 1"});
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"committed 2 in 1 moved 20"});
  CHECK(replica.state.version() == 2);
  replica.state.announce(3);
  CHECK(replica.effects() == Texts{"lease 3 into 0"});
}

TEST_CASE("live weights are written only while all engines are paused") {
  Driven replica = serving(Placement::in_place);
  replica.state.announce(2);
  CHECK(replica.effects() == Texts{"lease 2 into 0"});
  replica.lease(2);
  CHECK(replica.effects() == Texts{"pause 0", "pause 1"});
  replica.state.paused(replica.from(1));
  CHECK(replica.effects().empty());
  replica.state.paused(replica.from(0));
  CHECK(replica.effects() == Texts{"fetch 0 into 0", "fetch 1 into 0"});
  replica.fetched();
  CHECK(replica.effects() == Texts{"confirm 1"});
  replica.state.confirmed(true);
  CHECK(replica.effects() == Texts{"install 2 at 0", "install 2 at 1"});
  replica.installed(2, 0);
  CHECK(replica.effects() == Texts{"resume 2 at 0", "resume 2 at 1"});
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"committed 2 in 0 moved 20"});
}

TEST_CASE("staging memory is read by others only while it holds what the replica serves") {
  // What it holds when the members come, nobody knows.
  Driven replica(Placement::staging, Follow::finish, 1, 1);
  CHECK(replica.effects() == Texts{"committed 1 in 0 moved 0 unreadable"});
  replica.fetch(2);
  CHECK(replica.effects() ==
        Texts{"lease 2 into 0", "fetch 0 into 0", "fetch 1 into 0", "confirm 1"});
  replica.state.confirmed(true);
  CHECK(replica.effects() == Texts{"pause 0", "pause 1"});
  replica.both(&ReplicaState::paused);
  replica.installed(2, 0);
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"install 2 at 0", "install 2 at 1", "resume 2 at 0",
                                   "resume 2 at 1", "committed 2 in 0 moved 20"});
}

TEST_CASE("members of an earlier exchange that hold the same version are resumed as they are") {
  Driven replica(Placement::second_buffer);
  replica.roster.rollout(0, 0, Placement::second_buffer, 4, true);
  replica.roster.rollout(0, 1, Placement::second_buffer, 4, false);
  replica.seats[0] = 3;
  replica.seats[1] = 4;
  replica.state.update(*replica.roster);
  CHECK(replica.effects() == Texts{"resume 4 at 1"});
  replica.state.announce(3);
  replica.state.resumed(replica.from(1));
  // An older version is not taken.
  CHECK(replica.effects() == Texts{"committed 4 in 0 moved 0"});
  CHECK(replica.state.version() == 4);
}

TEST_CASE("members that hold different versions are brought to one before any is resumed") {
  Driven replica(Placement::second_buffer, Follow::finish, 3, 4);
  CHECK(replica.effects() == Texts{"pause 0", "pause 1"});
  replica.both(&ReplicaState::paused);
  CHECK(replica.effects().empty());
  replica.state.announce(3);
  // It would go back.
  CHECK(replica.effects().empty());
  replica.state.announce(4);
  CHECK(replica.effects() == Texts{"lease 4 into 0"});
  replica.lease(4);
  // The other has it; here it goes over what nobody uses any more.
  CHECK(replica.effects() == Texts{"fetch 0 into 0"});
  replica.state.fetched(replica.from(0), 10);
  replica.state.confirmed(true);
  CHECK(replica.effects() == Texts{"confirm 1", "install 4 at 0"});
  replica.state.installed(replica.from(0), 4, 0);
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"resume 4 at 0", "resume 4 at 1", "committed 4 in 0 moved 10"});
}

TEST_CASE("what a shard ever served bounds its replica, even where it holds it no longer") {
  Driven replica(Placement::in_place);
  replica.roster->members.at({Side::rollout, 0, 0}).status.served = 5;
  replica.roster->members.at({Side::rollout, 0, 0}).seat = 7;
  replica.state.update(*replica.roster);
  replica.state.announce(4);
  CHECK(replica.effects().empty());
  replica.state.announce(5);
  CHECK(replica.effects() == Texts{"lease 5 into 0"});
}

TEST_CASE("announcements that a newer one overtakes are counted and never fetched") {
  Driven replica = serving(Placement::second_buffer);
  for (const std::uint64_t version : {2U, 3U, 5U, 4U, 5U}) replica.state.announce(version);
  // Version 2 was begun; 3 was not.
  CHECK(replica.state.superseded() == 1);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
  replica.lease(2);
  replica.fetched();
  replica.state.confirmed(true);
  replica.both(&ReplicaState::paused);
  replica.installed(2, 1);
  replica.effects();
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"committed 2 in 1 moved 20", "lease 5 into 0"});
}

TEST_CASE("a replica that jumps gives up an older fetch, and counts it once") {
  Driven replica = serving(Placement::second_buffer, Follow::jump);
  replica.state.announce(2);
  replica.lease(2);
  replica.effects();
  replica.state.announce(3);
  CHECK(replica.effects() == Texts{"cancel 0", "cancel 1"});
  CHECK(replica.state.doing(0) == "giving up a fetch of version 2");
  replica.state.announce(4);
  // Versions 2 and 3.
  CHECK(replica.state.superseded() == 2);
  // The one came whole meanwhile, the other not: neither counts, both are the end of the fetch.
  replica.state.fetched(replica.from(0), 10);
  replica.state.fetch_failed(replica.from(1), broken);
  CHECK(replica.effects().empty());
  replica.state.cancelled(replica.from(0));
  CHECK(replica.effects().empty());
  replica.state.cancelled(replica.from(1));
  CHECK(replica.effects() == Texts{"release 1", "lease 4 into 1"});
}

TEST_CASE("a jump that comes during the confirmation goes on at once, one after it does not") {
  Driven replica = serving(Placement::second_buffer, Follow::jump);
  replica.fetch(2);
  replica.effects();
  replica.state.announce(3);
  CHECK(replica.effects().empty());
  replica.state.confirmed(true);
  CHECK(replica.effects() == Texts{"lease 3 into 1"});
  replica.lease(3);
  replica.fetched();
  replica.state.confirmed(true);
  replica.effects();
  replica.state.announce(4);
  replica.both(&ReplicaState::paused);
  CHECK(replica.effects() == Texts{"install 3 at 0", "install 3 at 1"});
}

TEST_CASE("a failed source is replaced, and the fetch goes on under the same lease") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.announce(2);
  replica.lease(2);
  replica.effects();
  replica.state.source_failed(replica.from(0), source);
  CHECK(replica.effects() == Texts{"renew 1"});
  replica.state.fetched(replica.from(1), 10);
  CHECK(replica.effects().empty());
  replica.state.renewed({1, 2, {{Side::trainer, 1, 0}}});
  CHECK(replica.effects() == Texts{"fetch 0 into 1"});
  replica.state.source_failed(replica.from(0), {Side::trainer, 1, 0});
  replica.state.not_renewed();
  CHECK(replica.effects() == Texts{"renew 1", "retry 1", "release 1"});
  replica.state.retry(replica.retry + 1);
  CHECK(replica.effects().empty());
  replica.state.retry(replica.retry);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
}

TEST_CASE("a version that can't be had now is asked for later, each time after a longer pause") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.announce(2);
  replica.state.not_leased();
  CHECK(replica.effects() == Texts{"lease 2 into 1", "retry 1"});
  replica.state.retry(replica.retry);
  replica.lease(2);
  replica.state.unreadable(replica.from(0));
  CHECK(replica.effects() ==
        Texts{"lease 2 into 1", "fetch 0 into 1", "fetch 1 into 1", "retry 2", "cancel 1"});
  replica.state.cancelled(replica.from(1));
  CHECK(replica.effects() == Texts{"release 1"});
  // A newer one does not have to wait, nor what comes after one that was refused.
  replica.state.announce(3);
  CHECK(replica.effects() == Texts{"lease 3 into 1"});
  replica.state.announce(4);
  replica.state.not_leased();
  CHECK(replica.effects() == Texts{"lease 4 into 1"});
}

TEST_CASE("nothing that was fetched under a revoked lease is installed") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.announce(2);
  replica.lease(2);
  replica.state.fetched(replica.from(0), 10);
  replica.effects();
  replica.state.revoked(99);
  CHECK(replica.effects().empty());
  replica.state.revoked(1);
  CHECK(replica.effects() == Texts{"cancel 1"});
  replica.state.cancelled(replica.from(1));
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
  replica.lease(2);
  CHECK(replica.effects() == Texts{"fetch 0 into 1", "fetch 1 into 1"});
  replica.fetched();
  replica.state.confirmed(false);
  CHECK(replica.effects() == Texts{"confirm 2", "retry 1"});
  CHECK(replica.state.version() == 1);
}

TEST_CASE("an in-place replica that lost its lease stays paused until it has a whole version") {
  Driven replica = serving(Placement::in_place);
  replica.state.announce(2);
  replica.lease(2);
  replica.both(&ReplicaState::paused);
  replica.effects();
  replica.state.revoked(1);
  replica.both(&ReplicaState::cancelled);
  CHECK(replica.effects() ==
        Texts{"cancel 0", "cancel 1", "out: its shards hold no common version", "lease 2 into 0"});
  CHECK_FALSE(replica.state.in_service());
  // Before it has begun to write, the old version is still there.
  Driven early = serving(Placement::in_place);
  early.state.announce(2);
  early.lease(2);
  early.state.revoked(1);
  early.effects();
  early.both(&ReplicaState::paused);
  CHECK(early.effects() == Texts{"resume 1 at 0", "resume 1 at 1"});
}

TEST_CASE("with a second buffer a failed installation brings all back to the version before") {
  Driven replica = serving(Placement::second_buffer);
  replica.fetch(2);
  replica.state.confirmed(true);
  replica.both(&ReplicaState::paused);
  replica.effects();
  replica.state.install_failed(replica.from(0));
  CHECK(replica.effects().empty());
  replica.state.installed(replica.from(1), 2, 1);
  CHECK(replica.effects() == Texts{"retry 1", "install 1 at 0", "install 1 at 1"});
  CHECK(replica.state.doing(0) == "installing version 1");
  replica.installed(1, 0);
  CHECK(replica.effects() == Texts{"resume 1 at 0", "resume 1 at 1"});
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects().empty());
  CHECK(replica.state.in_service());
  CHECK(replica.state.version() == 1);
  replica.state.retry(replica.retry);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
}

TEST_CASE("where there is no way back, a failed installation puts the replica out of service") {
  const Placement placement = GENERATE(Placement::in_place, Placement::staging);
  Driven replica = serving(placement);
  replica.state.announce(2);
  replica.lease(2);
  if (placement == Placement::in_place) replica.both(&ReplicaState::paused);
  replica.fetched();
  replica.state.confirmed(true);
  if (placement == Placement::staging) replica.both(&ReplicaState::paused);
  replica.effects();
  replica.state.installed(replica.from(0), 2, 0);
  replica.state.install_failed(replica.from(1));
  CHECK(replica.effects() == Texts{"out: a shard could not install version 2", "retry 1"});
  replica.state.retry(replica.retry);
  replica.lease(2);
  // The one that has it does not fetch it again.
  CHECK(replica.effects() == Texts{"lease 2 into 0", "fetch 1 into 0"});
  replica.state.fetched(replica.from(1), 10);
  replica.state.confirmed(true);
  replica.state.installed(replica.from(1), 2, 0);
  replica.both(&ReplicaState::resumed);
  CHECK(replica.effects() == Texts{"confirm 2", "install 2 at 1", "resume 2 at 0", "resume 2 at 1",
                                   "committed 2 in 0 moved 10"});
}

TEST_CASE("a shard that is lost while all go back leaves the others to a later version") {
  Driven replica = serving(Placement::second_buffer);
  replica.fetch(2);
  replica.state.confirmed(true);
  replica.both(&ReplicaState::paused);
  replica.state.install_failed(replica.from(0));
  replica.state.installed(replica.from(1), 2, 1);
  replica.effects();
  CHECK(replica.lose(0) == Texts{"out: not all of its shards are there"});
  CHECK(replica.state.doing(1) == "installing version 1");
  replica.state.installed(replica.from(1), 1, 0);
  CHECK(replica.effects().empty());
  CHECK(replica.come(0, Placement::second_buffer, 3).empty());
  replica.state.retry(replica.retry);
  CHECK(replica.effects() == Texts{"lease 2 into 1"});
}

TEST_CASE("a shard that is lost puts its replica out of service at every step") {
  const Texts out{"out: not all of its shards are there"};
  for (int step = 0; step < 7; ++step) {
    CAPTURE(step);
    Driven replica = serving(Placement::second_buffer);
    if (step >= 1) replica.state.announce(2);
    if (step >= 2) replica.lease(2);
    if (step >= 3) replica.fetched();
    if (step >= 4) replica.state.confirmed(true);
    if (step >= 5) replica.both(&ReplicaState::paused);
    if (step >= 6) replica.installed(2, 1);
    replica.effects();
    Texts all = replica.lose(0);
    if (step == 1) replica.lease(2);
    if (step == 2) replica.state.cancelled(replica.from(1));
    if (step == 3) replica.state.confirmed(true);
    if (step == 4) replica.state.paused(replica.from(1));
    if (step == 5) replica.state.installed(replica.from(1), 2, 1);
    if (step == 6) replica.state.resumed(replica.from(1));
    const Texts then = replica.effects();
    all.insert(all.end(), then.begin(), then.end());
    const Texts expected[] = {
        {out[0], "pause 1"},
        {out[0], "release 1", "pause 1"},
        {out[0], "cancel 1", "release 1", "pause 1"},
        {out[0], "pause 1"},
        out,
        out,
        {out[0], "pause 1"},
    };
    CHECK(all == expected[step]);
    CHECK_FALSE(replica.state.in_service());
    replica.state.paused(replica.from(1));
    replica.state.announce(2);
    replica.effects();
    // One that comes back is brought to the newest version before anybody is resumed.
    const bool has = step >= 5;
    CHECK(replica.come(0, Placement::second_buffer, 3) == Texts{"lease 2 into 1"});
    replica.lease(2);
    CHECK(replica.effects() ==
          (has ? Texts{"fetch 0 into 1"} : Texts{"fetch 0 into 1", "fetch 1 into 1"}));
  }
}

TEST_CASE("a shard that answers badly or not at all is expelled, until it comes back") {
  Driven replica = serving(Placement::second_buffer);
  replica.state.announce(2);
  replica.lease(2);
  replica.effects();
  replica.state.fetched(replica.from(0), 9);
  CHECK(replica.effects() == Texts{"expel 0", "out: not all of its shards are there", "cancel 1"});
  // The roster may not have heard of it.
  replica.state.update(*replica.roster);
  CHECK(replica.state.seat(0) == 0);
  replica.state.failed({0, 1}, broken);
  replica.state.failed({1, 1}, broken);
  CHECK(replica.effects().empty());
  replica.state.failed(replica.from(1), broken);
  CHECK(replica.effects() == Texts{"expel 1", "release 1"});
  CHECK(replica.come(0, Placement::second_buffer, 3).empty());
  CHECK(replica.come(1, Placement::second_buffer, 4) == Texts{"lease 2 into 0"});
}

}  // namespace
}  // namespace weir
