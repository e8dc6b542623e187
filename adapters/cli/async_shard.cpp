#include "adapters/cli/async_shard.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "actors/member.hpp"
#include "adapters/cli/async_board.hpp"
#include "adapters/cli/child_processes.hpp"
#include "adapters/cli/decoder.hpp"
#include "adapters/cli/fetch_meter.hpp"
#include "adapters/cli/stop_switch.hpp"
#include "adapters/cli/training.hpp"
#include "adapters/cli/verb.hpp"
#include "runtime/clock.hpp"
#include "runtime/region.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

/// The regions that peers reach: one for each slot.
Result<std::vector<std::unique_ptr<Region>>> make_slots(const ShardMemory& memory, RegionKind kind,
                                                        std::uint32_t count) {
  std::vector<std::unique_ptr<Region>> slots;
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    auto region = Region::allocate({.kind = kind, .bytes = memory.region_bytes()});
    if (!region) return failure(region);
    slots.push_back(*std::move(region));
  }
  return slots;
}

std::vector<Region*> all_of(const std::vector<std::unique_ptr<Region>>& slots) {
  std::vector<Region*> regions;
  for (const auto& slot : slots) regions.push_back(slot.get());
  return regions;
}

MemberOptions member_options(const AsyncShard& shard, const ShardMemory& memory,
                             const std::vector<std::unique_ptr<Region>>& slots,
                             Transport& transport) {
  MemberOptions options;
  options.port = shard.base.port;
  options.manifest = memory.manifest();
  options.manifest.slots = static_cast<std::uint32_t>(slots.size());
  options.manifest.regions.resize(slots.size(), options.manifest.regions.front());
  options.regions = all_of(slots);
  options.transport = &transport;
  options.placement = shard.placement;
  options.silence_max = demo_silence_max;
  return options;
}

Result<void> train(const AsyncShard& shard, AsyncBoard& board) {
  auto options = memory_of(shard.base);
  if (!options) return failure(options);
  const auto published = ShardMemory::open(*options);
  if (!published) return failure(published);
  const auto slots = make_slots(**published, options->kind, slot_count(shard));
  if (!slots) return failure(slots);

  std::unique_ptr<ShardMemory> kept;
  std::unique_ptr<Region> live;
  if (shard.way != PublishWay::pinned) {
    if (shard.way == PublishWay::convert) options->spec.dtype = ElementType::f32;
    options->kind = RegionKind::host_private;
    auto memory = ShardMemory::open(*options);
    if (!memory) return failure(memory);
    auto region = Region::allocate({.bytes = (*memory)->region_bytes()});
    if (!region) return failure(region);
    kept = *std::move(memory);
    live = *std::move(region);
  }

  const SystemClock clock;
  Workers workers(shard.base.thread_count);
  const auto training = Training::make(
      shard, {**published, all_of(*slots), kept.get(), live.get(), board, clock, workers});
  if (!training) return failure(training);
  const auto transport = demo_transport(shard.base.transport, shard.base.thread_count);
  if (!transport) return failure(transport);
  auto member = Member::start(member_options(shard, **published, *slots, **transport));
  if (!member) return failure(member);
  StopSwitch stop;
  Workers loop(1);
  loop.post([&training, &member, &stop] {
    const Result<void> trained = (*training)->run(**member, stop);
    if (trained) return;
    // Nobody else would notice: the member lives on.
    std::cerr << "weir: " << trained.error().text << std::endl;
    std::_Exit(1);
  });
  Result<void> ended = (*member)->await_end();
  stop.stop();
  return ended;
}

MemberHooks hooks_of(Decoder& decoder, Workers& caller) {
  MemberHooks hooks;
  hooks.pause = [&decoder](const HookCall&, HookDone done) { decoder.pause(std::move(done)); };
  hooks.install = [&decoder, &caller](const HookCall& call, HookDone done) {
    caller.post([&decoder, call, done = std::move(done)] { decoder.install(call, done); });
  };
  hooks.resume = [&decoder](const HookCall& call, const HookDone& done) {
    decoder.resume(call, done);
  };
  return hooks;
}

Result<void> generate(const AsyncShard& shard, AsyncBoard& board) {
  const auto options = memory_of(shard.base);
  if (!options) return failure(options);
  const auto memory = ShardMemory::open(*options);
  if (!memory) return failure(memory);
  const auto slots = make_slots(**memory, options->kind, slot_count(shard));
  if (!slots) return failure(slots);
  std::unique_ptr<Region> live;
  if (shard.placement == Placement::staging) {
    auto region = Region::allocate({.bytes = (*memory)->region_bytes()});
    if (!region) return failure(region);
    live = *std::move(region);
  }

  const SystemClock clock;
  FetchMeter meter(clock, board.record(shard.base.shard));
  const auto plain = demo_transport(shard.base.transport, shard.base.thread_count);
  if (!plain) return failure(plain);
  const auto transport = metered(**plain, meter);
  Workers workers(shard.base.thread_count);
  Decoder decoder({shard.base.shard, shard.placement, shard.decode, shard.life},
                  {**memory, all_of(*slots), live.get(), board, meter, clock, workers});
  Workers caller(1);
  Workers loop(1);
  loop.post([&decoder] { decoder.run(); });
  MemberOptions member = member_options(shard, **memory, *slots, *transport);
  member.hooks = hooks_of(decoder, caller);
  const Result<void> ended = run_member(member);
  decoder.stop();
  return ended;
}

}  // namespace

std::uint32_t slot_count(const AsyncShard& shard) noexcept {
  if (shard.base.shard.side == Side::trainer) {
    return shard.way == PublishWay::pinned ? 1 : shard.slots;
  }
  return shard.placement == Placement::second_buffer ? 2 : 1;
}

std::vector<std::string> arguments_of(const AsyncShard& shard) {
  std::vector<std::string> arguments = arguments_of(shard.base);
  arguments.front() = async_shard_verb;
  const auto add = [&arguments](const char* name, std::uint64_t value) {
    arguments.push_back(std::string(name) + "=" + std::to_string(value));
  };
  add("--step-ms", static_cast<std::uint64_t>(shard.step.count()));
  add("--decode-ms", static_cast<std::uint64_t>(shard.decode.count()));
  add("--way", static_cast<std::uint64_t>(shard.way));
  add("--slots", shard.slots);
  add("--early", shard.early ? 1 : 0);
  add("--placement", static_cast<std::uint64_t>(shard.placement));
  add("--first-version", shard.first_version);
  add("--life", shard.life);
  return arguments;
}

Result<void> run_async_shard(const AsyncShard& shard) {
  if (!end_with_parent(shard.base.parent)) {
    return failure(ErrorCode::unavailable, "the demo that started this shard is gone");
  }
  const auto board = AsyncBoard::open(handed_down_descriptor);
  if (!board) return failure(board);
  return shard.base.shard.side == Side::trainer ? train(shard, **board) : generate(shard, **board);
}

Action declare_async_shard(CLI::App& app) {
  auto shard = std::make_shared<AsyncShard>();
  const std::shared_ptr<DemoShard> base(shard, &shard->base);
  add_shard_arguments(app, base);
  const auto milliseconds = [&app](const char* name, std::chrono::milliseconds& value) {
    app.add_option_function<std::uint32_t>(
           name, [&value](std::uint32_t count) { value = std::chrono::milliseconds(count); })
        ->required();
  };
  milliseconds("--step-ms", shard->step);
  milliseconds("--decode-ms", shard->decode);
  app.add_option("--way", shard->way)->required();
  app.add_option("--slots", shard->slots)->required();
  app.add_option("--early", shard->early)->required();
  app.add_option("--placement", shard->placement)->required();
  app.add_option("--first-version", shard->first_version)->required();
  app.add_option("--life", shard->life)->required();
  return [shard](Console&) { return run_async_shard(*shard); };
}

}  // namespace weir::cli
