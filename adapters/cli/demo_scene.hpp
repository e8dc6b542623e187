#pragma once
// What a demo knows before it starts a process: the model, the two sides, and that their shards
// fit.

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "actors/exchange.hpp"
#include "adapters/cli/console.hpp"
#include "adapters/cli/held_signals.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"
#include "transports/transport.hpp"

namespace weir::cli {

/// By what the shards of a demo can reach each other; untold, by the first.
inline constexpr std::array demo_transports = {"shm", "rdma"};
/// One of these. Errors: those of `make_rdma_transport`.
Result<std::unique_ptr<Transport>> demo_transport(const std::string& name, unsigned thread_count);

/// What a person asks for.
struct SceneOptions {
  /// A checkpoint; empty for one that is made, once, with the names, shapes and types of
  /// Qwen3-0.6B, or of a tiny Qwen3 where `small`.
  std::filesystem::path model;
  bool small = false;
  std::string train = "megatron:tp=2,pp=2";
  std::string rollout = "vllm:tp=4";
  std::uint32_t replicas = 2;  ///< Of the rollout layout.
  std::string transport = demo_transports[0];
};

/// How often a shard of each side keeps its weights.
struct SceneCopies {
  std::uint32_t trainer = 1;
  std::uint32_t rollout = 1;
};

/// One side of the demo: a layout, and how many shards that makes.
struct DemoSide {
  Side side = Side::trainer;
  LayoutSpec spec;
  std::uint32_t ranks = 1;
  std::uint32_t replicas = 1;
  std::uint32_t copies = 1;

  [[nodiscard]] std::uint32_t shard_count() const noexcept { return ranks * replicas; }
};

struct Scene {
  std::filesystem::path checkpoint;
  Model model;
  DemoSide train;
  DemoSide rollout;
  std::string transport;
  std::uint64_t memory_bytes = 0;  ///< Of all shards together.
};

/// Finds every mistake in the request that can be found without starting anything. Errors:
/// `invalid`, `not_found`, `refused`, with what to change.
Result<Scene> set_scene(const SceneOptions& options, const SceneCopies& copies, Console& console,
                        const HeldSignals& signals);

/// The lines with which a demo begins.
void introduce(const Scene& scene, const Plan& plan, Console& console);

/// On one host a dead process is noticed at once; a silent one is only waiting for a processor,
/// which more shards than cores all want.
inline constexpr std::chrono::seconds demo_silence_max{30};

/// For an exchange of all those shards.
ExchangeOptions exchange_options(const Scene& scene);

/// Threads for each shard of that side, so that the cores are shared out.
unsigned threads_for(const DemoSide& side);

}  // namespace weir::cli
