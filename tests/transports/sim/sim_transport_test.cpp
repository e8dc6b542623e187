#include "transports/sim/sim_transport.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace weir {

// Goal: a simulated network moves the bytes that are asked for, in the world's own time, tears what
// is overwritten meanwhile, and fails just as it is told.
// Method: two hosts in a world whose time is a list of callbacks.

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// Time as a list of what happens when.
class Time {
 public:
  SimNetwork::After after() {
    return [this](nanoseconds delay, std::function<void()> then) {
      events_.emplace(now_ + delay, std::move(then));
    };
  }
  /// The next thing happens; false when nothing is left.
  bool step() {
    if (events_.empty()) return false;
    now_ = events_.begin()->first;
    events_.extract(events_.begin()).mapped()();
    return true;
  }
  void run() {
    while (step()) {
    }
  }
  [[nodiscard]] nanoseconds now() const { return now_; }

 private:
  nanoseconds now_{0};
  std::multimap<nanoseconds, std::function<void()>> events_;
};

/// Host 1 has 64 bytes that count from 1, host 2 wants them, the second half first.
class World {
 public:
  World() : World(1) {}
  explicit World(std::uint64_t seed) : random_(seed), network(time.after(), random_) {
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i + 1);
    network.set_link({milliseconds(2), milliseconds(3), 0});
    trainer = make_sim_transport(network, 1);
    rollout = make_sim_transport(network, 2);
    Copy copy;
    copy.source_type = copy.target_type = ElementType::u8;
    copy.extent = {32};
    copy.source_stride = copy.target_stride = {1};
    copies = {copy, copy};
    copies[0].source_offset = copies[1].target_offset = 32;
    plan_source = {{}, {{RegionKind::host_private, 64, {expose()}}}, 1};
  }

  RegionInfo::Ticket expose() { return *trainer->expose(*source_region); }
  Result<std::unique_ptr<Fetch>> prepare() {
    Region* const region = target_region.get();
    return rollout->prepare({copies, std::span(&plan_source, 1), std::span(&region, 1)});
  }
  /// The prepared fetch starts; what it says goes into `said`.
  void start() {
    if (!fetch) fetch = std::move(*prepare());
    said.clear();
    fetch->start([this](Result<FetchReport> result) { said.push_back(std::move(result)); });
  }
  [[nodiscard]] bool whole() const {
    return std::equal(source.begin() + 32, source.end(), target.begin()) &&
           std::equal(source.begin(), source.begin() + 32, target.begin() + 32);
  }
  [[nodiscard]] bool said_only(ErrorCode code) const {
    return said.size() == 1 && !said[0] && said[0].error().code == code;
  }
  ErrorCode refusal() {
    const auto prepared = prepare();
    REQUIRE_FALSE(prepared);
    return prepared.error().code;
  }

  Time time;

 private:
  Random random_;

 public:
  SimNetwork network;
  std::vector<std::byte> source = std::vector<std::byte>(64);
  std::vector<std::byte> target = std::vector<std::byte>(64);
  std::unique_ptr<Region> source_region = Region::borrow(source);
  std::unique_ptr<Region> target_region = Region::borrow(target);
  std::unique_ptr<Transport> trainer;
  std::unique_ptr<Transport> rollout;
  std::vector<Copy> copies;
  PlanSource plan_source;
  std::unique_ptr<Fetch> fetch;
  std::vector<Result<FetchReport>> said;
};

constexpr SimPath path{1, 2};

}  // namespace

TEST_CASE("a simulated fetch moves every byte, as often as it is started", "[transports][sim]") {
  World world;
  for (int version = 0; version < 3; ++version) {
    for (std::byte& byte : world.source) byte ^= std::byte{0x55};
    world.start();
    REQUIRE(world.said.empty());
    world.time.run();
    REQUIRE(world.said.size() == 1);
    REQUIRE(world.said[0]->bytes == 64);
    REQUIRE(world.said[0]->copies == 2);
    REQUIRE(world.whole());
  }
  REQUIRE(world.network.starts() == 3);
  REQUIRE(world.network.bytes_written() == 3 * 64);
}

TEST_CASE("a source that is overwritten meanwhile shows as torn bytes", "[transports][sim]") {
  World world;
  world.start();
  world.time.step();
  std::fill(world.source.begin(), world.source.end(), std::byte{0xff});
  world.time.run();
  REQUIRE(world.said.size() == 1);
  REQUIRE(world.said[0]);
  for (const std::size_t copy : {0U, 32U}) {
    CAPTURE(copy);
    const auto begin = world.target.begin() + static_cast<std::ptrdiff_t>(copy);
    const auto fresh = std::count(begin, begin + 32, std::byte{0xff});
    REQUIRE(fresh == 16);
  }
}

TEST_CASE("single elements are read at different times too", "[transports][sim]") {
  World world;
  for (Copy& copy : world.copies) {
    copy.extent = {};
    copy.source_stride = copy.target_stride = {};
  }
  world.start();
  world.time.step();
  std::fill(world.source.begin(), world.source.end(), std::byte{0xff});
  world.time.run();
  REQUIRE((world.target[0] == std::byte{0xff}) != (world.target[32] == std::byte{0xff}));
}

TEST_CASE("elements are converted on the way", "[transports][sim]") {
  World world;
  const float numbers[] = {1.5F, -2.0F};
  std::memcpy(world.source.data(), numbers, sizeof numbers);
  world.copies.resize(1);
  Copy& copy = world.copies[0];
  copy.source_type = ElementType::f32;
  copy.target_type = ElementType::bf16;
  copy.source_offset = 0;
  copy.extent = {2};
  copy.source_stride = {4};
  copy.target_stride = {2};
  world.start();
  world.time.run();
  const std::vector<std::byte> expected = {std::byte{0xc0}, std::byte{0x3f}, std::byte{0x00},
                                           std::byte{0xc0}};
  REQUIRE(std::equal(expected.begin(), expected.end(), world.target.begin()));
}

TEST_CASE("links take the time that they are set to", "[transports][sim]") {
  World world;
  const auto time_of_start = [&world] {
    const nanoseconds begun = world.time.now();
    world.start();
    world.time.run();
    REQUIRE(world.said.size() == 1);
    return world.time.now() - begun;
  };
  for (int i = 0; i < 100; ++i) {
    const nanoseconds time = time_of_start();
    REQUIRE(time > milliseconds(2));
    REQUIRE(time <= milliseconds(3) + nanoseconds(1));
  }
  world.network.set_link(path, {milliseconds(1), milliseconds(1), 64'000});  // 1 ms for 64 bytes.
  REQUIRE(time_of_start() > milliseconds(2));
  REQUIRE(time_of_start() <= milliseconds(2) + nanoseconds(250'001));
  world.network.set_late_by(milliseconds(50));
  world.network.fault_next(SimFault::late);
  REQUIRE(time_of_start() > milliseconds(52));
  REQUIRE(world.said[0]);
}

TEST_CASE("one seed means one order of events", "[transports][sim]") {
  const auto times = [](std::uint64_t seed) {
    World world(seed);
    std::vector<nanoseconds> result;
    for (int i = 0; i < 10; ++i) {
      world.start();
      world.time.run();
      result.push_back(world.time.now());
    }
    return result;
  };
  REQUIRE(times(5) == times(5));
  REQUIRE(times(5) != times(6));
}

TEST_CASE("the next starts fail as they are told, and later ones do not", "[transports][sim]") {
  World world;
  world.network.fault_next(SimFault::fail, 2);
  world.network.fault_next(SimFault::none);
  world.network.fault_next(SimFault::twice);
  for (int i = 0; i < 2; ++i) {
    world.start();
    world.time.run();
    REQUIRE(world.said_only(ErrorCode::io));
    REQUIRE_FALSE(world.whole());
  }
  world.start();
  world.time.run();
  REQUIRE(world.said.size() == 1);
  world.start();
  world.time.run();
  REQUIRE(world.said.size() == 2);
  world.start();
  world.time.run();
  REQUIRE(world.said.size() == 1);
}

TEST_CASE("a start that never ends is ended by cancel, and writes nothing after",
          "[transports][sim]") {
  World world;
  world.network.fault_next(SimFault::never);
  world.start();
  world.time.run();
  REQUIRE(world.said.empty());
  world.fetch->cancel();
  REQUIRE(world.said.empty());
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  world.fetch->cancel();
  world.time.run();
  REQUIRE(world.said.size() == 1);
  world.start();
  world.time.run();
  REQUIRE(world.whole());
}

TEST_CASE("a cancelled start writes no more", "[transports][sim]") {
  World world;
  world.start();
  world.time.step();
  const std::vector<std::byte> before = world.target;
  world.fetch->cancel();
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  REQUIRE(world.target == before);
}

TEST_CASE("after a fetch is destroyed no byte is written", "[transports][sim]") {
  World world;
  world.start();
  world.time.step();
  const std::vector<std::byte> before = world.target;
  world.fetch.reset();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  world.time.run();
  REQUIRE(world.target == before);
  REQUIRE(world.said.size() == 1);
}

TEST_CASE("a cut path fails starts, those under way too, until it is healed", "[transports][sim]") {
  World world;
  world.network.cut({2, 1}, SimCut::fail);  // The other way: this is nobody's.
  world.start();
  world.time.step();
  world.network.cut(path, SimCut::fail);
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  world.start();
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  world.network.heal(path);
  world.start();
  world.time.run();
  REQUIRE(world.said[0]);
  REQUIRE(world.whole());
}

TEST_CASE("what hangs on a cut path goes on when it is healed", "[transports][sim]") {
  World world;
  world.start();
  world.time.step();
  world.network.cut(path, SimCut::hang);
  world.time.run();
  REQUIRE(world.said.empty());
  world.network.heal(path);
  REQUIRE(world.said.empty());
  world.time.run();
  REQUIRE(world.said.size() == 1);
  REQUIRE(world.whole());
}

TEST_CASE("what hangs can be cancelled and started anew", "[transports][sim]") {
  World world;
  world.network.cut(path, SimCut::hang);
  world.start();
  world.time.run();
  world.fetch->cancel();
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  world.network.heal(path);
  world.start();
  world.time.run();
  REQUIRE(world.said.size() == 1);
  REQUIRE(world.said[0]);
}

TEST_CASE("a host that is down can't be read, and comes back with other tickets",
          "[transports][sim]") {
  World world;
  world.start();
  world.time.step();
  world.network.take_down(1);
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  REQUIRE(world.refusal() == ErrorCode::unavailable);
  world.network.bring_up(1);
  REQUIRE_FALSE(world.trainer->expose(*world.source_region));
  world.trainer = make_sim_transport(world.network, 1);
  const auto ticket = world.expose();
  REQUIRE(ticket != world.plan_source.regions[0].tickets[0]);
  REQUIRE(world.refusal() == ErrorCode::unavailable);
  world.plan_source.regions[0].tickets = {ticket};
  world.fetch.reset();
  world.start();
  world.time.run();
  REQUIRE(world.whole());
}

TEST_CASE("a host that is short of memory is refused some of what it maps, and later nothing",
          "[transports][sim]") {
  World world;
  const auto refusals = [&world] {
    int refused = 0;
    for (int i = 0; i < 40; ++i) {
      const auto fetch = world.prepare();
      if (fetch) continue;
      ++refused;
      REQUIRE(fetch.error().code == ErrorCode::refused);
      REQUIRE(fetch.error().text == "host 2 has no memory left: free some");
    }
    return refused;
  };
  REQUIRE(refusals() == 0);
  world.network.short_of_memory(2, true);
  // Every second time on average; fewer than 10 of 40 are one seed in a thousand.
  REQUIRE(refusals() >= 10);
  REQUIRE(refusals() <= 30);
  REQUIRE(world.trainer->expose(*world.source_region));
  world.network.short_of_memory(2, false);
  REQUIRE(refusals() == 0);
}

TEST_CASE("a reader that is down writes nothing more, not even when its host is back",
          "[transports][sim]") {
  World world;
  world.start();
  world.time.step();
  const std::vector<std::byte> before = world.target;
  world.network.take_down(2);
  world.network.bring_up(2);
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  world.start();
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  REQUIRE(world.target == before);
  REQUIRE(world.refusal() == ErrorCode::unavailable);
}

TEST_CASE("a region that was withdrawn, or whose transport is gone, can't be read",
          "[transports][sim]") {
  World world;
  REQUIRE(world.expose() == world.plan_source.regions[0].tickets[0]);
  world.start();
  world.time.step();
  world.trainer->withdraw(*world.source_region);
  world.trainer->withdraw(*world.source_region);
  world.time.run();
  REQUIRE(world.said_only(ErrorCode::unavailable));
  REQUIRE(world.refusal() == ErrorCode::unavailable);
  world.plan_source.regions[0].tickets = {world.expose()};
  REQUIRE(world.prepare());
  world.trainer.reset();
  REQUIRE(world.refusal() == ErrorCode::unavailable);
}

TEST_CASE("tickets that are foreign or malformed are invalid", "[transports][sim]") {
  World world;
  RegionInfo& region = world.plan_source.regions[0];
  REQUIRE(region.tickets[0].bytes == "1:1:64");
  for (const char* text :
       {"", "1", "1:1", "1:1:", "1:1:64:", "1:1:64 ", "+1:1:64", "01:1:64", "1:1:-64", "1:1:65",
        "2:1:64", "1:0:64", "1:2:64", "4294967296:1:64", "1:18446744073709551616:64"}) {
    CAPTURE(text);
    region.tickets[0].bytes = text;
    REQUIRE(world.refusal() == ErrorCode::invalid);
  }
  region.tickets = {{"shm", "1:1:64"}};
  REQUIRE(world.refusal() == ErrorCode::invalid);
  region.tickets = {{"shm", "x"}, {"sim", "1:1:64"}};
  REQUIRE(world.prepare());
  region.bytes = 65;
  REQUIRE(world.refusal() == ErrorCode::invalid);
}

TEST_CASE("copies that leave their regions are invalid", "[transports][sim]") {
  const auto refusal_of = [](const std::function<void(Copy&)>& change) {
    World world;
    change(world.copies[1]);
    return world.refusal();
  };
  REQUIRE(refusal_of([](Copy& c) { c.source = 1; }) == ErrorCode::invalid);
  REQUIRE(refusal_of([](Copy& c) { c.source_region = 1; }) == ErrorCode::invalid);
  REQUIRE(refusal_of([](Copy& c) { c.target_region = 1; }) == ErrorCode::invalid);
  REQUIRE(refusal_of([](Copy& c) { c.source_offset = 33; }) == ErrorCode::invalid);
  REQUIRE(refusal_of([](Copy& c) { c.target_offset = 33; }) == ErrorCode::invalid);
}

}  // namespace weir
