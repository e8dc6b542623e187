// Goal: an exchange and its members in processes of their own, over loopback TCP, move every byte;
// the death or silence of any of them ends in an error that names it while the rest goes on; and
// whoever is started again takes its place.
// Method: members are forked first, while this process has one thread, and told the port later.
// Their memory is shared with this process, which checks it. Members die by their own hand at a
// chosen step, so that no timing decides what the test tests.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/sim_model.hpp"
#include "actors/member.hpp"
#include "runtime/clock.hpp"
#include "runtime/workers.hpp"
#include "tests/actors/child.hpp"
#include "tests/actors/fake_transport.hpp"
#include "tests/actors/shown_results.hpp"
#include "tests/actors/strangers.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

const sim::MatrixModel model{.rows = 6, .columns = 8};

/// Where no silence is tested, a busy machine must not look like one.
constexpr Duration patient = 60s;

/// What a member does of its own accord.
struct Habits {
  Duration silence_max = patient;
  int signal = 0;                ///< Sent to itself …
  std::uint64_t at_update = 0;   ///< … when asked to make this version (trainers),
  int at_fetch = 0;              ///< … or at this fetch, from 1 (rollouts),
  std::uint64_t at_install = 0;  ///< … or when asked to install this version (rollouts).
};

std::unique_ptr<Region> shared_region(std::uint64_t bytes) {
  auto region = Region::allocate({.kind = RegionKind::host_shared, .bytes = bytes});
  REQUIRE(region);
  return std::move(*region);
}

/// Runs a member in this process until its end.
Result<void> run(const ShardId& shard, std::uint32_t ranks, Region& region, std::uint16_t port,
                 const Habits& habits, const LinePipe& said) {
  FakeTransport transport(
      [&habits](int nth) {
        if (nth == habits.at_fetch) raise(habits.signal);
        return Manner::succeed;
      },
      nullptr);
  MemberOptions options;
  options.port = port;
  options.manifest = model.manifest_of(shard, ranks);
  options.regions = {&region};
  options.transport = &transport;
  options.silence_max = habits.silence_max;
  options.hooks.update = [&](const HookCall& call, const HookDone& done) {
    if (call.version == habits.at_update) raise(habits.signal);
    model.fill(shard, ranks, call.version, region.bytes());
    done({});
  };
  options.hooks.install = [&](const HookCall& call, const HookDone& done) {
    if (call.version == habits.at_install) raise(habits.signal);
    done({});
  };
  options.hooks.resume = [&](const HookCall& call, const HookDone& done) {
    if (shard.side == Side::rollout) said.write_line("serves " + std::to_string(call.version));
    done({});
  };
  options.hooks.verify = [&](const HookCall& call, const HookDone& done) {
    if (!model.holds(shard, ranks, call.version, region.bytes())) {
      return done(failure(ErrorCode::invalid, "wrong bytes"));
    }
    done({});
  };
  return run_member(options);
}

/// A member in a process of its own. It starts when it is told the port, and says what it serves
/// and how it ended.
struct MemberProcess {
  MemberProcess(const ShardId& its_shard, std::uint32_t its_ranks, const Habits& habits = {},
                std::unique_ptr<Region> its_region = nullptr)
      : shard(its_shard),
        ranks(its_ranks),
        region(its_region ? std::move(its_region) : shared_region(model.bytes_of(shard, ranks))),
        child([this, habits](const LinePipe& told, const LinePipe& said) {
          const auto port = told.read_line(120s);
          if (!port) return;
          const auto ended = run(shard, ranks, *region,
                                 static_cast<std::uint16_t>(std::stoi(*port)), habits, said);
          said.write_line(ended ? "good order" : ended.error().text);
        }) {}

  /// What it says when it has said all about what it serves.
  [[nodiscard]] std::optional<std::string> last_word() const {
    auto line = child.hear(30s);
    while (line && line->starts_with("serves ")) line = child.hear(30s);
    return line;
  }

  ShardId shard;
  std::uint32_t ranks;
  std::unique_ptr<Region> region;
  Child child;
};

using Processes = std::vector<std::unique_ptr<MemberProcess>>;

/// Two trainer ranks and two replicas of two rollout ranks; `habits` are those of one of them,
/// which with `successor` comes once more at the end, with ordinary habits. All memory is there
/// before the first is forked, so that each can read the others' at its address.
Processes fork_members(const ShardId& special = {}, const Habits& habits = {},
                       bool successor = false) {
  std::vector<ShardId> shards{{Side::trainer, 0, 0}, {Side::trainer, 0, 1}, {Side::rollout, 0, 0},
                              {Side::rollout, 0, 1}, {Side::rollout, 1, 0}, {Side::rollout, 1, 1}};
  if (successor) shards.push_back(special);
  std::vector<std::unique_ptr<Region>> regions;
  for (const ShardId& shard : shards) regions.push_back(shared_region(model.bytes_of(shard, 2)));
  Processes members;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const Habits ordinary{.silence_max = habits.silence_max};
    const bool is_special = shards[i] == special && i < 6;
    members.push_back(std::make_unique<MemberProcess>(shards[i], 2, is_special ? habits : ordinary,
                                                      std::move(regions[i])));
  }
  return members;
}

ExchangeOptions options_for_six(Duration silence_max = patient) {
  return {.trainer_ranks = 2,
          .rollout_replicas = 2,
          .rollout_ranks = 2,
          .join_deadline = 120s,
          .publish_deadline = 120s,
          .silence_max = silence_max};
}

void start(const Processes& members, const Exchange& exchange) {
  for (const auto& member : members) member->child.tell(std::to_string(exchange.port()));
}

TEST_CASE("six processes move five versions over loopback and end in good order") {
  const auto members = fork_members();
  auto exchange = Exchange::start(options_for_six());
  REQUIRE(exchange);
  start(members, **exchange);
  const auto plan = (*exchange)->await_plan();
  REQUIRE(plan);
  CHECK(plan->sources.size() == 2);
  CHECK(plan->parts.size() == 4);
  for (std::uint64_t version = 1; version <= 5; ++version) {
    const auto report = (*exchange)->publish(version);
    REQUIRE(report);
    CHECK(report->version == version);
    // Two replicas of a matrix of 6 × 8 numbers of 4 bytes.
    CHECK(report->bytes_needed == 2 * 6 * 8 * 4);
    CHECK(report->bytes_moved == report->bytes_needed);
    CHECK(report->publish > 0ns);
    for (const auto& member : members) {
      CHECK(model.holds(member->shard, 2, version, member->region->bytes()));
    }
  }
  const auto status = (*exchange)->status();
  REQUIRE(status);
  CHECK(status->ready == 5);
  CHECK(status->published == 5);
  CHECK(status->replicas.at(1).commits == 5);
  exchange->reset();
  for (const auto& member : members) CHECK(member->last_word() == "good order");
}

struct Death {
  ShardId shard;
  Habits habits;
  std::string text;
};

/// Version 2 fails with the member that dies; a process that takes its place joins, and version 3
/// reaches everyone.
void go_on_after(const Death& death, Duration silence_max) {
  auto members = fork_members(death.shard, death.habits, true);
  const auto last = std::move(members.back());
  const MemberProcess& successor = *last;
  members.pop_back();
  auto exchange = Exchange::start(options_for_six(silence_max));
  REQUIRE(exchange);
  start(members, **exchange);
  REQUIRE((*exchange)->await_plan());
  REQUIRE((*exchange)->publish(1));
  const SystemClock clock;
  const auto begun_at = clock.now();
  const auto failed = (*exchange)->publish(2);
  // A connection that ends is noticed at once: this is far from `patient` and the deadlines, and
  // leaves room for a machine that is busy with other things.
  CHECK(clock.now() - begun_at < 30s);
  REQUIRE_FALSE(failed);
  CHECK(failed.error() == Error{ErrorCode::unavailable, death.text});
  if (death.shard.side == Side::rollout) {
    const auto status = (*exchange)->status();
    REQUIRE(status);
    CHECK_FALSE(status->replicas.at(death.shard.replica).in_service);
    CHECK(status->replicas.at(death.shard.replica).trouble == death.text);
  }
  successor.child.tell(std::to_string((*exchange)->port()));
  auto report = (*exchange)->publish(3);
  for (std::uint64_t version = 4; !report && clock.now() - begun_at < 60s; ++version) {
    // Until the new one is seated there is nobody to ask.
    report = (*exchange)->publish(version);
  }
  REQUIRE(report);
  CHECK(model.holds(death.shard, 2, report->version, successor.region->bytes()));
  exchange->reset();
  CHECK(successor.last_word() == "good order");
  for (const auto& member : members) {
    if (member->shard != death.shard) CHECK(member->last_word() == "good order");
  }
}

TEST_CASE("a killed process is named, the others go on, and another takes its place") {
  const std::vector<Death> deaths{
      {{Side::trainer, 0, 1},
       {.signal = SIGKILL, .at_update = 2},
       "trainer 0.1 died while updating to version 2"},
      {{Side::rollout, 1, 0},
       {.signal = SIGKILL, .at_fetch = 3},
       "rollout 1.0 died while fetching version 2"},
      {{Side::rollout, 0, 1},
       {.signal = SIGKILL, .at_install = 2},
       "rollout 0.1 died while installing version 2"},
  };
  for (const Death& death : deaths) {
    DYNAMIC_SECTION(death.text) {
      go_on_after(death, patient);
    }
  }
}

TEST_CASE("a stopped process counts as dead after a silence, and another takes its place") {
  go_on_after({{Side::rollout, 0, 0},
               {.silence_max = 5s, .signal = SIGSTOP, .at_install = 2},
               "rollout 0.0 died while installing version 2"},
              5s);
}

/// Owns an exchange at that port, publishes one version when all have joined, and waits.
void own_exchange(std::uint16_t port, std::uint64_t version, const LinePipe& told,
                  const LinePipe& said) {
  if (!told.read_line(120s)) return;
  ExchangeOptions options = options_for_six();
  options.port = port;
  auto exchange = Exchange::start(options);
  if (!exchange) return said.write_line(exchange.error().text);
  said.write_line("listens");
  const auto plan = (*exchange)->await_plan();
  if (!plan) return said.write_line(plan.error().text);
  const auto report = (*exchange)->publish(version);
  said.write_line(report ? "published" : report.error().text);
  told.read_line(120s);
}

TEST_CASE("an exchange that is killed and started again on its port gets its members back") {
  const auto members = fork_members();
  std::uint16_t port = 0;
  { port = MuteListener().port; }
  const auto owner_of = [port](std::uint64_t version) {
    return std::make_unique<Child>([port, version](const LinePipe& told, const LinePipe& said) {
      own_exchange(port, version, told, said);
    });
  };
  const auto first = owner_of(1);
  const auto second = owner_of(2);
  first->tell("begin");
  REQUIRE(first->hear(60s) == "listens");
  for (const auto& member : members) member->child.tell(std::to_string(port));
  REQUIRE(first->hear(60s) == "published");
  first->send_signal(SIGKILL);
  first->await_death();
  second->tell("begin");
  REQUIRE(second->hear(60s) == "listens");
  CHECK(second->hear(60s) == "published");
  for (const auto& member : members) {
    CHECK(model.holds(member->shard, 2, 2, member->region->bytes()));
  }
  second->tell("end");
  for (const auto& member : members) CHECK(member->last_word() == "good order");
}

TEST_CASE("a member that finds no exchange says where it looked and for how long") {
  FakeTransport transport([](int) { return Manner::succeed; }, nullptr);
  const auto region = shared_region(model.bytes_of({Side::rollout, 0, 0}, 1));
  MemberOptions options;
  options.manifest = model.manifest_of({Side::rollout, 0, 0}, 1);
  options.regions = {region.get()};
  options.transport = &transport;
  options.connect_deadline = 300ms;
  const MuteListener listener;
  options.port = listener.port;
  SECTION("nobody listens") {}
  SECTION("the listener is mute") {
    REQUIRE(listen(listener.descriptor, 8) == 0);
  }
  const SystemClock clock;
  const auto begun_at = clock.now();
  const auto ended = run_member(options);
  CHECK(clock.now() - begun_at < 30s);
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code == ErrorCode::unavailable);
  CHECK_THAT(ended.error().text, StartsWith("rollout 0.0 finds no exchange within 300 ms: "));
}

TEST_CASE("members may be started before their exchange, and an unexpected one is turned away") {
  const MemberProcess trainer({Side::trainer, 0, 0}, 1);
  const MemberProcess rollout({Side::rollout, 0, 0}, 1);
  const MemberProcess stranger({Side::rollout, 1, 0}, 1);
  std::uint16_t port = 0;
  { port = MuteListener().port; }
  rollout.child.tell(std::to_string(port));
  auto exchange = Exchange::start({.port = port, .join_deadline = 60s, .publish_deadline = 60s});
  REQUIRE(exchange);
  CHECK((*exchange)->port() == port);
  stranger.child.tell(std::to_string(port));
  CHECK_THAT(stranger.last_word().value_or("nothing"),
             ContainsSubstring("rollout 1.0 can't join: rollout 1.0 is not a member"));
  trainer.child.tell(std::to_string(port));
  REQUIRE((*exchange)->await_plan());
  REQUIRE((*exchange)->publish(7));
  exchange->reset();
  CHECK(trainer.last_word() == "good order");
  CHECK(rollout.last_word() == "good order");
}

TEST_CASE("strangers that connect and talk nonsense, or nothing, disturb nobody") {
  const auto members = fork_members();
  auto exchange = Exchange::start(options_for_six());
  REQUIRE(exchange);
  const std::uint16_t port = (*exchange)->port();
  const Noise silent(port, "");
  const Noise half(port, "BA");
  const Noise web(port, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n");
  const Noise noise(port, std::string(100'000, '\x01'));
  start(members, **exchange);
  REQUIRE((*exchange)->await_plan());
  const auto report = (*exchange)->publish(1);
  REQUIRE(report);
  CHECK(report->bytes_moved == report->bytes_needed);
  exchange->reset();
  for (const auto& member : members) CHECK(member->last_word() == "good order");
}

TEST_CASE("an abort ends a waiting call") {
  auto exchange = Exchange::start({.join_deadline = 30s, .publish_deadline = 30s});
  REQUIRE(exchange);
  {
    Workers other(1);
    other.post([&] { (*exchange)->abort("a person pressed Ctrl-C"); });
    const auto plan = (*exchange)->await_plan();
    REQUIRE_FALSE(plan);
    CHECK(plan.error() == Error{ErrorCode::unavailable, "a person pressed Ctrl-C"});
  }
  CHECK((*exchange)->publish(1).error().text == "a person pressed Ctrl-C");
}

// xtuner#1828: a port is picked, released, and taken by another before it is bound.
TEST_CASE("an exchange whose address is taken says so") {
  const MuteListener taken;
  REQUIRE(listen(taken.descriptor, 1) == 0);
  const auto exchange = Exchange::start({.port = taken.port});
  REQUIRE_FALSE(exchange);
  CHECK(exchange.error().code == ErrorCode::io);
  CHECK_THAT(exchange.error().text,
             ContainsSubstring("can't listen on 127.0.0.1:" + std::to_string(taken.port)));
}

}  // namespace
}  // namespace weir
