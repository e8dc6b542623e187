#pragma once
// A simulated exchange with its trainers and rollouts: their processes, memory and engines.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/shards.hpp"
#include "actors/internal/sim_model.hpp"
#include "actors/internal/sim_net.hpp"
#include "actors/internal/sim_owner.hpp"
#include "actors/member.hpp"
#include "actors/simulation.hpp"
#include "transports/sim/sim_transport.hpp"

namespace weir::sim {

/// What a world is made of.
struct Scene {
  ExchangeOptions exchange;
  std::uint32_t trainer_slots = 1;
  std::vector<Placement> placements;  ///< By rollout replica.
  std::uint64_t window_bytes_max = 1 << 20;
  /// One hook in so many fails, is late, or never ends; 0 for none.
  std::uint64_t hook_trouble = 0;
  /// Whether the code goes wrong where it proposes to.
  bool buggify = false;
  /// So many of the last rollout replicas are started by `World::come`, not by `World::start`.
  std::uint32_t late_replicas = 0;
  Duration train_time = std::chrono::milliseconds(200);
  /// For how long a trainer wants the slot that it would write.
  Duration write_patience = std::chrono::seconds(5);
  /// Trainers fill a slot in so many steps, and say after each how much stands; 0: in two that only
  /// together leave anything whole.
  std::uint64_t stages = 0;
  Duration stage_most = std::chrono::milliseconds(20);  ///< Each takes from nothing to this.
  /// One filling in so many stalls for long, or comes to nothing and is begun again; 0 for none.
  std::uint64_t stage_trouble = 0;
  SimLink link;  ///< How fast bytes move.
  /// Engines rest between two steps, for a sixth of it to all of it. Long stories need few steps.
  Duration rest_most = std::chrono::milliseconds(30);
  Demand demand;
};

class World;
class Host;

enum class HookKind : std::uint8_t { update, pause, install, resume };

/// What comes of one call of a hook.
struct HookManner {
  Duration delay{};  ///< Beyond the usual one.
  bool fails = false;
  bool ends = true;
};
/// Asked at every call of a hook, before it has any effect.
using HookWatch = std::function<HookManner(const Host& host, HookKind kind, const HookCall& call)>;

/// A member's process and its host program: one life of it.
class Host {
 public:
  Host(World& world, const ShardId& shard, Process& process, std::uint32_t number);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const ShardId shard;
  Process& process;
  const std::uint32_t number;  ///< On the network of bytes; never used again.
  const Duration born;

  // A rollout's engine:
  bool running = false;
  bool stepping = false;
  std::uint64_t version = 0;  ///< Of the live weights, as its engine believes.
  std::optional<Result<void>> ended;

  [[nodiscard]] bool up() const { return process.alive && !process.hung; }
  [[nodiscard]] std::span<const std::byte> live() const;
  void step_is_over();

  /// A trainer's program: the version that it goes for.
  std::uint64_t goal = 1;
  void train();

 private:
  friend class World;
  void start();
  void end(Result<void> why);
  MemberHooks hooks();
  void hook(HookKind kind, const HookCall& call, std::function<Result<void>()> work, HookDone done);
  void begin();
  void write(std::uint64_t version, std::uint32_t slot);
  void stage(std::uint64_t version, std::uint32_t slot, std::uint64_t step);
  void give(std::uint64_t version);
  void ask(std::function<void(caf::event_based_actor*)> what);

  World& world_;
  std::uint32_t ranks_;
  Placement placement_ = Placement::in_place;
  std::uint32_t slots_ = 1;
  std::vector<std::vector<std::byte>> memory_;  ///< By slot; for staging, the live weights behind.
  std::vector<std::unique_ptr<Region>> regions_;
  std::unique_ptr<Transport> transport_;
  TrainerHostActor trainer_;
  std::uint32_t live_slot_ = 0;
  std::uint64_t read_before_ = 0;  ///< From a slot before it was filled.
  std::vector<std::function<void()>> at_boundary_;
};

class World {
 public:
  World(std::uint64_t seed, const Scene& scene);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The exchange's process and all members.
  void start();
  /// A late replica is started.
  void come(std::uint32_t replica);
  /// One step of the world. False once an invariant is broken, or nothing is left.
  bool step();
  bool run_until(const std::function<bool()>& done, Duration patience, std::uint64_t steps_max);

  // What can go wrong.
  void kill(Host& host, bool notice, Duration restart_after);
  void hang(Host& host, Duration time);
  void cut(Host& host, Net::Way way, Duration time);
  /// That member, and whoever takes its place meanwhile, is refused memory.
  void starve(const ShardId& shard, Duration time);
  void kill_exchange(bool notice, Duration restart_after);
  /// An actor of the exchange, or of that member, that is about to run has to wait. False when
  /// there is none.
  bool stall_actor(const std::optional<ShardId>& member, Duration time);
  /// An actor of the exchange that is about to run fails; with `name`, one of that name. False when
  /// there is none.
  bool crash_actor(std::string_view name = {});

  /// Every replica serves the newest version that is whole, and that is at least `version`.
  [[nodiscard]] bool settled(std::uint64_t version) const;
  /// Engines and the code itself fail no more, and bytes move fast.
  void calm() {
    scene_.hook_trouble = 0;
    scene_.stage_trouble = 0;
    scene_.buggify = false;
    scene_.link = {};
    bytes_.set_link(scene_.link);
    while (!starved_.empty()) feed(ShardId(starved_.begin()->first));
  }
  /// Decides what hooks do, besides the scene's trouble.
  void watch_hooks(HookWatch watch) { hook_watch_ = std::move(watch); }
  /// Trainers stop after that version.
  void finish_at(std::uint64_t version) { last_version_ = version; }
  [[nodiscard]] std::uint64_t last_version() const noexcept { return last_version_; }

  Net& net() noexcept { return net_; }
  SimNetwork& bytes() noexcept { return bytes_; }
  [[nodiscard]] const Scene& scene() const noexcept { return scene_; }
  [[nodiscard]] std::vector<Host*> hosts() const;
  Host* host(const ShardId& shard) const;
  SupervisorActor supervisor() const { return supervisor_; }
  Process* exchange_process() const { return exchange_; }

  void broke(const std::string& invariant);
  /// How far everyone is, for a person who wonders why nothing goes on.
  void describe();
  [[nodiscard]] const std::optional<std::string>& broken() const noexcept { return broken_; }
  void tell(const std::string& line);
  bool narrate = false;
  std::vector<std::string> story;

  std::uint64_t commits = 0;
  std::uint64_t decodes = 0;
  /// That rollouts read from trainers' slots before those were whole.
  std::uint64_t bytes_read_early = 0;
  std::uint64_t restarts = 0;
  std::uint64_t strikes = 0;  ///< How often the code went wrong where it proposed to.
  std::uint64_t newest_whole = 0;
  std::uint64_t goal_max = 1;
  MatrixModel model;

  // For hosts.
  FinderActor spawn_finder_for(Host& host);
  void given(const ShardId& trainer, std::uint64_t version);
  Buggify buggify();
  /// A member has ended by itself; whoever looks after the processes starts it again.
  void left(Host& host);
  [[nodiscard]] bool is_starved(const ShardId& shard) const { return starved_.contains(shard); }
  Duration between(Duration least, Duration most);
  [[nodiscard]] const HookWatch& hook_watch() const noexcept { return hook_watch_; }
  /// Whether there is a batch to train `version` from, where batches are asked for. All shards of
  /// all trainers are told the same.
  bool may_train(std::uint64_t version);

  // For owners and engines.
  Engines& engines(std::uint32_t replica) { return *engines_.at(replica); }
  /// Null in a scene without demand.
  [[nodiscard]] Owner* owner() const { return owner_.get(); }
  void trained();
  void ready(std::uint64_t version) { ready_ = std::max(ready_, version); }
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_; }

 private:
  void start_exchange();
  void start_host(const ShardId& shard);
  void feed(const ShardId& shard);
  void decode(std::uint32_t replica);
  void end_decode(std::uint32_t replica, const std::vector<Host*>& ranks);
  /// Whether no process that lived when the replica served its newest version is left to know.
  [[nodiscard]] bool forgotten(std::uint32_t replica, const std::vector<Host*>& ranks) const;

  Scene scene_;
  Net net_;
  SimNetwork bytes_;
  Process* exchange_ = nullptr;
  SupervisorActor supervisor_;
  std::vector<std::unique_ptr<Engines>> engines_;  ///< By rollout replica.
  std::unique_ptr<Owner> owner_;
  std::vector<std::unique_ptr<Owner>> former_owners_;
  std::uint64_t batches_ = 0;
  std::uint64_t ready_ = 0;      ///< The newest version, as the owner was told.
  std::uint64_t trainable_ = 0;  ///< Versions that there are batches for.
  /// Up to here trainers publish without: what was lost with one of them can't be sampled from.
  std::uint64_t republished_ = 0;
  std::uint64_t permitted_ = 0;  ///< The newest version that a shard was told to train.
  std::map<ShardId, std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Host>> former_;  ///< Those that died.
  std::uint32_t next_number_ = 1;
  std::map<ShardId, Duration> starved_;  ///< Until when.
  struct Served {
    std::uint64_t version = 0;
    Duration at{};  ///< When it was served for the first time.
  };
  std::map<std::uint32_t, Served> served_;  ///< The newest version, by replica.
  Duration exchange_born_{};
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<std::uint32_t>> given_;
  std::set<std::uint64_t> whole_;
  std::uint64_t last_version_ = ~std::uint64_t{0};
  std::optional<std::string> broken_;
  /// One time in so many does the code go wrong there, never for 0; by the place's name.
  std::map<std::string, std::uint64_t, std::less<>> one_in_;
  HookWatch hook_watch_;
};

}  // namespace weir::sim
