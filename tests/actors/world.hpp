#pragma once
// An exchange and its members in one process, one thread and virtual time. One seed decides who
// runs next, and when copies and hooks are done.

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/internal/engine.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/planner.hpp"
#include "actors/internal/shards.hpp"
#include "actors/internal/supervisor.hpp"
#include "actors/internal/system.hpp"
#include "actors/internal/transport_worker.hpp"
#include "runtime/codec.hpp"
#include "tests/actors/fake_transport.hpp"
#include "tests/actors/random.hpp"
#include "tests/actors/shown_results.hpp"
#include "tests/actors/small_model.hpp"

namespace weir {

/// The answer to a request, once it is there.
template <class T>
using Answer = std::shared_ptr<std::optional<Result<T>>>;

class World {
 public:
  /// A member's process: its memory, its engine, its transport.
  struct Host {
    ShardId shard;
    std::uint32_t ranks = 1;
    std::vector<std::byte> memory;
    std::unique_ptr<Region> region;
    std::unique_ptr<FakeTransport> transport;
    /// How update (trainers) and verify (rollouts) go for each version.
    std::function<Manner(std::uint64_t)> hook_manner = [](std::uint64_t) {
      return Manner::succeed;
    };
    std::function<Manner(int)> fetch_manner = [](int) { return Manner::succeed; };
    caf::actor_addr address;
    std::optional<Result<void>> ended;
  };

  World(std::uint64_t seed, const ExchangeOptions& options)
      : options_(options), random_(seed), system_(config_.use_virtual_time()) {
    planner_ = spawn_planner(system_, options_);
    supervisor_ = spawn_supervisor(system_, options_, planner_);
  }

  ~World() {
    kill(supervisor_.address());
    for (const auto& host : hosts_) kill(host->address);
    supervisor_ = nullptr;
    planner_ = nullptr;
    drain();
    scheduler().clock().cancel_all();
    drain();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// A member that has not been started.
  Host& add(const ShardId& shard) {
    auto host = std::make_unique<Host>();
    host->shard = shard;
    host->ranks = shard.side == Side::trainer ? options_.trainer_ranks : options_.rollout_ranks;
    host->memory.resize(model.bytes_of(shard, host->ranks));
    host->region = Region::borrow(host->memory);
    host->transport = std::make_unique<FakeTransport>(
        [own = host.get()](int nth) { return own->fetch_manner(nth); }, &chores_);
    hosts_.push_back(std::move(host));
    return *hosts_.back();
  }

  /// All members that the exchange expects.
  void add_all() {
    const auto add_side = [this](Side side, std::uint32_t replicas, std::uint32_t ranks) {
      for (std::uint32_t replica = 0; replica < replicas; ++replica) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) add({side, replica, rank});
      }
    };
    add_side(Side::trainer, options_.trainer_replicas, options_.trainer_ranks);
    add_side(Side::rollout, options_.rollout_replicas, options_.rollout_ranks);
  }

  void start(Host& host) { start(host, planner_); }
  void start(Host& host, const JoinActor& exchange) {
    Manifest manifest = model.manifest_of(host.shard, host.ranks);
    manifest.regions[0].tickets = {*host.transport->expose(*host.region)};
    ShardConfig config;
    config.shard = host.shard;
    config.manifest = *to_payload(encode(manifest), "the manifest");
    config.exchange = exchange;
    config.engine = spawn_engine(system_, hooks_of(host));
    config.on_end = [&host](Result<void> why) { host.ended = std::move(why); };
    if (host.shard.side == Side::trainer) {
      host.address = spawn_trainer(system_, config).address();
    } else {
      config.transport = spawn_transport_worker(system_, *host.transport, {host.region.get()});
      host.address = spawn_rollout(system_, config).address();
    }
  }

  void start_all() {
    for (const auto& host : hosts_) start(*host);
  }

  Host& host(const ShardId& shard) {
    for (const auto& host : hosts_) {
      if (host->shard == shard) return *host;
    }
    FAIL("no such host");
    return *hosts_.front();
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }

  /// Sends a request as an outsider would, without a deadline.
  template <class T, class Handle, class... Ts>
  Answer<T> ask(const Handle& receiver, const Ts&... content) {
    auto answer = std::make_shared<std::optional<Result<T>>>();
    system_.spawn([receiver, answer, ... content = content](caf::event_based_actor* self) {
      self->request(receiver, caf::infinite, content...)
          .then([answer](const T& reply) { answer->emplace(reply); },
                [answer](caf::error& error) { answer->emplace(tl::unexpected(from_caf(error))); });
    });
    return answer;
  }
  Answer<FormationPtr> await_plan() { return ask<FormationPtr>(supervisor_, PlanAtom::value); }
  Answer<VersionReport> publish(std::uint64_t version) {
    return ask<VersionReport>(supervisor_, PublishAtom::value, version);
  }
  void abort(const std::string& why) {
    caf::anon_send(supervisor_, FailAtom::value, Error{ErrorCode::unavailable, why});
  }
  Answer<caf::ok_atom> end() { return ask<caf::ok_atom>(supervisor_, EndAtom::value); }

  void kill(const caf::actor_addr& address) {
    caf::anon_send_exit(address, caf::exit_reason::kill);
  }
  /// Has an actor of ours fail, as an exception would.
  void crash(const caf::actor_addr& address) {
    caf::anon_send_exit(address, caf::exit_reason::unhandled_exception);
  }
  /// The same for the first actor of that name that is about to run; false when there is none.
  bool crash_named(const std::string& name) {
    for (caf::resumable* job : scheduler().jobs) {
      auto* actor = dynamic_cast<caf::scheduled_actor*>(job);
      if (actor == nullptr || actor->name() != name) continue;
      crash(actor->address());
      return true;
    }
    return false;
  }

  /// One actor runs for one message, or one chore is done; false when there is neither.
  bool step() {
    auto& jobs = scheduler().jobs;
    const std::size_t choices = jobs.size() + chores_.size();
    if (choices == 0) return false;
    const std::size_t choice = random_.below(choices);
    ++steps_;
    if (choice < jobs.size()) {
      std::swap(jobs.front(), jobs[choice]);
      if (const auto* actor = dynamic_cast<caf::scheduled_actor*>(jobs.front())) {
        trace_.add(std::string_view(actor->name()));
        trace_.add(actor->id());
      }
      REQUIRE(scheduler().try_run_once());
    } else {
      const auto position = chores_.begin() + static_cast<std::ptrdiff_t>(choice - jobs.size());
      const auto chore = std::move(*position);
      chores_.erase(position);
      trace_.add(choice);
      chore();
    }
    return true;
  }

  void drain() {
    while (step()) {
    }
  }

  /// Runs until that is so; time goes on to the next timeout when nothing else is left. False when
  /// nothing at all is left, or it takes far too long.
  bool until(const std::function<bool()>& done) {
    for (int patience = 100'000; patience != 0; --patience) {
      if (done()) return true;
      if (!step() && !wait()) return false;
    }
    return false;
  }
  template <class T>
  Result<T> outcome(const Answer<T>& answer) {
    REQUIRE(until([&answer] { return answer->has_value(); }));
    return **answer;
  }

  /// Runs actors until only chores are left to do, or nothing.
  void run_actors() {
    Chores put_off;
    std::swap(put_off, chores_);
    while (!scheduler().jobs.empty()) {
      step();
      put_off.insert(put_off.end(), chores_.begin(), chores_.end());
      chores_.clear();
    }
    std::swap(put_off, chores_);
  }
  /// Does the oldest chore, out of turn.
  void do_chore() {
    const auto chore = std::move(chores_.front());
    chores_.pop_front();
    chore();
  }
  /// Lets that much time pass in which nobody acts.
  void pass(Duration time) { scheduler().clock().current_time += time; }

  /// Lets time pass until the next timeout; false when there is none.
  bool wait() {
    auto& clock = scheduler().clock();
    if (clock.schedule().empty()) return false;
    clock.current_time = std::max(clock.current_time, clock.schedule().begin()->first);
    clock.trigger_expired_timeouts();
    return true;
  }

  [[nodiscard]] Duration now() { return scheduler().clock().now().time_since_epoch(); }
  [[nodiscard]] std::size_t steps() const { return steps_; }
  [[nodiscard]] Digest trace() const { return trace_.finish(); }
  /// Actors that have not ended.
  [[nodiscard]] std::size_t running() { return system_.registry().running(); }

  caf::actor_system& system() { return system_; }
  const PlannerActor& planner() { return planner_; }
  const SupervisorActor& supervisor() { return supervisor_; }
  Chores& chores() { return chores_; }
  Random& random() { return random_; }
  SmallModel model;

 private:
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }

  MemberHooks hooks_of(Host& host) {
    const auto hook = [this, &host](std::uint64_t version, HookDone done) {
      chores_.push_back([this, &host, version, done = std::move(done)] {
        const Manner manner = host.hook_manner(version);
        if (manner == Manner::stall) return;
        if (manner == Manner::fail) return done(failure(ErrorCode::io, "the engine is out"));
        done(host.shard.side == Side::trainer ? make(host, version) : compare(host, version));
        if (manner == Manner::say_twice) done({});
      });
    };
    return {hook, hook};
  }

  Result<void> make(Host& host, std::uint64_t version) const {
    model.fill(host.shard, host.ranks, version, host.memory.data());
    return {};
  }

  /// When one shard verifies, every shard of its replica holds the whole version.
  Result<void> compare(const Host& host, std::uint64_t version) const {
    for (const auto& other : hosts_) {
      if (other->shard.side != Side::rollout || other->shard.replica != host.shard.replica ||
          other->ended)
        continue;
      if (!model.holds(other->shard, other->ranks, version, other->memory.data())) {
        return failure(ErrorCode::invalid, text_of(other->shard) + " has wrong bytes");
      }
    }
    return {};
  }

  ExchangeOptions options_;
  Random random_;
  Digester trace_;
  std::size_t steps_ = 0;
  Chores chores_;
  std::vector<std::unique_ptr<Host>> hosts_;
  ActorSystemConfig config_;
  caf::actor_system system_;
  PlannerActor planner_;
  SupervisorActor supervisor_;
};

}  // namespace weir
