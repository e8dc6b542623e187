// Goal: what a peer sends is checked, never trusted: a member that lies, babbles or breaks the
// order is refused with a reason, nobody crashes, and whoever does not need it goes on.
// Method: actors written here speak for members or for an exchange, to the production actors on the
// other side, in virtual time (`world.hpp`).

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/actors/world.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 0};
constexpr ShardId rollout{Side::rollout, 0, 0};

ExchangeOptions one_and_one() {
  return {.join_deadline = 60s, .publish_deadline = 300s};
}

Payload payload_of(const std::string& bytes) {
  return {{bytes.begin(), bytes.end()}};
}

/// Asks the planner to let in whoever sends these bytes; the sender ends after the answer.
Result<caf::ok_atom> join(World& world, const Payload& payload) {
  return world.outcome(
      world.ask<caf::ok_atom>(JoinActor{world.planner()}, JoinAtom::value, payload));
}

std::string valid_manifest(const World& world, const ShardId& shard) {
  return encode(world.model.manifest_of(shard, 1));
}

TEST_CASE("manifests that can't be read are refused, and the exchange goes on") {
  World world(1, one_and_one());
  const std::string valid = valid_manifest(world, rollout);
  CHECK_FALSE(join(world, {}));
  for (int i = 0; i < 200; ++i) {
    std::string bytes = valid.substr(0, world.random().below(valid.size()));
    CHECK_FALSE(join(world, payload_of(bytes)));
    for (char& c : bytes) c = static_cast<char>(world.random().next());
    CHECK_FALSE(join(world, payload_of(bytes)));
  }
  // Well-formed, but of a shard that contradicts itself.
  Manifest broken = world.model.manifest_of(rollout, 1);
  broken.pieces[0].offset = 1;
  CHECK_FALSE(join(world, payload_of(encode(broken))));
  world.add_all();
  world.start_all();
  REQUIRE(world.outcome(world.await_plan()));
  REQUIRE(world.outcome(world.publish(1)));
}

TEST_CASE("a manifest over the limit is refused before it is read") {
  World world(1, one_and_one());
  const auto joined = join(world, {std::vector<char>(payload_bytes_max + 1)});
  REQUIRE_FALSE(joined);
  CHECK(joined.error() ==
        Error{ErrorCode::refused, "its manifest is larger than the limit of 67108864 bytes"});
  const auto own =
      to_payload(std::string(payload_bytes_max + 1, ' '), "the manifest of rollout 0.0");
  REQUIRE_FALSE(own);
  CHECK(
      own.error() ==
      Error{ErrorCode::refused,
            "the manifest of rollout 0.0 takes 67108865 bytes, more than the limit of 67108864 in "
            "one message: use more ranks or fewer pieces"});
  CHECK(to_payload(std::string(payload_bytes_max, ' '), "the manifest of rollout 0.0"));
}

TEST_CASE("a second member of one name is refused, and the first goes on") {
  World world(2, one_and_one());
  world.add_all();
  world.start(world.host(rollout));
  world.run_actors();
  World::Host& twin = world.add(rollout);
  world.start(twin);
  world.run_actors();
  REQUIRE(twin.ended);
  CHECK_THAT(twin.ended->error().text,
             StartsWith("rollout 0.0 can't join: rollout 0.0 has joined already"));
  world.start(world.host(trainer));
  REQUIRE(world.outcome(world.await_plan()));
  REQUIRE(world.outcome(world.publish(1)));
  CHECK(world.model.holds(rollout, 1, 1, world.host(rollout).memory.data()));
}

TEST_CASE("a nameless member, one that joins twice, and a latecomer are refused") {
  World world(2, {.rollout_ranks = 2, .join_deadline = 60s});
  const Payload first = payload_of(encode(world.model.manifest_of({Side::rollout, 0, 0}, 2)));
  const Payload second = payload_of(encode(world.model.manifest_of({Side::rollout, 0, 1}, 2)));
  caf::anon_send(world.planner(), JoinAtom::value, first);
  world.run_actors();
  std::string told;
  world.system().spawn([&](caf::event_based_actor* self) {
    self->request(world.planner(), caf::infinite, JoinAtom::value, first)
        .then([&, self](caf::ok_atom) {
          self->request(world.planner(), caf::infinite, JoinAtom::value, second)
              .then([&told](caf::ok_atom) { told = "let in"; },
                    [&told](caf::error& error) { told = from_caf(error).text; });
        });
  });
  // The greedy one ends, which ends the exchange; nobody is let in any more.
  const auto plan = world.outcome(world.await_plan());
  CHECK(told == "this member has joined as rollout 0.0");
  REQUIRE_FALSE(plan);
  CHECK(plan.error().text == "rollout 0.0 died while waiting for the others to join");
  CHECK(join(world, second).error() == Error{ErrorCode::unavailable, "the exchange has ended"});
}

TEST_CASE("the deadline for joining tells the last refusal") {
  World world(2, one_and_one());
  caf::anon_send(world.planner(), JoinAtom::value, payload_of(valid_manifest(world, rollout)));
  CHECK(world.outcome(world.await_plan()).error() ==
        Error{ErrorCode::timeout,
              "trainer 0.0, rollout 0.0 did not join within 60 s: start them, or raise "
              "join_deadline; the last member refused: a member must say who it is"});
}

/// Spawns a member of the exchange that joins as `rollout` and answers as `behavior` does.
void spawn_liar(World& world,
                const std::function<caf::behavior(caf::event_based_actor*)>& answers) {
  world.system().spawn([&world, answers](caf::event_based_actor* self) -> caf::behavior {
    Manifest manifest = world.model.manifest_of(rollout, 1);
    self->request(world.planner(), caf::infinite, JoinAtom::value, payload_of(encode(manifest)))
        .then([](caf::ok_atom) {});
    return answers(self);
  });
}

/// An honest rollout's answers, of which `lie` replaces some: the first that match win.
template <class... Lies>
void spawn_liar_who(World& world, Lies... lies) {
  spawn_liar(world, [lies...](caf::event_based_actor* self) -> caf::behavior {
    return {lies...,
            [](PlanAtom, const Payload& payload) {
              const auto plan = decode_plan(std::as_bytes(std::span(payload.bytes)));
              return PlanHeld{plan->digest, 6 * 8 * 4};
            },
            [](FetchAtom, std::uint64_t version, Duration) {
              return Fetched{version, 6 * 8 * 4};
            },
            [](CommitAtom, std::uint64_t version) { return version; },
            [](VerifyAtom, std::uint64_t version, Duration) { return version; },
            [self](EndAtom, const Ending&) {
              self->quit();
              return caf::ok_atom::value;
            }};
  });
}

/// The exchange must fail with that error, on the way to publishing version 1.
void check_failure(World& world, ErrorCode code, const std::string& text) {
  world.start(world.add(trainer));
  const auto plan = world.outcome(world.await_plan());
  const Error error = plan ? world.outcome(world.publish(1)).error() : plan.error();
  CHECK(error.code == code);
  CHECK_THAT(error.text, StartsWith(text));
  REQUIRE(world.outcome(world.end()));
  world.drain();
  CHECK(world.running() == 0);
}

TEST_CASE("a lying member ends the exchange with what it lied about") {
  World world(3, one_and_one());
  SECTION("none") {
    spawn_liar_who(world);
    world.start(world.add(trainer));
    REQUIRE(world.outcome(world.await_plan()));
    REQUIRE(world.outcome(world.publish(1)));
  }
  SECTION("another plan") {
    spawn_liar_who(world, [](PlanAtom, const Payload&) { return PlanHeld{{1, 2}, 192}; });
    check_failure(world, ErrorCode::invalid,
                  "rollout 0.0 holds plan 00000000000000010000000000000002, but the exchange");
  }
  SECTION("fewer bytes prepared") {
    spawn_liar_who(world, [](PlanAtom, const Payload& payload) {
      return PlanHeld{decode_plan(std::as_bytes(std::span(payload.bytes)))->digest, 191};
    });
    check_failure(world, ErrorCode::invalid,
                  "rollout 0.0 prepared 191 bytes, but its part of the plan has 192");
  }
  SECTION("an answer of another kind") {
    spawn_liar_who(world, [](PlanAtom, const Payload&) { return std::string("yes, yes"); });
    check_failure(world, ErrorCode::invalid,
                  "rollout 0.0 failed while preparing its part of the plan: ");
  }
  SECTION("another version fetched") {
    spawn_liar_who(world, [](FetchAtom, std::uint64_t version, Duration) {
      return Fetched{version + 1, 192};
    });
    check_failure(world, ErrorCode::refused,
                  "rollout 0.0 says that it has fetched version 2, which it was not asked for");
  }
  SECTION("more bytes fetched") {
    spawn_liar_who(world, [](FetchAtom, std::uint64_t version, Duration) {
      return Fetched{version, ~std::uint64_t{0}};
    });
    check_failure(world, ErrorCode::invalid,
                  "rollout 0.0 moved 18446744073709551615 of the 192 bytes of version 1");
  }
  SECTION("another version committed") {
    spawn_liar_who(world, [](CommitAtom, std::uint64_t) { return std::uint64_t{0}; });
    check_failure(world, ErrorCode::refused,
                  "rollout 0.0 says that it has committed version 0, which it was not asked for");
  }
  SECTION("another version verified") {
    spawn_liar_who(world, [](VerifyAtom, std::uint64_t, Duration) { return std::uint64_t{0}; });
    check_failure(world, ErrorCode::refused,
                  "rollout 0.0 says that it has verified version 0, which it was not asked for");
  }
  SECTION("an error that is none of ours, in two lines") {
    spawn_liar_who(world, [](CommitAtom, std::uint64_t) -> caf::result<std::uint64_t> {
      return caf::error{200, caf::atom("weir"), caf::make_message(std::string("a\nb\x1b[31m"))};
    });
    check_failure(world, ErrorCode::invalid,
                  "rollout 0.0 failed while committing version 1: a b [31m");
  }
  SECTION("silence") {
    spawn_liar_who(world, [](CommitAtom, std::uint64_t) -> caf::result<std::uint64_t> {
      return caf::delegated<std::uint64_t>();
    });
    check_failure(world, ErrorCode::timeout,
                  "rollout 0.0 did not answer within 30 s while committing version 1");
  }
}

/// Spawns an exchange of this test's own, which lets everyone in and tells who came.
JoinActor spawn_false_exchange(World& world, caf::strong_actor_ptr& member) {
  return world.system().spawn([&member](JoinActor::pointer self) -> JoinActor::behavior_type {
    return {[&member, self](JoinAtom, const Payload&) {
      member = self->current_sender();
      return caf::ok_atom::value;
    }};
  });
}

TEST_CASE("a shard refuses what its exchange may not ask for, and lives on") {
  World world(4, one_and_one());
  caf::strong_actor_ptr member;
  const JoinActor exchange = spawn_false_exchange(world, member);
  World::Host& host = world.add(rollout);
  world.start(host, exchange);
  world.run_actors();
  REQUIRE(member);
  const auto shard = caf::actor_cast<RolloutActor>(member);
  const auto fetch = [&](std::uint64_t version) {
    return world.outcome(world.ask<Fetched>(shard, FetchAtom::value, version, Duration(1h)));
  };
  CHECK(fetch(1).error().text ==
        "rollout 0.0 can't fetch version 1: its part of the plan is not prepared");
  const auto hold = [&](const std::string& bytes) {
    return world.outcome(world.ask<PlanHeld>(shard, PlanAtom::value, payload_of(bytes)));
  };
  Plan plan;
  plan.parts = {{{Side::rollout, 0, 1}, {}}};
  plan.digest = {7, 8};
  for (int i = 0; i < 50; ++i) {
    std::string noise(world.random().below(300), '\0');
    for (char& c : noise) c = static_cast<char>(world.random().next());
    CHECK_FALSE(hold(noise));
  }
  CHECK(hold(encode(plan)).error().text ==
        "rollout 0.0 was sent a plan that is not just its own part");
  plan.parts = {{rollout, {}}};
  const auto held = hold(encode(plan));
  REQUIRE(held);
  CHECK(held->digest == Digest{7, 8});
  CHECK(hold(encode(plan)).error().text == "rollout 0.0 was sent a second plan");
  REQUIRE(fetch(1));
  CHECK(fetch(1).error().text == "rollout 0.0 can't fetch version 1: versions only rise");
  CHECK_FALSE(host.ended);
  REQUIRE(
      world.outcome(world.ask<caf::ok_atom>(shard, EndAtom::value, Ending{250, "no such code"})));
  world.run_actors();
  REQUIRE(host.ended);
  CHECK(host.ended->error() == Error{ErrorCode::invalid, "no such code"});
  caf::anon_send_exit(exchange, caf::exit_reason::user_shutdown);
}

TEST_CASE("a trainer shard refuses what its exchange may not ask for, and lives on") {
  World world(4, one_and_one());
  caf::strong_actor_ptr member;
  const JoinActor exchange = spawn_false_exchange(world, member);
  World::Host& host = world.add(trainer);
  world.start(host, exchange);
  world.run_actors();
  REQUIRE(member);
  const auto shard = caf::actor_cast<TrainerActor>(member);
  const auto update = [&](std::uint64_t version) {
    return world.outcome(world.ask<std::uint64_t>(shard, UpdateAtom::value, version, Duration(1h)));
  };
  CHECK(update(1).error().text == "trainer 0.0 can't update to version 1: it has no plan yet");
  Plan plan;
  plan.sources = {{trainer, {}}};
  const auto hold = [&] {
    return world.outcome(world.ask<PlanHeld>(shard, PlanAtom::value, payload_of(encode(plan))));
  };
  REQUIRE(hold());
  CHECK(hold().error().text == "trainer 0.0 was sent a second plan");
  CHECK(update(2) == 2);
  CHECK(update(2).error().text == "trainer 0.0 can't update to version 2: versions only rise");
  CHECK_FALSE(host.ended);
  caf::anon_send_exit(exchange, caf::exit_reason::user_shutdown);
}

TEST_CASE("a transport worker starts one fetch at a time, of what it has prepared") {
  World world(4, one_and_one());
  World::Host& host = world.add(rollout);
  const auto worker = spawn_transport_worker(world.system(), *host.transport, {host.region.get()});
  const auto fetch = [&] { return world.ask<Fetched>(worker, FetchAtom::value, std::uint64_t{1}); };
  CHECK(world.outcome(fetch()).error() == Error{ErrorCode::refused, "nothing is prepared"});
  const auto plan = std::make_shared<const Plan>(Plan{{}, {{rollout, {}}}, {}, {}});
  REQUIRE(world.outcome(world.ask<std::uint64_t>(worker, PrepareAtom::value, PlanPtr{plan})));
  const auto first = fetch();
  const auto second = fetch();
  world.run_actors();
  const auto& refused = first->has_value() ? first : second;
  REQUIRE(refused->has_value());
  CHECK((*refused)->error() == Error{ErrorCode::refused, "another fetch is running"});
  world.drain();
  CHECK((**first).has_value() != (**second).has_value());
  caf::anon_send_exit(worker, caf::exit_reason::user_shutdown);
}

TEST_CASE("errors keep code and text on their way, and foreign ones become one line") {
  const Error error{ErrorCode::io, "the disk is full"};
  CHECK(from_caf(to_caf(error)) == error);
  CHECK(from_ending(to_ending(failure(error.code, error.text))).error() == error);
  CHECK(from_ending(to_ending({})));
  CHECK(from_caf({}) == Error{ErrorCode::invalid, "a peer reports an error without saying which"});
  CHECK(from_caf({1, caf::atom("weir")}) == Error{ErrorCode::invalid, "no reason given"});
  CHECK(from_caf(caf::sec::request_timeout) ==
        Error{ErrorCode::timeout, "no answer within the deadline"});
  CHECK(from_caf(caf::sec::request_receiver_down) ==
        Error{ErrorCode::unavailable, "the receiver is gone"});
  CHECK(from_caf(caf::exit_reason::remote_link_unreachable).code == ErrorCode::unavailable);
  CHECK_THAT(from_caf(caf::sec::unexpected_message).text, ContainsSubstring("unexpected_message"));
  CHECK(one_line("a\tb\r\n" + std::string(3000, 'c')) == "a b  " + std::string(1995, 'c'));
  CHECK(text_of(Duration(9'999'600us)) == "10000 ms");
  CHECK(text_of(Duration(299'600ms)) == "300 s");
}

}  // namespace
}  // namespace weir
