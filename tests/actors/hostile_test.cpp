// Goal: what a peer sends is checked, never trusted: a member that lies, babbles or breaks the
// order is refused with a reason, nobody crashes, and whoever does not need it goes on.
// Method: actors written here speak for members or for an exchange, to the production actors on the
// other side, in virtual time (`world.hpp`).

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "actors/internal/engine.hpp"
#include "actors/internal/shards.hpp"
#include "actors/internal/transport_worker.hpp"
#include "runtime/codec.hpp"
#include "tests/actors/world.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId late{Side::rollout, 1, 0};

/// One trainer and two rollout replicas of one rank, of which the second never comes: liars speak
/// for it.
Scene scene_for_liars() {
  Scene scene = scene_of(2, Placement::staging);
  scene.exchange.trainer_ranks = 1;
  scene.exchange.rollout_ranks = 1;
  scene.exchange.rollout_replicas_min = 1;
  scene.late_replicas = 1;
  scene.rest_most = 1s;
  return scene;
}

bool settled_alone(Story& story, std::uint64_t version) {
  return story.world.newest_whole == version && story.serves(0, version);
}

/// The honest ones go on as if nobody had lied.
void goes_on(Story& story) {
  const std::uint64_t next = story.world.newest_whole + 1;
  story.go_to(next);
  story.until([&] { return settled_alone(story, next); }, 60s);
  CHECK(story.world.restarts == 0);
}

Payload payload_of(const std::string& bytes) {
  return {{bytes.begin(), bytes.end()}};
}

MemberStatus empty_status() {
  MemberStatus status;
  status.placement = Placement::staging;
  return status;
}

Result<Seated> join(Story& story, const Payload& payload, const MemberStatus& status) {
  return story.outcome(story.ask<Seated>(JoinAtom::value, payload, status), 10s);
}

TEST_CASE("manifests that can't be read are refused, and the exchange goes on") {
  Story story(1, scene_for_liars());
  goes_on(story);
  const std::string valid = encode(story.world.model.manifest_of(late, 1, 1));
  CHECK_FALSE(join(story, {}, empty_status()));
  for (int i = 0; i < 100; ++i) {
    Random& random = story.world.net().random();
    std::string bytes = valid.substr(0, random.below(valid.size()));
    CHECK_FALSE(join(story, payload_of(bytes), empty_status()));
    for (char& c : bytes) c = static_cast<char>(random.next());
    CHECK_FALSE(join(story, payload_of(bytes), empty_status()));
  }
  // Well-formed, but of a shard that contradicts itself.
  Manifest broken = story.world.model.manifest_of(late, 1, 1);
  broken.pieces[0].offset = 1;
  CHECK_FALSE(join(story, payload_of(encode(broken)), empty_status()));
  goes_on(story);
}

TEST_CASE("a manifest over the limit is refused before it is read") {
  Story story(1, scene_for_liars());
  const auto joined = join(story, {std::vector<char>(payload_bytes_max + 1)}, empty_status());
  REQUIRE_FALSE(joined);
  CHECK(joined.error() ==
        Error{ErrorCode::refused, "its manifest is larger than the limit of 67108864 bytes"});
  const auto own =
      to_payload(std::string(payload_bytes_max + 1, ' '), "the manifest of rollout 0.0");
  REQUIRE_FALSE(own);
  CHECK(own.error() ==
        Error{ErrorCode::refused,
              "the manifest of rollout 0.0 takes 67108865 bytes, more than the limit of 67108864 "
              "in one message: use more ranks or fewer pieces"});
  CHECK(to_payload(std::string(payload_bytes_max, ' '), "the manifest of rollout 0.0"));
  goes_on(story);
}

TEST_CASE("a status that can't be is refused with what is wrong") {
  Story story(2, scene_for_liars());
  goes_on(story);
  const Payload payload = payload_of(encode(story.world.model.manifest_of(late, 1, 1)));
  const std::vector<std::pair<std::string, std::function<void(MemberStatus&)>>> lies{
      {"rollout 1.0 reports no known placement",
       [](MemberStatus& status) { status.placement = static_cast<Placement>(77); }},
      {"rollout 1.0 has 1 slots, but its placement needs 2",
       [](MemberStatus& status) { status.placement = Placement::second_buffer; }},
      {"rollout 1.0 serves from a slot that it does not have",
       [](MemberStatus& status) { status.installed_slot = ~0U; }},
      {"rollout 1.0 runs without a version", [](MemberStatus& status) { status.running = true; }},
  };
  for (const auto& [text, lie] : lies) {
    MemberStatus status = empty_status();
    lie(status);
    const auto joined = join(story, payload, status);
    REQUIRE_FALSE(joined);
    CHECK(joined.error() == Error{ErrorCode::invalid, text});
  }
  Manifest stranger = story.world.model.manifest_of({Side::rollout, 9, 0}, 1, 1);
  CHECK_THAT(join(story, payload_of(encode(stranger)), empty_status()).error().text,
             StartsWith("rollout 9.0 is not a member of this exchange"));
  goes_on(story);
}

TEST_CASE("a second member of one name is told to wait, and the first goes on") {
  Story story(3, scene_for_liars());
  goes_on(story);
  for (const Side side : {Side::trainer, Side::rollout}) {
    const Payload twin = payload_of(
        encode(story.world.model.manifest_of({side, 0, 0}, 1, side == Side::trainer ? 2 : 1)));
    const auto joined = join(story, twin, empty_status());
    REQUIRE_FALSE(joined);
    CHECK(joined.error().code == ErrorCode::unavailable);
    CHECK_THAT(joined.error().text, ContainsSubstring("0.0 is there already"));
  }
  goes_on(story);
}

TEST_CASE("only trainers that have joined stage versions") {
  Story story(4, scene_for_liars());
  goes_on(story);
  const Error stranger{ErrorCode::unavailable, "only members that have joined may ask that"};
  const auto acquired =
      story.outcome(story.ask<Acquired>(AcquireAtom::value, std::uint64_t{9}, Duration(1s)));
  REQUIRE_FALSE(acquired);
  CHECK(acquired.error() == stranger);
  const auto staged = story.outcome(story.ask<caf::ok_atom>(StagedAtom::value, std::uint64_t{9}));
  REQUIRE_FALSE(staged);
  CHECK(staged.error() == stranger);
  goes_on(story);
  CHECK(story.status().ready == 2);
}

Plan plan_in(const Payload& payload) {
  return *decode_plan(std::as_bytes(std::span(payload.bytes)));
}

/// What a liar does when it is asked.
using Answers = std::function<caf::message_handler(caf::event_based_actor*)>;

/// A member of the exchange that joins for the late replica and answers as it likes.
void spawn_liar(Story& story, const Answers& answers) {
  const Payload payload = payload_of(encode(story.world.model.manifest_of(late, 1, 1)));
  sim::Process& process = *story.world.exchange_process();
  const caf::actor liar =
      process.system().spawn([payload, answers, door = story.world.supervisor()](
                                 caf::event_based_actor* self) -> caf::behavior {
        self->request(door, caf::infinite, JoinAtom::value, payload, empty_status())
            .then([](const Seated&) {}, [](caf::error&) {});
        // Whoever is turned out ends.
        return answers(self).or_else([self](EndAtom, const Ending&) {
          self->quit();
          return caf::ok_atom::value;
        });
      });
  process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(liar));
}

/// Answers honestly but for the lies, which come first.
template <class... Lies>
Answers answers_with(Lies... lies) {
  return [lies...](caf::event_based_actor*) -> caf::message_handler {
    return caf::message_handler{lies...,
                                [](PlanAtom, std::uint64_t, const Payload& payload) {
                                  const auto plan = plan_in(payload);
                                  return PlanHeld{plan.digest, 576};
                                },
                                [](FetchAtom, const FetchOrder& order) {
                                  return Fetched{order.version, 576, 1, true, {}, {}};
                                },
                                [](PauseAtom, const EngineOrder& order) { return order.version; },
                                [](InstallAtom, const EngineOrder& order) { return order.version; },
                                [](ResumeAtom, const EngineOrder& order) { return order.version; }};
  };
}

TEST_CASE("a lying member costs its own replica, and is told why") {
  struct Case {
    std::string trouble;
    Answers answers;
  };
  const std::vector<Case> cases{
      {"holds plan 00000000000000010000000000000002, but the exchange computed",
       answers_with([](PlanAtom, std::uint64_t, const Payload&) {
         return PlanHeld{{1, 2}, 576};
       })},
      {"prepared 575 bytes, but its part of the plan has 576",
       answers_with([](PlanAtom, std::uint64_t, const Payload& payload) {
         return PlanHeld{plan_in(payload).digest, 575};
       })},
      {"failed while preparing its part of the plan",
       answers_with([](PlanAtom, std::uint64_t, const Payload&) { return std::string("yes"); })},
      {"moved 18446744073709551615 of the 576 bytes of version",
       answers_with([](FetchAtom, const FetchOrder& order) {
         return Fetched{order.version, ~std::uint64_t{0}, 1, true, {}, {}};
       })},
      {"failed while fetching version",
       answers_with([](FetchAtom, const FetchOrder&) { return std::string("yes"); })},
      {"failed while installing version",
       answers_with([](InstallAtom, const EngineOrder&) -> caf::result<std::uint64_t> {
         return caf::error{200, caf::atom("weir"), caf::make_message(std::string("a\nb\x1b[31m"))};
       })},
  };
  for (const Case& one : cases) {
    CAPTURE(one.trouble);
    Story story(5, scene_for_liars());
    goes_on(story);
    std::string told;
    spawn_liar(story, [&told, &one](caf::event_based_actor* self) {
      const caf::message_handler end{[self, &told](EndAtom, const Ending& ending) {
        told = ending.text;
        self->quit();
        return caf::ok_atom::value;
      }};
      return end.or_else(one.answers(self));
    });
    story.pass(30s);
    // One that can be asked again is asked again; the others are turned out.
    if (!one.trouble.starts_with("failed while installing")) {
      CHECK_THAT(told, ContainsSubstring(one.trouble));
    }
    CHECK_FALSE(story.status().replicas[1].in_service);
    goes_on(story);
  }
}

TEST_CASE("a source that is said to fail, and is no source, disturbs nobody") {
  Story story(6, scene_for_liars());
  goes_on(story);
  spawn_liar(story, answers_with([](FetchAtom, const FetchOrder& order) {
               return Fetched{order.version, 0, 0, false, {Side::rollout, 77, 99}, "I say so"};
             }));
  story.pass(5s);
  goes_on(story);
}

/// An exchange of this test's own, which lets everyone in as seat 7 and tells who came.
struct FalseExchange {
  explicit FalseExchange(Story& story) : process(story.world.net().add_process("false")) {
    door = process.system().spawn([this](JoinActor::pointer self) -> JoinActor::behavior_type {
      return {[this, self](JoinAtom, const Payload&, const MemberStatus&) {
                member = self->current_sender();
                return Seated{7};
              },
              [](AcquireAtom, std::uint64_t version, Duration) {
                return Acquired{version, 99};
              },
              [](StandAtom, std::uint64_t, std::uint64_t) {},
              [](StagedAtom, std::uint64_t) { return caf::ok_atom::value; }};
    });
    process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(door));
    finder = process.system().spawn([this](FinderActor::pointer) -> FinderActor::behavior_type {
      return {[this](FindAtom, Duration) { return door; }};
    });
    process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(finder));
  }
  template <class T, class Handle, class... Ts>
  Answer<T> ask(const Handle& whom, Ts... content) {
    auto answer = std::make_shared<std::optional<Result<T>>>();
    const caf::actor asker =
        process.system().spawn([answer, whom, content...](caf::event_based_actor* self) {
          self->request(whom, caf::infinite, content...)
              .then([answer](const T& value) { *answer = Result<T>(value); },
                    [answer](caf::error& error) {
                      *answer = Result<T>(tl::unexpected(from_caf(error)));
                    });
        });
    process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(asker));
    return answer;
  }
  ShardConfig config_of(const ShardId& shard) {
    ShardConfig config;
    config.shard = shard;
    config.placement = Placement::staging;
    config.finder = finder;
    config.engine = spawn_engine(process.system(), {});
    config.connect_deadline = 60s;
    config.reconnect_deadline = 60s;
    config.on_end = [own = ending](Result<void> why) { *own = std::move(why); };
    process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(config.engine));
    return config;
  }

  sim::Process& process;
  JoinActor door;
  FinderActor finder;
  caf::strong_actor_ptr member;
  /// Its member may end after this.
  std::shared_ptr<std::optional<Result<void>>> ending =
      std::make_shared<std::optional<Result<void>>>();
  std::optional<Result<void>>& ended = *ending;
};

/// A rollout shard that obeys, or not, an exchange of this test's own.
struct RolloutOfFalseExchange {
  RolloutOfFalseExchange() {
    ShardConfig config = exchange.config_of(late);
    config.transport = spawn_transport_worker(exchange.process.system(), *transport, {region.get()},
                                              {.window_bytes_max = 64, .slots = 1});
    shard = spawn_rollout(exchange.process.system(), config);
    exchange.process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(shard));
    exchange.process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(config.transport));
    story.until([this] { return exchange.member != nullptr; }, 5s);
    story.pass(1s);
    order.seat = 7;
    order.lease = 1;
    order.version = 1;
    order.deadline = 1h;
    plan.digest = {7, 8};
    plan.parts = {{late, {}}};
  }
  Result<Fetched> fetch(const FetchOrder& own) {
    return story.outcome(exchange.ask<Fetched>(shard, FetchAtom::value, own), 10s);
  }
  Result<PlanHeld> hold(std::uint64_t seat, const std::string& bytes) {
    return story.outcome(exchange.ask<PlanHeld>(shard, PlanAtom::value, seat, payload_of(bytes)),
                         10s);
  }
  template <class Atom>
  Result<std::uint64_t> ask(Atom atom, const EngineOrder& own) {
    return story.outcome(exchange.ask<std::uint64_t>(shard, atom, own), 10s);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(576);
  std::unique_ptr<Region> region = Region::borrow(memory);
  Story story{7, scene_for_liars()};
  std::unique_ptr<Transport> transport = make_sim_transport(story.world.bytes(), 1000);
  FalseExchange exchange{story};
  RolloutActor shard;
  FetchOrder order;
  Plan plan;
};

TEST_CASE("a rollout shard refuses plans that are not its own, and lives on") {
  RolloutOfFalseExchange rollout;
  Plan& plan = rollout.plan;
  const auto hold = [&rollout](std::uint64_t seat, const std::string& bytes) {
    return rollout.hold(seat, bytes);
  };
  CHECK(rollout.fetch(rollout.order).error() == Error{ErrorCode::refused, "nothing is prepared"});
  for (int i = 0; i < 50; ++i) {
    Random& random = rollout.story.world.net().random();
    std::string noise(random.below(300), '\0');
    for (char& c : noise) c = static_cast<char>(random.next());
    CHECK_FALSE(hold(7, noise));
  }
  plan.parts = {{{Side::rollout, 0, 0}, {}}};
  CHECK(hold(7, encode(plan)).error().text ==
        "rollout 1.0 was sent a plan that is not just its own part");
  plan.parts = {{late, {}}};
  CHECK(hold(6, encode(plan)).error().text ==
        "rollout 1.0 has seat 7, and the order was for seat 6");
  const auto held = hold(7, encode(plan));
  REQUIRE(held);
  CHECK(held->digest == Digest{7, 8});
  // A copy that writes beyond its memory.
  Copy wild;
  wild.source_type = wild.target_type = ElementType::i32;
  wild.extent = Box::whole({4}).extent;
  wild.source_stride = wild.target_stride = dense_strides(wild.extent, 4);
  wild.target_offset = 570;
  Plan beyond = plan;
  beyond.sources = {{{Side::trainer, 0, 0}, {{RegionKind::host_private, 576, {}}}, 1}};
  beyond.parts = {{late, {wild}}};
  CHECK_FALSE(hold(7, encode(beyond)));

  CHECK_FALSE(rollout.exchange.ended);
}

TEST_CASE("a rollout shard refuses orders with wild numbers, and lives on") {
  RolloutOfFalseExchange rollout;
  FalseExchange& exchange = rollout.exchange;
  const FetchOrder& order = rollout.order;
  const auto fetch = [&rollout](const FetchOrder& own) { return rollout.fetch(own); };
  REQUIRE(rollout.hold(7, encode(rollout.plan)));
  FetchOrder wrong = order;
  wrong.seat = 8;
  CHECK(fetch(wrong).error().code == ErrorCode::refused);
  wrong = order;
  wrong.target_slot = ~0U;
  CHECK(fetch(wrong).error() == Error{ErrorCode::invalid, "rollout 1.0 has no slot 4294967295"});
  wrong = order;
  wrong.by_source.assign(3, Route{~0U, ~0U, true});
  CHECK(fetch(wrong).error().code == ErrorCode::invalid);
  wrong = order;
  wrong.peer_slots = 0;
  wrong.peer_regions.resize(1'000);
  wrong.by_source.resize(1);
  CHECK(fetch(wrong).error().code == ErrorCode::invalid);
  wrong = order;
  wrong.deadline = Duration::max();
  CHECK(fetch(wrong));

  EngineOrder engine{7, 9, 0, InFlight::keep, 1s};
  const auto ask = [&rollout](auto atom, const EngineOrder& own) { return rollout.ask(atom, own); };
  CHECK(ask(InstallAtom::value, engine).error().text ==
        "rollout 1.0 can't install version 9: it does not lie whole in that slot");
  CHECK(ask(ResumeAtom::value, engine).error().text ==
        "rollout 1.0 can't resume with version 9: it is not what it has installed");
  CHECK_THAT(ask(VerifyAtom::value, engine).error().text, ContainsSubstring("can't verify"));
  engine.in_flight = static_cast<InFlight>(99);
  CHECK(ask(PauseAtom::value, engine).error() ==
        Error{ErrorCode::invalid, "no known way to treat generations in flight"});
  engine = {6, 1, 0, InFlight::keep, 1s};
  CHECK(ask(PauseAtom::value, engine).error().code == ErrorCode::refused);

  CHECK_FALSE(exchange.ended);
  const auto end =
      exchange.ask<caf::ok_atom>(rollout.shard, EndAtom::value, Ending{250, "no such code"});
  rollout.story.until([&exchange] { return exchange.ended.has_value(); }, 10s);
  CHECK(exchange.ended->error() == Error{ErrorCode::invalid, "no such code"});
}

TEST_CASE("a trainer shard refuses what its exchange may not ask for, and lives on") {
  Story story(8, scene_for_liars());
  FalseExchange exchange(story);
  const ShardId own{Side::trainer, 0, 0};
  const TrainerHostActor shard = spawn_trainer(exchange.process.system(), exchange.config_of(own));
  exchange.process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(shard));
  story.until([&exchange] { return exchange.member != nullptr; }, 5s);
  story.pass(1s);
  const auto update = [&](std::uint64_t seat, std::uint64_t version) {
    return story.outcome(
        exchange.ask<std::uint64_t>(shard, UpdateAtom::value, seat, version, Duration(1s)), 30s);
  };
  CHECK(update(6, 1).error().text == "trainer 0.0 has seat 7, and the order was for seat 6");
  Plan plan;
  plan.sources = {{{Side::trainer, 5, 5}, {}, 1}};
  const auto hold = [&] {
    return story.outcome(
        exchange.ask<PlanHeld>(shard, PlanAtom::value, std::uint64_t{7}, payload_of(encode(plan))),
        10s);
  };
  CHECK(hold().error().text == "trainer 0.0 is not a source of the plan that it was sent");
  plan.sources = {{own, {}, 1}};
  REQUIRE(hold());
  // This exchange gives it a slot that it does not have.
  CHECK(update(7, 1).error() ==
        Error{ErrorCode::invalid, "trainer 0.0 was given slot 99, but has 1"});
  CHECK_FALSE(exchange.ended);
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
