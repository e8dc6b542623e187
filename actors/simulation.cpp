#include "actors/simulation.hpp"

#include <optional>
#include <utility>

#include "actors/internal/sim_world.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;
using sim::Host;
using sim::Net;
using sim::Scene;
using sim::World;

constexpr Duration storm = 10s;
/// After the storm every wait of the protocol ends by its deadline; twenty of them in a row are far
/// more than any order of events needs.
constexpr Duration calm_patience = 1200s;

template <class T, std::size_t N>
T pick(Random& random, const T (&choices)[N]) {
  return choices[random.below(N)];
}

void draw_demand(Random& random, bool faults, Scene& scene) {
  const char* const policies[] = {
      "areal:eta=0,batch=2,max_concurrent=4",
      "areal:eta=2,batch=2,max_concurrent=8",
      "verl:batch=2,staleness=0.5",
      "verl_span:batch=2,groups=4,threshold=2,old=drop",
      "verl_span:batch=2,groups=4,threshold=2,old=wait",
      "nemo:batch=2,window=1,sampler=in_order",
      "nemo:batch=2,window=1,sampler=weight_fifo",
      "nemo:batch=2,window=1,sampler=windowed",
      "prime:max_concurrent=4",
      "pipeline:batch=2,attempts=2,max_lag=4",
      "semaphore:size=4,until=taken",
      "semaphore:size=4,until=finished",
  };
  SamplingOptions& sampling = scene.exchange.sampling;
  sampling.policy = *parse_policy(pick(random, policies));
  sampling.staleness_max = pick(random, {1UL, 2UL, 8UL});
  sampling.queue_max = pick(random, {4UL, 64UL});
  sampling.retries_max = static_cast<std::uint32_t>(random.below(3));
  scene.demand.batch = 2;
  scene.demand.tokens_max = pick(random, {4UL, 16UL});
  if (faults) scene.demand.trouble = pick(random, {0UL, 5UL, 20UL});
}

Scene draw_scene(Random& random, bool faults) {
  Scene scene;
  ExchangeOptions& exchange = scene.exchange;
  exchange.trainer_replicas = random.chance(1, 3) ? 2 : 1;
  exchange.trainer_ranks = random.chance(2, 3) ? 2 : 1;
  exchange.rollout_replicas = 1 + static_cast<std::uint32_t>(random.below(3));
  exchange.rollout_ranks = random.chance(2, 3) ? 2 : 1;
  exchange.join_deadline = 600s;
  exchange.publish_deadline = 60s;
  exchange.lease_deadline = pick(random, {Duration(1s), Duration(10s), Duration(40s)});
  exchange.pause_deadline = 5s;
  exchange.install_deadline = 5s;
  exchange.resume_deadline = 5s;
  exchange.follow = random.chance(1, 2) ? Follow::finish : Follow::jump;
  exchange.in_flight = static_cast<InFlight>(random.below(5));
  scene.trainer_slots = 1 + static_cast<std::uint32_t>(random.below(3));
  // Only replicas that are alike stand in for each other.
  const bool alike = random.chance(1, 2);
  for (std::uint32_t replica = 0; replica < exchange.rollout_replicas; ++replica) {
    const auto drawn = static_cast<Placement>(random.below(3));
    scene.placements.push_back(alike && replica > 0 ? scene.placements.front() : drawn);
  }
  scene.window_bytes_max =
      pick(random, {std::uint64_t{16}, std::uint64_t{64}, std::uint64_t{4096}});
  scene.train_time = pick(random, {Duration(50ms), Duration(200ms), Duration(1s)});
  scene.stages = pick(random, {0UL, 4UL, 12UL});
  scene.stage_most = pick(random, {Duration(5ms), Duration(30ms), Duration(100ms)});
  if (faults) {
    scene.stage_trouble = pick(random, {0UL, 5UL, 50UL});
    // Slow fetches and impatient trainers meet more of what else goes wrong.
    scene.link.delay_most = pick(random, {Duration(1ms), Duration(20ms), Duration(100ms)});
    scene.write_patience = pick(random, {Duration(100ms), Duration(1s), Duration(5s)});
  }
  if (faults && random.chance(1, 3)) scene.hook_trouble = pick(random, {20UL, 60UL, 200UL});
  if (random.chance(1, 2)) draw_demand(random, faults, scene);
  scene.buggify = faults && random.chance(1, 2);
  return scene;
}

class Storm {
 public:
  explicit Storm(World& world) : world_(world) {}

  void gather() {
    Random& random = world_.net().random();
    const std::size_t count = random.below(pick(random, {7UL, 30UL}));
    for (std::size_t i = 0; i < count; ++i) {
      world_.net().after(world_.between(0ns, storm), [this] { strike(); });
    }
  }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

 private:
  void strike() {
    ++count_;
    Random& random = world_.net().random();
    const auto hosts = world_.hosts();
    Host& host = *hosts[random.below(hosts.size())];
    const bool notice = random.chance(2, 3);
    switch (random.below(12)) {
      case 0:
      case 1:
        return world_.kill(host, notice,
                           world_.between(0ns, pick(random, {50ms, 1000ms, 10'000ms})));
      case 2:
        return world_.hang(host, world_.between(1ms, 5s));
      case 3:
        return world_.cut(
            host, pick(random, {Net::Way::to_exchange, Net::Way::to_member, Net::Way::both}),
            world_.between(1ms, 5s));
      case 4:
        return world_.kill_exchange(notice, world_.between(0ns, 3s));
      case 5:
        return crash_soon();
      case 6:
        return world_.bytes().fault_next(
            pick(random, {SimFault::fail, SimFault::late, SimFault::twice, SimFault::never}),
            1 + static_cast<int>(random.below(4)));
      case 7:
        return cut_bytes();
      case 8:
        return stall_soon(std::nullopt, world_.between(1ms, 3s));
      case 9:
        return stall_soon(host.shard, world_.between(1ms, 3s));
      case 10:
        world_.starve(host.shard, world_.between(1ms, 5s));
        // A member that comes needs most of it.
        if (random.chance(1, 2)) world_.kill(host, notice, world_.between(0ns, 50ms));
        return;
      default:
        return slow_down();
    }
  }

  [[nodiscard]] bool is_over() const { return world_.net().now() > storm; }

  void crash_soon() {
    if (is_over() || world_.crash_actor()) return;
    world_.net().after(world_.between(0ns, 1ms), [this] { crash_soon(); });
  }

  void stall_soon(const std::optional<ShardId>& member, Duration time) {
    if (is_over() || world_.stall_actor(member, time)) return;
    world_.net().after(world_.between(0ns, 1ms),
                       [this, member, time] { stall_soon(member, time); });
  }

  void cut_bytes() {
    Random& random = world_.net().random();
    const auto hosts = world_.hosts();
    const SimPath path{hosts[random.below(hosts.size())]->number,
                       hosts[random.below(hosts.size())]->number};
    world_.bytes().cut(path, random.chance(1, 2) ? SimCut::fail : SimCut::hang);
    world_.net().after(world_.between(1ms, 5s), [this, path] { world_.bytes().heal(path); });
  }

  void slow_down() {
    world_.net().delay_max = 100ms;
    SimLink slow;
    slow.delay_most = 500ms;
    world_.bytes().set_link(slow);
    world_.net().after(world_.between(1ms, 5s), [this] {
      world_.net().delay_max = 1ms;
      world_.bytes().set_link(world_.scene().link);
    });
  }

  World& world_;
  std::uint64_t count_ = 0;
};

/// Samples are delivered also when no version comes any more, and all are accounted for.
void check_owner(World& world, std::uint64_t steps_max) {
  world.owner()->expect_no_more_versions();
  const std::uint64_t goal = world.batches() + 3;
  const bool goes_on =
      world.run_until([&] { return world.batches() >= goal; }, calm_patience, steps_max);
  if (goes_on || world.broken()) return;
  world.describe();
  world.broke("samples are not delivered any more");
}

}  // namespace

Result<SimulationReport> simulate(const SimulationOptions& options) {
  Random draw(options.seed);
  World world(options.seed ^ 0x5eedU, draw_scene(draw, options.faults));
  world.narrate = options.narrate;
  Storm faults(world);
  world.start();
  if (options.faults) faults.gather();
  SimulationReport report;
  report.seed = options.seed;
  world.run_until([] { return false; }, storm + 3s, options.steps_max);
  // Nothing fails any more: what was published, and two versions more, have to arrive.
  world.calm();
  world.finish_at(world.goal_max + 2);
  const bool settled = world.run_until([&world] { return world.settled(world.last_version()); },
                                       calm_patience, options.steps_max);
  if (!settled && !world.broken()) {
    world.describe();
    world.broke("not every replica came to version " + std::to_string(world.last_version()) +
                " after all faults had ended");
  }
  if (!options.faults && world.restarts != 0) world.broke("a member ended, and nothing had failed");
  if (world.owner() != nullptr && !world.broken()) check_owner(world, options.steps_max);
  report.steps = world.net().steps();
  report.time = world.net().now();
  report.versions = world.newest_whole;
  report.commits = world.commits;
  report.batches = world.batches();
  report.decodes = world.decodes;
  report.bytes_moved = world.bytes().bytes_written();
  report.bytes_read_early = world.bytes_read_early;
  report.faults = faults.count() + world.strikes;
  report.restarts = world.restarts;
  report.trace = world.net().trace().finish();
  report.last_draw = world.net().random().next();
  report.story = std::move(world.story);
  if (world.broken()) {
    std::string text = "seed " + std::to_string(options.seed) + ": " + *world.broken();
    for (const std::string& line : report.story) text += "\n" + line;
    return failure(ErrorCode::invalid, text);
  }
  return report;
}

}  // namespace weir
