// Goal: members and exchanges that can't be are refused before anyone looks for the other, and a
// member shows its memory to peers no longer than it runs.
// Method: `run_member` and `Exchange::start` with options that contradict themselves; where a
// member gets as far as looking, no exchange is there.

#include "actors/member.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/sim_model.hpp"
#include "tests/actors/fake_transport.hpp"
#include "tests/actors/shown_results.hpp"

using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 0};
const sim::MatrixModel model{.rows = 6, .columns = 8};

/// A trainer that nothing is wrong with, but that nobody listens at its port.
struct LoneTrainer {
  LoneTrainer() {
    options.port = 1;
    options.manifest = model.manifest_of(trainer, 1);
    options.regions = {region.get()};
    options.transport = &transport;
    options.connect_deadline = 1ms;
  }
  [[nodiscard]] Error error() const {
    const auto ended = run_member(options);
    REQUIRE_FALSE(ended);
    return ended.error();
  }

  std::vector<std::byte> memory = std::vector<std::byte>(model.bytes_of(trainer, 1));
  std::unique_ptr<Region> region = Region::borrow(memory);
  FakeTransport transport{[](int) { return Manner::succeed; }, nullptr};
  MemberOptions options;
};

TEST_CASE("options that make no member are refused with what to change") {
  LoneTrainer lone;
  SECTION("transport") {
    lone.options.transport = nullptr;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "trainer 0.0 has no transport: set MemberOptions::transport"});
  }
  SECTION("regions") {
    lone.options.regions = {};
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "trainer 0.0 has 0 regions, but its manifest lists 1"});
  }
  SECTION("region size") {
    lone.options.manifest.regions[0].bytes += 1;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid,
                "region 0 of trainer 0.0 has 192 bytes, but its manifest lists 193"});
  }
  SECTION("placement") {
    lone.options.manifest.shard.side = Side::rollout;
    lone.options.placement = Placement::second_buffer;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "rollout 0.0 has 1 slots, but its placement needs 2"});
  }
  SECTION("a placement that there is not") {
    lone.options.manifest.shard.side = Side::rollout;
    lone.options.placement = static_cast<Placement>(9);
    CHECK(lone.error() == Error{ErrorCode::invalid, "rollout 0.0 reports no known placement"});
  }
  SECTION("deadline") {
    lone.options.connect_deadline = 0ms;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "connect_deadline must be longer than nothing"});
  }
  SECTION("silence") {
    lone.options.silence_max = 0ms;
    CHECK(lone.error() == Error{ErrorCode::invalid, "silence_max must be at least 1 s"});
  }
  SECTION("manifest") {
    lone.options.manifest.pieces[0].offset = 1;
    CHECK(lone.error() == check(lone.options.manifest).error());
  }
  CHECK(lone.transport.exposed == 0);
}

TEST_CASE("options that make no exchange are refused with what to change") {
  struct Case {
    std::string text;
    void (*spoil)(ExchangeOptions& options);
  };
  const std::vector<Case> cases{
      {"the exchange has no trainer shards: set trainer_replicas and trainer_ranks to at least 1",
       [](ExchangeOptions& options) { options.trainer_ranks = 0; }},
      {"the exchange has no rollout shards: set rollout_replicas and rollout_ranks to at least 1",
       [](ExchangeOptions& options) { options.rollout_replicas = 0; }},
      {"rollout_replicas_min must not be above rollout_replicas",
       [](ExchangeOptions& options) { options.rollout_replicas_min = 2; }},
      {"the exchange has more members than the limit of 65536",
       [](ExchangeOptions& options) { options.rollout_ranks = 65'536; }},
      {"the exchange has more members than the limit of 65536",
       [](ExchangeOptions& options) {
         options.trainer_replicas = options.trainer_ranks = ~std::uint32_t{0};
       }},
      {"join_deadline must be longer than nothing",
       [](ExchangeOptions& options) { options.join_deadline = 0s; }},
      {"publish_deadline must be longer than nothing",
       [](ExchangeOptions& options) { options.publish_deadline = 0s; }},
      {"lease_deadline must be longer than nothing",
       [](ExchangeOptions& options) { options.lease_deadline = -1s; }},
      {"pause_deadline must be longer than nothing",
       [](ExchangeOptions& options) { options.pause_deadline = 0s; }},
      {"install_deadline must be longer than nothing",
       [](ExchangeOptions& options) { options.install_deadline = 0s; }},
      {"resume_deadline must be longer than nothing",
       [](ExchangeOptions& options) { options.resume_deadline = 0s; }},
      {"retry_delay must be longer than nothing",
       [](ExchangeOptions& options) { options.retry_delay = 0s; }},
      {"silence_max must be at least 1 s",
       [](ExchangeOptions& options) { options.silence_max = 999ms; }},
  };
  for (const Case& one : cases) {
    ExchangeOptions options;
    one.spoil(options);
    const auto exchange = Exchange::start(options);
    REQUIRE_FALSE(exchange);
    CHECK(exchange.error() == Error{ErrorCode::invalid, one.text});
  }
}

TEST_CASE("a member without an exchange can't publish, and says so in time") {
  LoneTrainer lone;
  lone.options.connect_deadline = 60s;
  auto member = Member::start(lone.options);
  REQUIRE(member);
  const auto unknown = (*member)->publish(1);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error() == Error{ErrorCode::refused,
                                 "trainer 0.0 can't publish version 1: it did not begin to write "
                                 "it"});
  const auto begun = (*member)->begin_update(0, 1s);
  REQUIRE_FALSE(begun);
  CHECK(begun.error() == Error{ErrorCode::invalid,
                               "can't publish version 0: it must be greater than the last one, 0"});
}

TEST_CASE("a rollout shard does not publish") {
  LoneTrainer lone;
  lone.options.manifest.shard.side = Side::rollout;
  auto member = Member::start(lone.options);
  REQUIRE(member);
  const Error expected{ErrorCode::invalid, "rollout 0.0 is no trainer shard"};
  CHECK((*member)->begin_update(1, 1s).error() == expected);
  CHECK((*member)->publish(1).error() == expected);
}

TEST_CASE("a trainer's regions are shown to peers only while it runs") {
  LoneTrainer lone;
  CHECK_THAT(lone.error().text, StartsWith("trainer 0.0 finds no exchange within "));
  CHECK(lone.transport.exposed_ever == 1);
  CHECK(lone.transport.exposed == 0);
}

TEST_CASE("a trainer whose regions can't be shown to peers says why") {
  LoneTrainer lone;
  lone.transport.refuse_to_expose = true;
  CHECK(lone.error() == Error{ErrorCode::refused, "trainer 0.0 can't show region 0: no"});
}

}  // namespace
}  // namespace weir
