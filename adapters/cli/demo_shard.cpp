#include "adapters/cli/demo_shard.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "actors/member.hpp"
#include "adapters/cli/child_processes.hpp"
#include "adapters/cli/verb.hpp"
#include "runtime/region.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

/// The memory of the shard, and what belongs there.
struct Engine {
  std::unique_ptr<ShardMemory> memory;
  std::unique_ptr<Region> region;
};

MemberHooks hooks_of(const DemoShard& shard, Engine& engine, Workers& workers, Workers& caller) {
  MemberHooks hooks;
  if (shard.shard.side == Side::trainer) {
    hooks.update = [&](const HookCall& call, HookDone done) {
      caller.post([&engine, &workers, version = call.version, done = std::move(done)] {
        done(engine.memory->fill(version, engine.region->bytes(), workers));
      });
    };
  } else {
    hooks.verify = [&](const HookCall& call, HookDone done) {
      caller.post([&engine, &workers, version = call.version, done = std::move(done)] {
        const Result<std::uint64_t> compared =
            engine.memory->compare(version, engine.region->bytes(), workers);
        done(compared ? Result<void>() : failure(compared));
      });
    };
  }
  return hooks;
}

}  // namespace

std::vector<std::string> arguments_of(const DemoShard& shard) {
  std::vector<std::string> arguments = {
      demo_shard_verb,
      "--side=" + std::string(shard.shard.side == Side::trainer ? "trainer" : "rollout"),
      "--replica=" + std::to_string(shard.shard.replica),
      "--rank=" + std::to_string(shard.shard.rank),
      "--replica-ranks=" + std::to_string(shard.replica_ranks),
      "--model=" + shard.model.string(),
      "--layout=" + shard.layout,
      "--port=" + std::to_string(shard.port),
      "--parent=" + std::to_string(shard.parent),
      "--threads=" + std::to_string(shard.thread_count),
      "--transport=" + shard.transport};
  if (!shard.passed_through.empty())
    arguments.push_back("--passed-through=" + shard.passed_through);
  if (shard.private_memory) arguments.emplace_back("--private-memory");
  return arguments;
}

Result<void> run_demo_shard(const DemoShard& shard) {
  if (!end_with_parent(shard.parent)) {
    return failure(ErrorCode::unavailable, "the demo that started this shard is gone");
  }
  const Result<ShardMemoryOptions> options = memory_of(shard);
  if (!options) return failure(options);
  Result<std::unique_ptr<ShardMemory>> memory = ShardMemory::open(*options);
  if (!memory) return failure(memory);
  Result<std::unique_ptr<Region>> region =
      Region::allocate({.kind = options->kind, .bytes = (*memory)->region_bytes()});
  if (!region) return failure(region);
  Engine engine{*std::move(memory), *std::move(region)};

  const Result<std::unique_ptr<Transport>> transport =
      demo_transport(shard.transport, shard.thread_count);
  if (!transport) return failure(transport);
  Workers workers(shard.thread_count);
  Workers caller(1);
  return run_member({.port = shard.port,
                     .manifest = engine.memory->manifest(),
                     .regions = {engine.region.get()},
                     .transport = transport->get(),
                     .hooks = hooks_of(shard, engine, workers, caller),
                     .silence_max = demo_silence_max});
}

Result<ShardMemoryOptions> memory_of(const DemoShard& shard) {
  const Result<LayoutSpec> spec = parse_layout(shard.layout);
  if (!spec) return failure(spec);
  ShardMemoryOptions options;
  options.model = shard.model;
  options.spec = *spec;
  options.shard = shard.shard;
  options.replica_ranks = shard.replica_ranks;
  options.kind = shard.private_memory ? RegionKind::host_private : RegionKind::host_shared;
  if (!shard.passed_through.empty()) {
    options.passed_through = element_type_named(shard.passed_through);
  }
  return options;
}

DemoShard shard_of(const Scene& scene, const DemoSide& side, const ShardId& id,
                   std::uint16_t port) {
  DemoShard shard;
  shard.shard = id;
  shard.replica_ranks = side.ranks;
  shard.model = scene.checkpoint;
  shard.layout = text_of(side.spec);
  shard.port = port;
  shard.parent = getpid();
  shard.thread_count = threads_for(side);
  shard.transport = scene.transport;
  if (side.side == Side::rollout && scene.train.spec.dtype) {
    shard.passed_through = name_of(*scene.train.spec.dtype);
  }
  return shard;
}

void add_shard_arguments(CLI::App& app, const std::shared_ptr<DemoShard>& shard) {
  app.add_option_function<std::string>("--side",
                                       [shard](const std::string& side) {
                                         shard->shard.side =
                                             side == "trainer" ? Side::trainer : Side::rollout;
                                       })
      ->required()
      ->check(CLI::IsMember({"trainer", "rollout"}));
  app.add_option("--replica", shard->shard.replica)->required();
  app.add_option("--rank", shard->shard.rank)->required();
  app.add_option("--replica-ranks", shard->replica_ranks)->required();
  app.add_option("--model", shard->model)->required();
  app.add_option("--layout", shard->layout)->required();
  app.add_option("--port", shard->port)->required();
  app.add_option("--parent", shard->parent)->required();
  app.add_option("--threads", shard->thread_count)->required();
  app.add_option("--passed-through", shard->passed_through);
  app.add_flag("--private-memory", shard->private_memory);
  app.add_option("--transport", shard->transport)->required();
}

Action declare_demo_shard(CLI::App& app) {
  auto shard = std::make_shared<DemoShard>();
  add_shard_arguments(app, shard);
  return [shard](Console&) { return run_demo_shard(*shard); };
}

}  // namespace weir::cli
