#include "adapters/cli/demo.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "actors/exchange.hpp"
#include "adapters/cli/async_demo.hpp"
#include "adapters/cli/child_processes.hpp"
#include "adapters/cli/demo_scene.hpp"
#include "adapters/cli/demo_shard.hpp"
#include "adapters/cli/demo_table.hpp"
#include "adapters/cli/held_signals.hpp"
#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"

namespace weir::cli {
namespace {

constexpr std::uint32_t replicas_max = 64;
constexpr std::uint64_t versions_max = 1'000'000;
constexpr int end_deadline_milliseconds = 10'000;

Result<void> start_side(const Scene& scene, const DemoSide& side, const DemoOptions& options,
                        std::uint16_t port, ChildProcesses& children) {
  for (std::uint32_t replica = 0; replica < side.replicas; ++replica) {
    for (std::uint32_t rank = 0; rank < side.ranks; ++rank) {
      DemoShard shard = shard_of(scene, side, {side.side, replica, rank}, port);
      shard.private_memory = options.private_memory;
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
  Result<Scene> scene = set_scene(options.scene, {}, console, signals);
  if (!scene) return failure(scene);
  const Result<void> played = play(*scene, options, console);
  // From here on the request was good: whatever a shard complains of is trouble.
  if (!played) return failure(ErrorCode::unavailable, played.error().text);
  return {};
}

Action declare_demo(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  auto async = std::make_shared<AsyncDemoOptions>();
  app.description(
      "Starts trainer and rollout shards as processes of this machine, publishes versions of a\n"
      "real checkpoint from the ones to the others over shared memory (or RDMA), and compares\n"
      "every byte of every rollout shard with an independent reference after each. With --async\n"
      "they train and generate meanwhile, each at its own pace.");
  app.add_option("--model", options->scene.model,
                 "checkpoint folder or file; without it one shaped like Qwen3-0.6B is made once");
  app.add_flag("--small", options->scene.small,
               "make and use a tiny checkpoint instead (under 1 MB)");
  app.add_option("--train", options->scene.train, "layout of the trainer")->capture_default_str();
  app.add_option("--rollout", options->scene.rollout, "layout of a replica")->capture_default_str();
  app.add_option("--replicas", options->scene.replicas, "rollout replicas")
      ->check(CLI::Range(1U, replicas_max))
      ->capture_default_str();
  const auto* versions = app.add_option("--versions", options->versions, "versions to publish")
                             ->check(CLI::Range(std::uint64_t{1}, versions_max))
                             ->capture_default_str();
  app.add_flag("--private-memory", options->private_memory,
               "keep the shards' memory private: it is then read through the kernel");
  app.add_option("--transport", options->scene.transport,
                 "what bytes go by: shm (shared memory), or rdma (this machine's RDMA devices)")
      ->check(
          CLI::IsMember(std::vector<std::string>(demo_transports.begin(), demo_transports.end())))
      ->capture_default_str();
  add_async_options(app, *async);
  return [options, async, versions](Console& console) {
    if (!async->async) return run_demo(*options, console);
    async->scene = options->scene;
    async->private_memory = options->private_memory;
    if (versions->count() > 0) async->versions = options->versions;
    return run_async_demo(*async, console);
  };
}

}  // namespace weir::cli
