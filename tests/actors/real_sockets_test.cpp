// Goal: an exchange and its members in processes of their own, over loopback TCP, move every byte,
// and the death or silence of any of them ends in an error that names it, not in a hang.
// Method: members are forked first, while this process has one thread, and told the port later.
// Their memory is shared with this process, which checks it. Members die by their own hand at a
// chosen step, so that no timing decides what the test tests.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/member.hpp"
#include "runtime/clock.hpp"
#include "runtime/workers.hpp"
#include "tests/actors/child.hpp"
#include "tests/actors/fake_transport.hpp"
#include "tests/actors/shown_results.hpp"
#include "tests/actors/small_model.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace std::chrono_literals;

namespace weir {
namespace {

const SmallModel model;

/// Where no silence is tested, a busy machine must not look like one.
constexpr Duration patient = 60s;

/// What a member does of its own accord.
struct Habits {
  Duration silence_max = patient;
  int signal = 0;               ///< Sent to itself …
  std::uint64_t at_update = 0;  ///< … when asked to make this version (trainers),
  int at_fetch = 0;             ///< … or at this fetch, from 1 (rollouts),
  std::uint64_t at_verify = 0;  ///< … or when asked to verify this version (rollouts).
};

std::unique_ptr<Region> shared_region(std::uint64_t bytes) {
  auto region = Region::allocate({.kind = RegionKind::host_shared, .bytes = bytes});
  REQUIRE(region);
  return std::move(*region);
}

/// Runs a member in this process until its end.
Result<void> run(const ShardId& shard, std::uint32_t ranks, Region& region, std::uint16_t port,
                 const Habits& habits) {
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
  options.hooks.update = [&](std::uint64_t version, const HookDone& done) {
    if (version == habits.at_update) raise(habits.signal);
    model.fill(shard, ranks, version, region.bytes().data());
    done({});
  };
  options.hooks.verify = [&](std::uint64_t version, const HookDone& done) {
    if (version == habits.at_verify) raise(habits.signal);
    if (!model.holds(shard, ranks, version, region.bytes().data())) {
      return done(failure(ErrorCode::invalid, "wrong bytes"));
    }
    done({});
  };
  return run_member(options);
}

/// A member in a process of its own. It starts when it is told the port, and says how it ended.
struct MemberProcess {
  MemberProcess(const ShardId& its_shard, std::uint32_t its_ranks, const Habits& habits = {})
      : shard(its_shard),
        ranks(its_ranks),
        region(shared_region(model.bytes_of(shard, ranks))),
        child([this, habits](const LinePipe& told, const LinePipe& said) {
          const auto port = told.read_line(60s);
          if (!port) return;
          const auto ended =
              run(shard, ranks, *region, static_cast<std::uint16_t>(std::stoi(*port)), habits);
          said.write_line(ended ? "good order" : ended.error().text);
        }) {}

  ShardId shard;
  std::uint32_t ranks;
  std::unique_ptr<Region> region;
  Child child;
};

using Processes = std::vector<std::unique_ptr<MemberProcess>>;

/// Two trainer ranks and two replicas of two rollout ranks; `habits` are those of one of them.
Processes fork_members(const ShardId& special = {}, const Habits& habits = {}) {
  Processes members;
  for (const ShardId& shard :
       {ShardId{Side::trainer, 0, 0}, ShardId{Side::trainer, 0, 1}, ShardId{Side::rollout, 0, 0},
        ShardId{Side::rollout, 0, 1}, ShardId{Side::rollout, 1, 0}, ShardId{Side::rollout, 1, 1}}) {
    const Habits ordinary{.silence_max = habits.silence_max};
    members.push_back(
        std::make_unique<MemberProcess>(shard, 2, shard == special ? habits : ordinary));
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
      CHECK(model.holds(member->shard, 2, version, member->region->bytes().data()));
    }
  }
  exchange->reset();
  for (const auto& member : members) CHECK(member->child.hear(30s) == "good order");
}

/// The exchange must fail while `members` behave as they do; returns the error of publishing.
Error publish_until_failure(const Processes& members, std::uint64_t last,
                            Duration silence_max = patient) {
  auto exchange = Exchange::start(options_for_six(silence_max));
  REQUIRE(exchange);
  start(members, **exchange);
  REQUIRE((*exchange)->await_plan());
  for (std::uint64_t version = 1; version < last; ++version) {
    REQUIRE((*exchange)->publish(version));
  }
  const SystemClock clock;
  const auto begun_at = clock.now();
  const auto report = (*exchange)->publish(last);
  REQUIRE_FALSE(report);
  // A connection that ends is noticed at once: this is far from `patient` and the deadlines, and
  // leaves room for a machine that is busy with other things.
  CHECK(clock.now() - begun_at < 30s);
  // Nothing but the end is left.
  CHECK((*exchange)->publish(last + 1).error() == report.error());
  return report.error();
}

TEST_CASE("a killed process is noticed at once and named, with what it was doing") {
  struct Case {
    ShardId shard;
    Habits habits;
    std::string text;
  };
  const std::vector<Case> cases{
      {{Side::trainer, 0, 1},
       {patient, SIGKILL, 2, 0, 0},
       "trainer 0.1 died while updating to version 2"},
      {{Side::rollout, 1, 0},
       {patient, SIGKILL, 0, 2, 0},
       "rollout 1.0 died while fetching version 2"},
      {{Side::rollout, 0, 1},
       {patient, SIGKILL, 0, 0, 2},
       "rollout 0.1 died while verifying version 2"},
  };
  for (const Case& one : cases) {
    DYNAMIC_SECTION(one.text) {
      const auto members = fork_members(one.shard, one.habits);
      const Error error = publish_until_failure(members, 2);
      CHECK(error.code == ErrorCode::unavailable);
      CHECK(error.text == one.text);
      for (const auto& member : members) {
        const auto said = member->child.hear(30s);
        if (member->shard == one.shard) {
          CHECK_FALSE(said);
        } else {
          CHECK(said == "the exchange ended: " + one.text);
        }
      }
    }
  }
}

TEST_CASE("a stopped process counts as dead after a silence") {
  const auto members = fork_members({Side::rollout, 0, 0}, {patient, SIGSTOP, 0, 2, 0});
  const Error error = publish_until_failure(members, 2, 3s);
  CHECK(error.text == "rollout 0.0 died while fetching version 2");
}

TEST_CASE("a process killed before all have joined is named") {
  const ShardId shard{Side::trainer, 0, 0};
  const MemberProcess one(shard, 2);
  const MemberProcess other(shard, 2);
  auto exchange = Exchange::start(options_for_six());
  REQUIRE(exchange);
  for (const MemberProcess* member : {&one, &other}) {
    member->child.tell(std::to_string((*exchange)->port()));
  }
  // Once one of the twins is refused, the other has joined.
  const int refused = Child::first_to_speak(one.child, other.child, 10s);
  REQUIRE(refused >= 0);
  (refused == 0 ? other : one).child.send_signal(SIGKILL);
  const auto plan = (*exchange)->await_plan();
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == ErrorCode::unavailable);
  CHECK(plan.error().text == "trainer 0.0 died while waiting for the others to join");
}

TEST_CASE("a killed or stopped exchange ends its members with an error") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  const auto members = fork_members({}, {.silence_max = signal == SIGSTOP ? 3s : patient});
  const Child owner([](const LinePipe& told, const LinePipe& said) {
    auto exchange = Exchange::start(options_for_six());
    if (!exchange) return;
    said.write_line(std::to_string((*exchange)->port()));
    const bool published = (*exchange)->await_plan() && (*exchange)->publish(1);
    said.write_line(published ? "published" : "failed");
    told.read_line(60s);
  });
  const auto port = owner.hear(30s);
  REQUIRE(port);
  for (const auto& member : members) member->child.tell(*port);
  REQUIRE(owner.hear(30s) == "published");
  owner.send_signal(signal);
  for (const auto& member : members) {
    CHECK(member->child.hear(30s) == text_of(member->shard) + " lost its exchange");
  }
}

/// A TCP socket on loopback that listens, and neither accepts nor says anything.
struct MuteListener {
  MuteListener() : descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(descriptor, generic, length) == 0);
    REQUIRE(getsockname(descriptor, generic, &length) == 0);
    port = ntohs(address.sin_port);
  }
  ~MuteListener() { close(descriptor); }
  MuteListener(const MuteListener&) = delete;
  MuteListener& operator=(const MuteListener&) = delete;

  int descriptor;
  std::uint16_t port = 0;
};

MemberOptions options_of_lone_member(FakeTransport& transport, Region& region) {
  MemberOptions options;
  options.manifest = model.manifest_of({Side::rollout, 0, 0}, 1);
  options.regions = {&region};
  options.transport = &transport;
  options.connect_deadline = 300ms;
  return options;
}

TEST_CASE("a member that finds no exchange says where it looked and for how long") {
  FakeTransport transport([](int) { return Manner::succeed; }, nullptr);
  const auto region = shared_region(model.bytes_of({Side::rollout, 0, 0}, 1));
  MemberOptions options = options_of_lone_member(transport, *region);
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
  CHECK_THAT(ended.error().text,
             ContainsSubstring("rollout 0.0 finds no exchange at 127.0.0.1:" +
                               std::to_string(listener.port) + " within 300 ms"));
}

TEST_CASE("members may be started before their exchange, and an unexpected one is turned away") {
  const MemberProcess trainer({Side::trainer, 0, 0}, 1);
  const MemberProcess rollout({Side::rollout, 0, 0}, 1);
  const MemberProcess twin({Side::rollout, 0, 0}, 1);
  const MemberProcess stranger({Side::rollout, 1, 0}, 1);
  std::uint16_t port = 0;
  { port = MuteListener().port; }
  rollout.child.tell(std::to_string(port));
  auto exchange = Exchange::start({.port = port, .join_deadline = 30s, .publish_deadline = 30s});
  REQUIRE(exchange);
  CHECK((*exchange)->port() == port);
  stranger.child.tell(std::to_string(port));
  CHECK_THAT(stranger.child.hear(30s).value_or("nothing"),
             ContainsSubstring("rollout 1.0 can't join: rollout 1.0 is not a member"));
  twin.child.tell(std::to_string(port));
  // Once one of the twins is refused, the other has joined.
  const int refused = Child::first_to_speak(rollout.child, twin.child, 30s);
  REQUIRE(refused >= 0);
  CHECK(
      (refused == 0 ? rollout : twin).child.hear(30s) ==
      "rollout 0.0 can't join: rollout 0.0 has joined already: two members must not have the same "
      "side, replica and rank");
  trainer.child.tell(std::to_string(port));
  REQUIRE((*exchange)->await_plan());
  REQUIRE((*exchange)->publish(7));
  exchange->reset();
  CHECK(trainer.child.hear(30s) == "good order");
  CHECK((refused == 0 ? twin : rollout).child.hear(30s) == "good order");
}

/// Connects to a port of loopback and says that.
struct Noise {
  Noise(std::uint16_t port, const std::string& bytes)
      : descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    REQUIRE(connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  ~Noise() { close(descriptor); }
  Noise(const Noise&) = delete;
  Noise& operator=(const Noise&) = delete;

  int descriptor;
};

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
  for (const auto& member : members) CHECK(member->child.hear(30s) == "good order");
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
