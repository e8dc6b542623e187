#include "adapters/cli/demo_scene.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "adapters/cli/demo_checkpoint.hpp"
#include "adapters/cli/layout_argument.hpp"
#include "adapters/cli/progress.hpp"
#include "adapters/model/checkpoint_model.hpp"
#include "runtime/available_memory.hpp"
#include "runtime/planner.hpp"
#include "runtime/workers.hpp"
#include "transports/rdma/rdma_transport.hpp"
#include "transports/shm/shm_transport.hpp"

namespace weir::cli {
namespace {

const char* option_of(Side side) {
  return side == Side::trainer ? "--train" : "--rollout";
}

Result<DemoSide> side_of(Side side, const std::string& layout, std::uint32_t times) {
  const Result<LayoutSpec> spec = layout_argument(option_of(side), layout);
  if (!spec) return failure(spec);
  const Result<LayoutSize> size = size_of(*spec);
  if (!size) return failure(size);
  return DemoSide{side, *spec, size->ranks, size->replicas * times, 1};
}

/// Lays out every shard of a side and adds its manifest and memory to what will be needed.
Result<void> lay_out_side(Scene& scene, const DemoSide& side, std::vector<Manifest>& manifests) {
  for (std::uint32_t rank = 0; rank < side.ranks; ++rank) {
    const Result<RankLayout> layout = lay_out(scene.model, side.spec, rank);
    if (!layout) {
      return failure(layout.error().code, std::string(option_of(side.side)) + " " +
                                              text_of(side.spec) + ": " + layout.error().text);
    }
    for (std::uint32_t replica = 0; replica < side.replicas; ++replica) {
      PlacedShard placement = place(scene.model, *layout, {side.side, replica, rank}, side.ranks,
                                    RegionKind::host_shared);
      scene.memory_bytes += side.copies * placement.region_bytes;
      manifests.push_back(std::move(placement.manifest));
    }
  }
  return {};
}

/// Finds every mistake in the request that can be found without starting anything.
Result<void> rehearse(Scene& scene) {
  std::vector<Manifest> manifests;
  if (Result<void> done = lay_out_side(scene, scene.train, manifests); !done) return done;
  if (Result<void> done = lay_out_side(scene, scene.rollout, manifests); !done) return done;
  const Result<Plan> plan = make_plan(manifests);
  if (!plan) return failure(plan);
  const std::uint64_t available = available_memory_bytes();
  if (scene.memory_bytes > available) {
    return failure(ErrorCode::refused,
                   "the shards need " + bytes_text(static_cast<double>(scene.memory_bytes)) +
                       " of memory and " + bytes_text(static_cast<double>(available)) +
                       " are free; use fewer --replicas, a smaller model or --small");
  }
  return {};
}

}  // namespace

Result<Scene> set_scene(const SceneOptions& options, const SceneCopies& copies, Console& console,
                        const HeldSignals& signals) {
  Result<DemoSide> train = side_of(Side::trainer, options.train, 1);
  if (!train) return failure(train);
  Result<DemoSide> rollout = side_of(Side::rollout, options.rollout, options.replicas);
  if (!rollout) return failure(rollout);
  Result<std::filesystem::path> checkpoint = options.model;
  if (options.model.empty()) checkpoint = demo_checkpoint(options.small, console, signals);
  if (!checkpoint) return failure(checkpoint);
  Result<Model> model = load_model(*checkpoint);
  if (!model) return failure(model);
  train->copies = copies.trainer;
  rollout->copies = copies.rollout;
  Scene scene{*std::move(checkpoint), *std::move(model), *std::move(train), *std::move(rollout),
              options.transport};
  // Devices that are not there are missed before a process starts.
  const auto transport = demo_transport(options.transport, 1);
  if (!transport) return failure(transport);
  if (Result<void> done = rehearse(scene); !done) return failure(done);
  return scene;
}

Result<std::unique_ptr<Transport>> demo_transport(const std::string& name, unsigned thread_count) {
  if (name == "rdma") return make_rdma_transport({.worker_count = thread_count});
  return make_shm_transport({.worker_count = thread_count});
}

void introduce(const Scene& scene, const Plan& plan, Console& console) {
  std::size_t copies = 0;
  for (const PlanPart& part : plan.parts) copies += part.copies.size();
  console.out << scene.checkpoint.string() << ": " << scene.model.tensors.size() << " tensors\n"
              << text_of(scene.train.spec) << " (" << scene.train.shard_count() << " shards) -> "
              << scene.rollout.replicas << " x " << text_of(scene.rollout.spec) << " ("
              << scene.rollout.shard_count() << " shards): " << copies << " copies, plan "
              << text_of(plan.digest) << "\n"
              << std::flush;
}

ExchangeOptions exchange_options(const Scene& scene) {
  ExchangeOptions options;
  options.trainer_replicas = scene.train.replicas;
  options.trainer_ranks = scene.train.ranks;
  options.rollout_replicas = scene.rollout.replicas;
  options.rollout_ranks = scene.rollout.ranks;
  options.silence_max = demo_silence_max;
  return options;
}

unsigned threads_for(const DemoSide& side) {
  const unsigned cores = Workers(0).thread_count();
  return std::max(1U, cores / side.shard_count());
}

}  // namespace weir::cli
