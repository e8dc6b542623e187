// Goal: exactly the expected members join, each once, and each must hold what the plan gives it.
// Method: the decisions are driven directly, and every refusal leaves them as they were.

#include "actors/membership.hpp"

#include <catch2/catch_test_macros.hpp>

#include "actors/publication.hpp"

using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 0};
constexpr ShardId first{Side::rollout, 0, 0};
constexpr ShardId second{Side::rollout, 0, 1};
const ExchangeOptions options{.host = {}, .rollout_ranks = 2};
constexpr Digest digest{1, 2};

/// Four elements of two bytes for the first rollout shard, nothing for the second.
Plan small_plan() {
  Copy copy;
  copy.extent = {4};
  copy.source_stride = copy.target_stride = {2};
  Plan plan;
  plan.parts = {{first, {copy}}, {second, {}}};
  plan.digest = digest;
  return plan;
}

Membership all_joined() {
  Membership membership(options);
  REQUIRE(membership.join(trainer, 1));
  REQUIRE(membership.join(first, 2));
  REQUIRE(membership.join(second, 2));
  return membership;
}

TEST_CASE("members join in any order, until none is missing") {
  Membership membership(options);
  CHECK(membership.missing(5) == "trainer 0.0, rollout 0.0, rollout 0.1");
  CHECK(membership.missing(1) == "trainer 0.0 and 2 more");
  REQUIRE(membership.join(second, 2));
  REQUIRE(membership.join(trainer, 1));
  CHECK(membership.missing(5) == "rollout 0.0");
  CHECK_FALSE(membership.all_joined());
  REQUIRE(membership.join(first, 2));
  CHECK(membership.all_joined());
  CHECK(membership.missing(5).empty());
}

TEST_CASE("unexpected and duplicate members are refused, and the others go on") {
  Membership membership(options);
  const std::string beyond =
      " is not a member of this exchange: its replica or rank is beyond the number that the "
      "exchange was told";
  for (const ShardId& stranger : {ShardId{Side::trainer, 0, 1}, ShardId{Side::trainer, 1, 0},
                                  ShardId{Side::rollout, 0, 2}, ShardId{Side::rollout, 1, 0}}) {
    CHECK(membership.join(stranger, 2).error() ==
          Error{ErrorCode::refused, text_of(stranger) + beyond});
  }
  CHECK(membership.join(first, 3).error() ==
        Error{ErrorCode::refused,
              "rollout 0.0 says that its replica has 3 ranks, but the exchange expects 2"});
  REQUIRE(membership.join(first, 2));
  CHECK(membership.join(first, 2).error() ==
        Error{ErrorCode::refused,
              "rollout 0.0 has joined already: two members must not have the same side, replica "
              "and rank"});
  CHECK(membership.missing(5) == "trainer 0.0, rollout 0.1");
}

TEST_CASE("all members must hold the plan that was computed") {
  Membership membership = all_joined();
  CHECK(membership.hold(first, digest, 8).error() ==
        Error{ErrorCode::refused, "rollout 0.0 reports a plan that it was not sent"});
  membership.planned(small_plan());
  CHECK(membership.hold(first, {1, 3}, 8).error() ==
        Error{ErrorCode::invalid,
              "rollout 0.0 holds plan 00000000000000010000000000000003, but the exchange computed "
              "00000000000000010000000000000002"});
  CHECK(membership.hold(first, digest, 7).error() ==
        Error{ErrorCode::invalid, "rollout 0.0 prepared 7 bytes, but its part of the plan has 8"});
  REQUIRE(membership.hold(first, digest, 8));
  CHECK_FALSE(membership.hold(first, digest, 8));
  REQUIRE(membership.hold(second, digest, 0));
  CHECK_FALSE(membership.all_holding());
  REQUIRE(membership.hold(trainer, digest, 0));
  CHECK(membership.all_holding());
}

TEST_CASE("the membership knows what each member is doing") {
  Membership membership(options);
  CHECK(membership.doing(first) == "joining");
  membership = all_joined();
  CHECK(membership.doing(first) == "waiting for the others to join");
  membership.planned(small_plan());
  CHECK(membership.doing(first) == "preparing its part of the plan");
  REQUIRE(membership.hold(first, digest, 8));
  CHECK(membership.doing(first) == "waiting for the others to prepare");
}

TEST_CASE("options that make no exchange are refused") {
  REQUIRE(check(options));
  ExchangeOptions none = options;
  none.trainer_ranks = 0;
  CHECK(check(none).error() ==
        Error{ErrorCode::invalid,
              "the exchange has no trainer shards: set trainer_replicas and trainer_ranks to at "
              "least 1"});
  none = options;
  none.rollout_replicas = 0;
  CHECK(check(none).error() ==
        Error{ErrorCode::invalid,
              "the exchange has no rollout shards: set rollout_replicas and rollout_ranks to at "
              "least 1"});
  ExchangeOptions many = options;
  many.trainer_replicas = many.rollout_replicas = 1U << 31;
  CHECK(check(many).error() ==
        Error{ErrorCode::invalid, "the exchange has more members than the limit of 65536"});
  many = options;
  many.rollout_replicas = many.rollout_ranks = 0xffff'ffff;
  CHECK_FALSE(check(many));
  ExchangeOptions hasty = options;
  hasty.join_deadline = 0s;
  CHECK(check(hasty).error() ==
        Error{ErrorCode::invalid, "join_deadline must be longer than nothing"});
  hasty = options;
  hasty.publish_deadline = -1s;
  CHECK(check(hasty).error() ==
        Error{ErrorCode::invalid, "publish_deadline must be longer than nothing"});
  hasty = options;
  hasty.silence_max = 999ms;
  CHECK(check(hasty).error() == Error{ErrorCode::invalid, "silence_max must be at least 1 s"});
}

TEST_CASE("a report spans the request, the last trainer, the last commit, the slowest check") {
  Publication publication(9, 100, 2, 10s);
  publication.ready(14s);
  CHECK_FALSE(publication.committed(30, 20s));
  CHECK(publication.committed(70, 17s));
  CHECK_FALSE(publication.verified(2s));
  CHECK(publication.verified(1s));
  const VersionReport& report = publication.report();
  CHECK(report.version == 9);
  CHECK(report.bytes_needed == 100);
  CHECK(report.bytes_moved == 100);
  CHECK(report.update == 4s);
  CHECK(report.publish == 6s);
  CHECK(report.verify == 2s);
}

}  // namespace
}  // namespace weir
