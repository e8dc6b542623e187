#include "adapters/cli/demo.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "actors/exchange.hpp"
#include "adapters/cli/child_processes.hpp"
#include "adapters/cli/demo_checkpoint.hpp"
#include "adapters/cli/demo_shard.hpp"
#include "adapters/cli/demo_table.hpp"
#include "adapters/cli/held_signals.hpp"
#include "adapters/cli/layout_argument.hpp"
#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/checkpoint_model.hpp"
#include "runtime/available_memory.hpp"
#include "runtime/planner.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

constexpr std::uint32_t replicas_max = 64;
constexpr std::uint64_t versions_max = 1'000'000;
constexpr int end_deadline_milliseconds = 10'000;

/// One side of the demo: a layout, and how many shards that makes.
struct DemoSide {
  Side side = Side::trainer;
  LayoutSpec spec;
  std::uint32_t ranks = 1;
  std::uint32_t replicas = 1;

  [[nodiscard]] std::uint32_t shard_count() const noexcept { return ranks * replicas; }
};

/// Everything that is known before a process starts.
struct Scene {
  std::filesystem::path checkpoint;
  Model model;
  DemoSide train;
  DemoSide rollout;
  std::uint64_t memory_bytes = 0;  ///< Of all shards together.
};

const char* option_of(Side side) {
  return side == Side::trainer ? "--train" : "--rollout";
}

Result<DemoSide> side_of(Side side, const std::string& layout, std::uint32_t times) {
  const Result<LayoutSpec> spec = layout_argument(option_of(side), layout);
  if (!spec) return failure(spec);
  const Result<LayoutSize> size = size_of(*spec);
  if (!size) return failure(size);
  return DemoSide{side, *spec, size->ranks, size->replicas * times};
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
      Placement placement = place(scene.model, *layout, {side.side, replica, rank}, side.ranks,
                                  RegionKind::host_shared);
      scene.memory_bytes += placement.region_bytes;
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

Result<Scene> set_scene(const DemoOptions& options, Console& console, const HeldSignals& signals) {
  Result<DemoSide> train = side_of(Side::trainer, options.train, 1);
  if (!train) return failure(train);
  Result<DemoSide> rollout = side_of(Side::rollout, options.rollout, options.replicas);
  if (!rollout) return failure(rollout);
  Result<std::filesystem::path> checkpoint = options.model;
  if (options.model.empty()) checkpoint = demo_checkpoint(options.small, console, signals);
  if (!checkpoint) return failure(checkpoint);
  Result<Model> model = load_model(*checkpoint);
  if (!model) return failure(model);
  Scene scene{*std::move(checkpoint), *std::move(model), *std::move(train), *std::move(rollout)};
  if (Result<void> done = rehearse(scene); !done) return failure(done);
  return scene;
}

Result<void> start_side(const Scene& scene, const DemoSide& side, const DemoOptions& options,
                        std::uint16_t port, ChildProcesses& children) {
  const unsigned cores = Workers(0).thread_count();
  for (std::uint32_t replica = 0; replica < side.replicas; ++replica) {
    for (std::uint32_t rank = 0; rank < side.ranks; ++rank) {
      DemoShard shard;
      shard.shard = {side.side, replica, rank};
      shard.replica_ranks = side.ranks;
      shard.model = scene.checkpoint;
      shard.layout = text_of(side.spec);
      shard.port = port;
      shard.parent = getpid();
      shard.thread_count = std::max(1U, cores / side.shard_count());
      shard.private_memory = options.private_memory;
      if (side.side == Side::rollout && scene.train.spec.dtype) {
        shard.passed_through = name_of(*scene.train.spec.dtype);
      }
      const Result<void> started = children.start(text_of(shard.shard), arguments_of(shard));
      if (!started) return started;
    }
  }
  return {};
}

std::uint64_t bytes_of(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const PlanPart& part : plan.parts) {
    for (const Copy& copy : part.copies) bytes += target_bytes(copy);
  }
  return bytes;
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

Result<void> publish_versions(Exchange& exchange, const DemoOptions& options, std::uint64_t bytes,
                              Console& console, DemoTable& table) {
  ProgressBar bar(console, {.label = std::to_string(options.versions) + " versions",
                            .total_bytes = options.versions * bytes,
                            .redraw = console.terminal});
  for (std::uint64_t version = 1; version <= options.versions; ++version) {
    const Result<VersionReport> report = exchange.publish(version);
    if (!report) return failure(report);
    table.add(*report);
    bar.add(report->bytes_moved);
  }
  bar.finish();
  return {};
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

Result<void> play(const Scene& scene, const DemoOptions& options, Console& console) {
  const double memcpy_rate = memcpy_bytes_per_second(console.clock);
  Result<std::unique_ptr<Exchange>> exchange = Exchange::start(exchange_options(scene));
  if (!exchange) return failure(exchange);
  ChildProcesses children;
  for (const DemoSide* side : {&scene.train, &scene.rollout}) {
    Result<void> started = start_side(scene, *side, options, (*exchange)->port(), children);
    if (!started) return started;
  }
  Result<void> watching = children.watch([&](const std::string& why) { (*exchange)->abort(why); });
  if (!watching) return watching;

  const Result<Plan> plan = (*exchange)->await_plan();
  if (!plan) return failure(plan);
  introduce(scene, *plan, console);
  DemoTable table(memcpy_rate);
  const Result<void> published =
      publish_versions(**exchange, options, bytes_of(*plan), console, table);
  table.print(console.out);
  if (!published) return published;
  children.stop_watching();
  exchange->reset();
  if (Result<void> ended = children.expect_end(end_deadline_milliseconds); !ended) return ended;
  if (!table.exact()) {
    return failure(ErrorCode::unavailable, "a version moved other bytes than it needed");
  }
  console.out << "Every byte of every rollout shard agreed with the independent reference in all "
              << options.versions << " versions.\n";
  return {};
}

}  // namespace

Result<void> run_demo(const DemoOptions& options, Console& console) {
  const HeldSignals signals;
  Result<Scene> scene = set_scene(options, console, signals);
  if (!scene) return failure(scene);
  const Result<void> played = play(*scene, options, console);
  // From here on the request was good: whatever a shard complains of is trouble.
  if (!played) return failure(ErrorCode::unavailable, played.error().text);
  return {};
}

Action declare_demo(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  app.description(
      "Starts trainer and rollout shards as processes of this machine, publishes versions of a\n"
      "real checkpoint from the ones to the others over shared memory, and compares every byte\n"
      "of every rollout shard with an independent reference after each.");
  app.add_option("--model", options->model,
                 "checkpoint folder or file; without it one shaped like Qwen3-0.6B is made once");
  app.add_flag("--small", options->small, "make and use a tiny checkpoint instead (under 1 MB)");
  app.add_option("--train", options->train, "layout of the trainer")->capture_default_str();
  app.add_option("--rollout", options->rollout, "layout of a replica")->capture_default_str();
  app.add_option("--replicas", options->replicas, "rollout replicas")
      ->check(CLI::Range(1U, replicas_max))
      ->capture_default_str();
  app.add_option("--versions", options->versions, "versions to publish")
      ->check(CLI::Range(std::uint64_t{1}, versions_max))
      ->capture_default_str();
  app.add_flag("--private-memory", options->private_memory,
               "keep the shards' memory private: it is then read through the kernel");
  return [options](Console& console) { return run_demo(*options, console); };
}

}  // namespace weir::cli
