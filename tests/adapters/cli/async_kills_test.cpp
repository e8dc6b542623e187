#include "adapters/cli/async_kills.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir::cli {

// Goal: kills happen once each, when their version is there, and are over when the process is back.
// Method: schedules of two shards a side, with times given by hand.

namespace {

using std::chrono::milliseconds;

const std::vector<ShardId> trainers = {{Side::trainer, 0, 0}, {Side::trainer, 0, 1}};
const std::vector<ShardId> rollouts = {{Side::rollout, 0, 0}, {Side::rollout, 1, 0}};

KillSchedule schedule_of(const std::vector<std::string>& texts) {
  std::vector<KillOrder> orders;
  for (const std::string& text : texts) {
    const auto order = parse_kill(text);
    REQUIRE(order);
    orders.push_back(*order);
  }
  auto schedule = KillSchedule::make(orders, trainers, rollouts, milliseconds(100));
  REQUIRE(schedule);
  return *schedule;
}

}  // namespace

TEST_CASE("a kill names a side, perhaps a shard, a version and perhaps a delay", "[cli][async]") {
  const auto any = parse_kill("trainer@7");
  REQUIRE(any);
  REQUIRE((any->any && any->shard.side == Side::trainer && any->version == 7));
  const auto one = parse_kill("rollout.1.0@3+50");
  REQUIRE(one);
  REQUIRE((!one->any && one->shard == ShardId{Side::rollout, 1, 0}));
  REQUIRE((one->version == 3 && one->after == milliseconds(50)));
}

TEST_CASE("a process is killed, started again and counted as back, once each", "[cli][async]") {
  KillSchedule schedule = schedule_of({"rollout.1.0@3+50"});
  REQUIRE(schedule.due(2, milliseconds(0)).empty());
  REQUIRE(schedule.due(3, milliseconds(10)).empty());
  REQUIRE_FALSE(schedule.pending());
  const auto kill = schedule.due(4, milliseconds(60));
  REQUIRE((kill.size() == 1 && kill[0].act == KillSchedule::Act::kill));
  REQUIRE(schedule.pending());
  REQUIRE(schedule.due(4, milliseconds(159)).empty());
  const auto restart = schedule.due(4, milliseconds(160));
  REQUIRE((restart.size() == 1 && restart[0].act == KillSchedule::Act::restart));
  schedule.seen(rollouts[1], 1, milliseconds(170));  // What its first process did.
  REQUIRE_FALSE(schedule.over());
  schedule.seen(rollouts[1], 2, milliseconds(180));
  REQUIRE(schedule.over());
  REQUIRE(schedule.kills()[0].ready_then == 4);
  REQUIRE(schedule.kills()[0].back_at - schedule.kills()[0].killed_at == milliseconds(120));
  REQUIRE(schedule.due(9, milliseconds(900)).empty());
}

TEST_CASE("a shard that is still away is killed again only once it is back", "[cli][async]") {
  KillSchedule schedule = schedule_of({"rollout.0.0@1", "rollout.0.0@1"});
  REQUIRE(schedule.due(1, milliseconds(0)).size() == 1);
  REQUIRE(schedule.due(1, milliseconds(100)).size() == 1);
  REQUIRE(schedule.due(1, milliseconds(200)).empty());
  schedule.seen(rollouts[0], 2, milliseconds(300));
  REQUIRE(schedule.due(1, milliseconds(300)).size() == 1);
  REQUIRE(schedule.kills()[1].life == 3);
}

TEST_CASE("kills of any shard take another one each time", "[cli][async]") {
  const KillSchedule schedule = schedule_of({"rollout@1", "rollout@2"});
  REQUIRE(schedule.kills()[0].order.shard == rollouts[0]);
  REQUIRE(schedule.kills()[1].order.shard == rollouts[1]);
}

}  // namespace weir::cli
