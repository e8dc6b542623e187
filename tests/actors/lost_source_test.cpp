#include <catch2/catch_test_macros.hpp>
#include <variant>

#include "actors/ledger_state.hpp"

namespace weir {

// Goal: a lease does not outlive any process that it is read from, since the next one under the
// same name has other bytes at the same places. Method: rosters by hand, without a message.

namespace {

Roster roster_of(const std::vector<std::pair<ShardId, std::uint64_t>>& seats) {
  Roster roster;
  roster.trainer_ranks = 2;
  roster.rollout_ranks = 1;
  roster.sources = {{Side::trainer, 0, 0}, {Side::trainer, 0, 1}};
  roster.patterns = {{{Side::trainer, 0}, 0}, {{Side::rollout, 0}, 0}, {{Side::rollout, 1}, 0}};
  for (const auto& [shard, seat] : seats) {
    MemberInfo member;
    member.shard = shard;
    member.seat = seat;
    member.status.slots.resize(shard.side == Side::trainer ? 1 : 0);
    roster.members[shard] = member;
  }
  return roster;
}

const ShardId trainer_0{Side::trainer, 0, 0};
const ShardId trainer_1{Side::trainer, 0, 1};
const ShardId rollout_0{Side::rollout, 0, 0};
const ShardId rollout_1{Side::rollout, 1, 0};

/// Of the lease that was granted last.
std::uint64_t granted(LedgerState& ledger) {
  std::uint64_t number = 0;
  for (const LedgerEffect& effect : ledger.take_effects()) {
    if (const auto* leased = std::get_if<ledger::Leased>(&effect)) number = leased->lease.number;
  }
  REQUIRE(number != 0);
  return number;
}

}  // namespace

TEST_CASE("a lease ends when a trainer that it is read from dies, also if it is back at once",
          "[ledger]") {
  LedgerState ledger({});
  ledger.update(roster_of({{trainer_0, 1}, {trainer_1, 2}, {rollout_0, 3}}));
  for (const ShardId& trainer : {trainer_0, trainer_1}) {
    REQUIRE(ledger.acquire(trainer, 1));
    REQUIRE(ledger.staged(trainer, 1));
  }
  ledger.lease(1, 0, 0, 3);
  const std::uint64_t lease = granted(ledger);
  ledger.update(roster_of({{trainer_0, 1}, {trainer_1, 4}, {rollout_0, 3}}));
  const auto effects = ledger.take_effects();
  REQUIRE(effects.size() == 1);
  REQUIRE(std::get<ledger::Revoked>(effects[0]).lease == lease);
  REQUIRE_FALSE(ledger.confirm(lease));
}

TEST_CASE("a lease ends when a rollout that it is read from dies", "[ledger]") {
  LedgerState ledger({});
  ledger.update(roster_of({{trainer_0, 1}, {trainer_1, 2}, {rollout_0, 3}, {rollout_1, 4}}));
  for (const ShardId& trainer : {trainer_0, trainer_1}) {
    REQUIRE(ledger.acquire(trainer, 1));
    REQUIRE(ledger.staged(trainer, 1));
  }
  ledger.committed(1, 1, 0, 4);
  ledger.update(roster_of({{trainer_0, 1}, {rollout_0, 3}, {rollout_1, 4}}));
  ledger.lease(1, 0, 0, 3);
  const std::uint64_t lease = granted(ledger);
  ledger.update(roster_of({{trainer_0, 1}, {rollout_0, 3}, {rollout_1, 5}}));
  REQUIRE_FALSE(ledger.confirm(lease));
}

}  // namespace weir
