#include "adapters/cli/demo_shard.hpp"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "actors/member.hpp"
#include "adapters/cli/child_processes.hpp"
#include "adapters/cli/verb.hpp"
#include "adapters/model/checkpoint_model.hpp"
#include "adapters/oracle/reference.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/region.hpp"
#include "runtime/workers.hpp"
#include "transports/shm/shm_transport.hpp"

namespace weir::cli {
namespace {

/// The memory of the shard, and the reference's view of it.
struct Engine {
  std::unique_ptr<Checkpoint> checkpoint;
  Model model;
  std::unique_ptr<Region> region;
  std::optional<oracle::RankMemory> memory;
};

/// Where the checkpoint keeps each canonical tensor's bytes.
std::function<std::span<const std::byte>(std::size_t)> canonical_bytes(const Engine& engine) {
  return [&engine](std::size_t tensor) -> std::span<const std::byte> {
    const Checkpoint::Entry* entry = engine.checkpoint->find(engine.model.tensors[tensor].name);
    return entry == nullptr ? std::span<const std::byte>() : engine.checkpoint->data(*entry);
  };
}

MemberHooks hooks_of(const DemoShard& shard, Engine& engine, Workers& workers, Workers& caller) {
  MemberHooks hooks;
  if (shard.shard.side == Side::trainer) {
    hooks.update = [&](std::uint64_t version, HookDone done) {
      caller.post([&engine, &workers, version, done = std::move(done)] {
        done(oracle::fill_rank(*engine.memory, version, engine.region->bytes(), workers));
      });
    };
  } else {
    hooks.verify = [&](std::uint64_t version, HookDone done) {
      caller.post([&engine, &workers, version, done = std::move(done)] {
        const Result<std::uint64_t> compared =
            oracle::compare_rank(*engine.memory, version, engine.region->bytes(), workers);
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
      "--threads=" + std::to_string(shard.thread_count)};
  if (!shard.passed_through.empty())
    arguments.push_back("--passed-through=" + shard.passed_through);
  if (shard.private_memory) arguments.emplace_back("--private-memory");
  return arguments;
}

Result<void> run_demo_shard(const DemoShard& shard) {
  if (!end_with_parent(shard.parent)) {
    return failure(ErrorCode::unavailable, "the demo that started this shard is gone");
  }
  Engine engine;
  Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(shard.model);
  if (!checkpoint) return failure(checkpoint);
  engine.checkpoint = *std::move(checkpoint);
  Result<Model> model = load_model(shard.model);
  if (!model) return failure(model);
  engine.model = *std::move(model);

  const Result<LayoutSpec> spec = parse_layout(shard.layout);
  if (!spec) return failure(spec);
  const Result<RankLayout> layout = lay_out(engine.model, *spec, shard.shard.rank);
  if (!layout) return failure(layout);
  const RegionKind kind = shard.private_memory ? RegionKind::host_private : RegionKind::host_shared;
  Placement placement = place(engine.model, *layout, shard.shard, shard.replica_ranks, kind);

  Result<std::unique_ptr<Region>> region =
      Region::allocate({.kind = kind, .bytes = placement.region_bytes});
  if (!region) return failure(region);
  engine.region = *std::move(region);
  engine.memory.emplace(oracle::RankMemory{.model = engine.model,
                                           .spec = *spec,
                                           .rank = shard.shard.rank,
                                           .places = {},
                                           .canonical = canonical_bytes(engine),
                                           .passed_through = {}});
  if (!shard.passed_through.empty()) {
    engine.memory->passed_through = element_type_named(shard.passed_through);
  }
  for (std::size_t i = 0; i < layout->tensors.size(); ++i) {
    engine.memory->places.push_back({layout->tensors[i].name, placement.offsets[i]});
  }

  const std::unique_ptr<Transport> transport =
      make_shm_transport({.worker_count = shard.thread_count});
  Workers workers(shard.thread_count);
  Workers caller(1);
  return run_member({.port = shard.port,
                     .manifest = std::move(placement.manifest),
                     .regions = {engine.region.get()},
                     .transport = transport.get(),
                     .hooks = hooks_of(shard, engine, workers, caller),
                     .silence_max = demo_silence_max});
}

Action declare_demo_shard(CLI::App& app) {
  auto shard = std::make_shared<DemoShard>();
  auto side = std::make_shared<std::string>();
  app.add_option("--side", *side)->required()->check(CLI::IsMember({"trainer", "rollout"}));
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
  return [shard, side](Console&) {
    shard->shard.side = *side == "trainer" ? Side::trainer : Side::rollout;
    return run_demo_shard(*shard);
  };
}

}  // namespace weir::cli
