// Goal: exactly the expected members join, each once, each holds what the plan gives it, and who
// comes late or again disturbs nobody.
// Method: the decisions are driven directly, with manifests of a small model; every refusal leaves
// them as they were.

#include "actors/membership.hpp"

#include <catch2/catch_test_macros.hpp>

#include "actors/internal/sim_model.hpp"
#include "tests/actors/shown_results.hpp"

using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 0};
constexpr ShardId peer{Side::trainer, 0, 1};
constexpr ShardId first{Side::rollout, 0, 0};
constexpr ShardId late{Side::rollout, 1, 0};

/// Two trainer ranks; two rollout replicas of one rank, of which one is waited for.
ExchangeOptions options() {
  ExchangeOptions options;
  options.trainer_ranks = 2;
  options.rollout_replicas = 2;
  options.rollout_replicas_min = 1;
  return options;
}

Manifest manifest_of(const ShardId& shard) {
  return sim::MatrixModel{.rows = 6, .columns = 8}.manifest_of(shard,
                                                               shard.side == Side::trainer ? 2 : 1);
}

struct Driven {
  Membership membership{options()};

  std::uint64_t join(const ShardId& shard, MemberStatus status = {}) {
    const Result<std::uint64_t> seat = membership.join(manifest_of(shard), std::move(status));
    REQUIRE(seat);
    return *seat;
  }
  std::vector<ShardId> plan() {
    const Membership::Planned planned = membership.plan();
    CHECK(planned.refused.empty());
    for (const ShardId& shard : planned.to_send) membership.sent(shard);
    return planned.to_send;
  }
  Result<void> hold(const ShardId& shard) {
    const Plan part = membership.part_of(shard);
    std::uint64_t bytes = 0;
    for (const PlanPart& one : part.parts) {
      for (const Copy& copy : one.copies) bytes += target_bytes(copy);
    }
    return membership.hold(shard, membership.seat(shard), part.digest, bytes);
  }
};

/// Both trainer ranks and the first rollout replica hold their parts.
Driven formed() {
  Driven driven;
  for (const ShardId& shard : {trainer, peer, first}) driven.join(shard);
  driven.plan();
  for (const ShardId& shard : {trainer, peer, first}) REQUIRE(driven.hold(shard));
  REQUIRE(driven.membership.formed());
  return driven;
}

TEST_CASE("members join in any order, and are planned for once enough are there") {
  Driven driven;
  CHECK(driven.membership.missing(9) == "trainer 0.0, trainer 0.1, rollout 0.0, rollout 1.0");
  CHECK(driven.membership.missing(1) == "trainer 0.0 and 3 more");
  CHECK(driven.membership.doing(first) == "joining");
  CHECK(driven.membership.seat(first) == 0);
  CHECK(driven.join(first) == 1);
  CHECK(driven.membership.doing(first) == "waiting for the others to join");
  CHECK(driven.join(peer) == 2);
  CHECK(driven.plan().empty());
  CHECK(driven.join(trainer) == 3);
  CHECK(driven.plan() == std::vector<ShardId>{trainer, peer, first});
  CHECK(driven.membership.doing(first) == "preparing its part of the plan");
  CHECK(driven.plan().empty());
  CHECK(driven.membership.roster().members.empty());
  REQUIRE(driven.hold(peer));
  REQUIRE(driven.hold(trainer));
  CHECK_FALSE(driven.membership.formed());
  REQUIRE(driven.hold(first));
  CHECK(driven.membership.formed());
  CHECK(driven.membership.doing(first) == "holding its part of the plan");
  CHECK(driven.membership.missing(9) == "rollout 1.0");
}

TEST_CASE("unexpected and duplicate members are refused, and the others go on") {
  Driven driven;
  Membership& membership = driven.membership;
  for (const ShardId& stranger : {ShardId{Side::trainer, 0, 2}, ShardId{Side::trainer, 1, 0},
                                  ShardId{Side::rollout, 0, 1}, ShardId{Side::rollout, 2, 0}}) {
    Manifest manifest = manifest_of(first);
    manifest.shard = stranger;
    CHECK(membership.join(manifest, {}).error() ==
          Error{ErrorCode::refused,
                text_of(stranger) +
                    " is not a member of this exchange: its replica or rank is beyond the number "
                    "that the exchange was told"});
  }
  Manifest manifest = manifest_of(first);
  manifest.replica_ranks = 3;
  CHECK(membership.join(manifest, {}).error() ==
        Error{ErrorCode::refused,
              "rollout 0.0 says that its replica has 3 ranks, but the exchange expects 1"});
  MemberStatus status;
  status.running = true;
  CHECK(membership.join(manifest_of(first), status).error() ==
        Error{ErrorCode::invalid, "rollout 0.0 runs without a version"});
  CHECK(driven.join(first) == 1);
  CHECK(membership.join(manifest_of(first), {}).error() ==
        Error{ErrorCode::unavailable,
              "rollout 0.0 is there already: two members must not have the same side, replica and "
              "rank, and one that has died is noticed within silence_max"});
  CHECK(membership.seat(first) == 1);
}

TEST_CASE("what a member holds must be what it was sent") {
  Driven driven;
  Membership& membership = driven.membership;
  for (const ShardId& shard : {trainer, peer, first}) driven.join(shard);
  const Error unsent{ErrorCode::refused, "rollout 0.0 reports a plan that it was not sent"};
  CHECK(membership.hold(first, 3, {}, 0).error() == unsent);
  driven.plan();
  const Plan part = membership.part_of(first);
  // The matrix has 6 by 8 elements of 4 bytes.
  CHECK(membership.hold(first, 2, part.digest, 192).error() == unsent);
  CHECK(
      membership.hold(first, 3, {1, 3}, 192).error() ==
      Error{ErrorCode::invalid,
            "rollout 0.0 holds plan 00000000000000010000000000000003, but the exchange computed " +
                text_of(part.digest)});
  CHECK(membership.hold(first, 3, part.digest, 191).error() ==
        Error{ErrorCode::invalid,
              "rollout 0.0 prepared 191 bytes, but its part of the plan has 192"});
  CHECK(membership.roster().members.empty());
  REQUIRE(membership.hold(first, 3, part.digest, 192));
  REQUIRE(membership.hold(first, 3, part.digest, 192));
  const Roster roster = membership.roster();
  CHECK(roster.members.size() == 1);
  CHECK(roster.find(first)->bytes_needed == 192);
  CHECK(roster.sources == std::vector<ShardId>{trainer, peer});
  CHECK(roster.trainer_ranks == 2);
  CHECK(roster.rollout_ranks == 1);
}

TEST_CASE("a replica that comes late gets a plan of its own, and the others keep theirs") {
  Driven driven = formed();
  const Plan before = driven.membership.part_of(first);
  driven.join(late);
  CHECK(driven.plan() == std::vector<ShardId>{late});
  CHECK(driven.membership.part_of(first) == before);
  const Plan part = driven.membership.part_of(late);
  REQUIRE(part.parts.size() == 1);
  CHECK(part.parts.front().target == late);
  REQUIRE(driven.hold(late));
  // Equal layouts may stand in for each other.
  const Roster roster = driven.membership.roster();
  CHECK(roster.patterns.at({Side::rollout, 0}) == roster.patterns.at({Side::rollout, 1}));
}

TEST_CASE("a late replica of another layout has another pattern, one that can't be planned goes") {
  Driven driven = formed();
  Manifest other = manifest_of(late);
  other.regions[0].bytes += 64;
  REQUIRE(driven.membership.join(other, {}));
  CHECK(driven.plan() == std::vector<ShardId>{late});
  REQUIRE(driven.hold(late));
  const Roster roster = driven.membership.roster();
  CHECK(roster.patterns.at({Side::rollout, 0}) != roster.patterns.at({Side::rollout, 1}));

  Driven second = formed();
  Manifest hollow = manifest_of(late);
  hollow.pieces.clear();
  REQUIRE(second.membership.join(hollow, {}));
  const Membership::Planned planned = second.membership.plan();
  CHECK(planned.to_send.empty());
  REQUIRE(planned.refused.size() == 1);
  CHECK(planned.refused[0].first == late);
  second.membership.lost(late);
  CHECK(second.membership.roster().members.size() == 3);
  second.join(late);
  CHECK(second.plan() == std::vector<ShardId>{late});
}

TEST_CASE("a member that comes back takes over the part of the one before it, under a new seat") {
  Driven driven = formed();
  driven.membership.lost(first);
  CHECK(driven.membership.seat(first) == 0);
  CHECK(driven.membership.roster().find(first) == nullptr);
  Manifest other = manifest_of(first);
  other.regions[0].bytes += 64;
  CHECK(driven.membership.join(other, {}).error() ==
        Error{ErrorCode::refused,
              "rollout 0.0 has another manifest than the member whose place it takes: start it "
              "with the same model and layout, or start a new exchange"});
  Manifest same = manifest_of(first);
  same.regions[0].tickets = {{"shm", "elsewhere"}};
  CHECK(*driven.membership.join(same, {}) == 4);
  CHECK(driven.plan() == std::vector<ShardId>{first});
  REQUIRE(driven.hold(first));
  CHECK(driven.membership.roster().find(first)->seat == 4);
  CHECK(driven.membership.roster().find(first)->regions[0].tickets.size() == 1);
}

TEST_CASE("readers learn of a trainer's memory after it holds its part, and once") {
  Driven driven = formed();
  CHECK(driven.membership.readers_before(trainer).empty());
  driven.membership.lost(trainer);
  Manifest again = manifest_of(trainer);
  again.regions[0].tickets = {{"shm", "elsewhere"}};
  REQUIRE(driven.membership.join(again, {}));
  CHECK(driven.plan() == std::vector<ShardId>{trainer});
  REQUIRE(driven.hold(trainer));
  CHECK(driven.membership.readers_before(trainer) == std::vector<ShardId>{first});
  CHECK(driven.membership.part_of(first).sources[0].regions[0].tickets.size() == 1);
  driven.membership.sent(first);
  CHECK(driven.membership.readers_before(trainer).empty());
  REQUIRE(driven.hold(first));
}

TEST_CASE("seats rise above any that a member ever had") {
  Driven driven;
  MemberStatus status;
  status.seat = 40;
  CHECK(driven.join(first, status) == 41);
  CHECK(driven.join(late) == 42);
  status.seat = 7;
  CHECK(driven.join(peer, status) == 43);
  status.seat = ~std::uint64_t{0};
  CHECK(driven.membership.join(manifest_of(trainer), status).error().code == ErrorCode::invalid);
  CHECK(driven.join(trainer) == 44);
}

TEST_CASE("options that make no exchange are refused") {
  const auto refusal = [](auto change) {
    ExchangeOptions changed = options();
    change(changed);
    const Result<void> checked = check(changed);
    return checked ? std::string() : checked.error().text;
  };
  CHECK(refusal([](ExchangeOptions&) {}).empty());
  CHECK(refusal([](ExchangeOptions& o) { o.trainer_ranks = 0; }) ==
        "the exchange has no trainer shards: set trainer_replicas and trainer_ranks to at least 1");
  CHECK(refusal([](ExchangeOptions& o) { o.rollout_replicas = o.rollout_replicas_min = 0; }) ==
        "the exchange has no rollout shards: set rollout_replicas and rollout_ranks to at least 1");
  CHECK(refusal([](ExchangeOptions& o) { o.rollout_replicas_min = 3; }) ==
        "rollout_replicas_min must not be above rollout_replicas");
  const std::string many = "the exchange has more members than the limit of 65536";
  CHECK(refusal([](ExchangeOptions& o) { o.trainer_replicas = o.rollout_replicas = 1U << 31; }) ==
        many);
  CHECK(refusal([](ExchangeOptions& o) { o.rollout_replicas = o.rollout_ranks = 0xffff'ffff; }) ==
        many);
  CHECK(refusal([](ExchangeOptions& o) { o.join_deadline = 0s; }) ==
        "join_deadline must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.publish_deadline = -1s; }) ==
        "publish_deadline must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.lease_deadline = 0s; }) ==
        "lease_deadline must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.pause_deadline = 0s; }) ==
        "pause_deadline must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.install_deadline = 0s; }) ==
        "install_deadline must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.resume_deadline = 0s; }) ==
        "resume_deadline must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.retry_delay = 0s; }) ==
        "retry_delay must be longer than nothing");
  CHECK(refusal([](ExchangeOptions& o) { o.silence_max = 999ms; }) ==
        "silence_max must be at least 1 s");
}

}  // namespace
}  // namespace weir
