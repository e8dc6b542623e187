#include <algorithm>
#include <cstring>

#include "actors/internal/engine.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/sim_world.hpp"
#include "actors/internal/transport_worker.hpp"
#include "runtime/codec.hpp"

namespace weir::sim {

using namespace std::chrono_literals;

Host::Host(World& world, const ShardId& own_shard, Process& own_process, std::uint32_t own_number)
    : shard(own_shard),
      process(own_process),
      number(own_number),
      born(world.net().now()),
      world_(world) {
  const Scene& scene = world.scene();
  ranks_ =
      shard.side == Side::trainer ? scene.exchange.trainer_ranks : scene.exchange.rollout_ranks;
  if (shard.side == Side::trainer) {
    slots_ = scene.trainer_slots;
  } else {
    placement_ = scene.placements.at(shard.replica);
    slots_ = placement_ == Placement::second_buffer ? 2 : 1;
  }
}

void Host::start() {
  world_.bytes().bring_up(number);
  world_.bytes().short_of_memory(number, world_.is_starved(shard));
  transport_ = make_sim_transport(world_.bytes(), number);
  const std::size_t buffers = placement_ == Placement::staging ? 2 : slots_;
  memory_.assign(buffers, std::vector<std::byte>(world_.model.bytes_of(shard, ranks_)));
  Manifest manifest = world_.model.manifest_of(shard, ranks_, slots_);
  std::vector<Region*> targets;
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    regions_.push_back(Region::borrow(memory_[slot]));
    auto ticket = transport_->expose(*regions_.back());
    if (!ticket) {
      return end(failure(ticket.error().code, text_of(shard) + " can't show region " +
                                                  std::to_string(slot) + ": " +
                                                  ticket.error().text));
    }
    manifest.regions[slot].tickets = {*std::move(ticket)};
    targets.push_back(regions_.back().get());
  }
  ShardConfig config;
  config.shard = shard;
  config.slots = slots_;
  config.placement = placement_;
  config.manifest = *to_payload(encode(manifest), "the manifest");
  config.finder = world_.spawn_finder_for(*this);
  config.engine = spawn_engine(process.system(), hooks());
  config.connect_deadline = 600s;
  config.reconnect_deadline = 600s;
  config.buggify = world_.buggify();
  config.on_end = [this](Result<void> why) { end(std::move(why)); };
  const auto keep = [this](const auto& actor) {
    process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(actor));
  };
  if (shard.side == Side::trainer) {
    trainer_ = spawn_trainer(process.system(), config);
    keep(trainer_);
    train();
  } else {
    config.transport = spawn_transport_worker(process.system(), *transport_, targets,
                                              {.window_bytes_max = world_.scene().window_bytes_max,
                                               .slots = slots_,
                                               .buggify = world_.buggify()});
    keep(spawn_rollout(process.system(), config));
    keep(config.transport);
  }
  keep(config.finder);
  keep(config.engine);
}

void Host::end(Result<void> why) {
  ended = std::move(why);
  running = false;
  world_.left(*this);
}

std::span<const std::byte> Host::live() const {
  return placement_ == Placement::staging ? memory_.back() : memory_[live_slot_];
}

// ---- engines -----------------------------------------------------------------------------------

MemberHooks Host::hooks() {
  MemberHooks hooks;
  if (shard.side == Side::trainer) {
    hooks.update = [this](const HookCall& call, HookDone done) {
      hook(
          HookKind::update, call,
          [this, call]() -> Result<void> {
            world_.model.fill(shard, ranks_, call.version, memory_[call.slot]);
            world_.given(shard, call.version);
            return {};
          },
          std::move(done));
    };
    return hooks;
  }
  hooks.pause = [this](const HookCall& call, const HookDone& done) {
    const auto pause = [this, call, done] {
      hook(
          HookKind::pause, call,
          [this, call]() -> Result<void> {
            running = false;
            world_.engines(shard.replica).pause(call.in_flight);
            return {};
          },
          done);
    };
    if (call.in_flight != InFlight::drain) return pause();
    world_.engines(shard.replica).drain(pause);
  };
  hooks.install = [this](const HookCall& call, HookDone done) {
    hook(
        HookKind::install, call,
        [this, call]() -> Result<void> {
          if (running) world_.broke(text_of(shard) + " installs while it generates");
          if (placement_ == Placement::staging) memory_.back() = memory_.front();
          live_slot_ = placement_ == Placement::second_buffer ? call.slot : 0;
          version = call.version;
          return {};
        },
        std::move(done));
  };
  hooks.resume = [this](const HookCall& call, HookDone done) {
    hook(
        HookKind::resume, call,
        [this, call]() -> Result<void> {
          if (version != call.version) world_.broke(text_of(shard) + " resumes another version");
          running = true;
          world_.engines(shard.replica).resume();
          return {};
        },
        std::move(done));
  };
  return hooks;
}

/// Some time later; with trouble, if the scene or the story has it.
void Host::hook(HookKind what, const HookCall& call, std::function<Result<void>()> work,
                HookDone done) {
  Random& random = world_.net().random();
  Duration delay = world_.between(0ns, 20ms);
  const std::uint64_t trouble = world_.scene().hook_trouble;
  std::uint64_t kind = trouble != 0 && random.chance(1, trouble) ? random.below(4) + 1 : 0;
  if (world_.hook_watch()) {
    const HookManner manner = world_.hook_watch()(*this, what, call);
    delay += manner.delay;
    if (manner.fails) kind = 1;
    if (!manner.ends) kind = 2;
  }
  if (kind == 1) world_.tell(text_of(shard) + "'s hook fails");
  if (kind == 2) world_.tell(text_of(shard) + "'s hook never ends");
  if (kind == 3) delay += world_.between(1s, 20s);
  const auto when = [this, kind, work = std::move(work), done = std::move(done)] {
    if (!process.alive) return;
    if (kind == 2) return;
    if (kind == 1) return done(failure(ErrorCode::io, "the engine is out"));
    Result<void> result = work();
    done(result);
    if (kind == 4) done(std::move(result));
  };
  world_.net().after(delay, [this, what, when] {
    if (!process.alive) return;
    if (what == HookKind::pause && stepping) {
      at_boundary_.push_back(when);
    } else {
      when();
    }
  });
}

void Host::step_is_over() {
  stepping = false;
  for (const auto& then : std::exchange(at_boundary_, {})) then();
}

// ---- a trainer's program -----------------------------------------------------------------------

void Host::train() {
  const Duration time = world_.scene().train_time;
  world_.net().after(world_.between(time / 2, time * 3 / 2), [this] {
    if (process.alive) begin();
  });
}

void Host::ask(std::function<void(caf::event_based_actor*)> what) {
  const caf::actor asker =
      process.system().spawn([own = std::move(what)](caf::event_based_actor* self) { own(self); });
  process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(asker));
}

void Host::begin() {
  if (ended || goal > world_.last_version()) return;
  if (!world_.may_train(goal)) return train();
  world_.goal_max = std::max(world_.goal_max, goal);
  ask([this, version = goal](caf::event_based_actor* self) {
    self->request(trainer_, caf::infinite, AcquireAtom::value, version,
                  world_.scene().write_patience)
        .then([this](const Acquired& acquired) { write(acquired.version, acquired.slot); },
              [this](caf::error& error) {
                // Whoever fell behind goes on with the others.
                if (from_caf(error).code == ErrorCode::invalid) {
                  goal = std::max(goal, world_.goal_max);
                  if (goal == world_.goal_max && world_.newest_whole >= goal) ++goal;
                }
                train();
              });
  });
}

void Host::write(std::uint64_t version_now, std::uint32_t slot) {
  if (world_.scene().stages != 0) {
    // Whatever is read before it stands is of no version.
    world_.model.fill(shard, ranks_, 0, memory_[slot]);
    read_before_ = world_.bytes().bytes_read(*regions_[slot]);
    return stage(version_now, slot, 0);
  }
  const auto half = [this, version_now, slot](bool odd) {
    world_.model.fill_half(shard, ranks_, version_now, odd, memory_[slot]);
  };
  world_.net().after(world_.between(0ns, 20ms), [this, half, version_now] {
    if (!process.alive) return;
    half(true);
    world_.net().after(world_.between(0ns, 20ms), [this, half, version_now] {
      if (!process.alive) return;
      half(false);
      give(version_now);
    });
  });
}

/// Step by step, then the word that it is whole; each may be late, or never come.
void Host::stage(std::uint64_t version_now, std::uint32_t slot, std::uint64_t step) {
  const Scene& scene = world_.scene();
  Random& random = world_.net().random();
  const bool trouble =
      scene.stage_trouble != 0 && random.chance(1, scene.stage_trouble * scene.stages);
  const bool fails = trouble && random.chance(1, 2);
  Duration delay = world_.between(0ns, scene.stage_most);
  if (trouble && !fails) delay += world_.between(1s, 10s);
  if (trouble) world_.tell(text_of(shard) + (fails ? " fails" : " is slow") + " to fill a slot");
  world_.net().after(delay, [this, version_now, slot, step, fails] {
    if (!process.alive) return;
    if (fails) return train();
    const std::uint64_t steps = world_.scene().stages;
    if (step == steps) {
      world_.bytes_read_early += world_.bytes().bytes_read(*regions_[slot]) - read_before_;
      return give(version_now);
    }
    const std::uint64_t bytes =
        world_.model.fill_step(shard, ranks_, version_now, step, steps, memory_[slot]);
    caf::anon_send(trainer_, StandAtom::value, version_now, bytes);
    stage(version_now, slot, step + 1);
  });
}

void Host::give(std::uint64_t version_now) {
  world_.given(shard, version_now);
  ask([this, version_now](caf::event_based_actor* self) {
    self->request(trainer_, caf::infinite, StagedAtom::value, version_now)
        .then(
            [this, version_now](caf::ok_atom) {
              goal = version_now + 1;
              train();
            },
            [this](caf::error&) {
              // Whether the word came through or not: the next one makes up for it.
              goal = std::max(goal, world_.goal_max);
              train();
            });
  });
}

}  // namespace weir::sim
