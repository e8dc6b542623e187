#pragma once
// One shard of a demo, in a process of its own: it plays the training or generating engine.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "adapters/cli/demo_scene.hpp"
#include "adapters/cli/shard_memory.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace CLI {
class App;
}

namespace weir::cli {

/// What the parent tells a shard process on its command line.
struct DemoShard {
  ShardId shard;
  std::uint32_t replica_ranks = 1;
  std::filesystem::path model;
  std::string layout;
  std::uint16_t port = 0;
  pid_t parent = 0;
  unsigned thread_count = 1;
  /// The type that the trainers keep what they publish in, by name; empty for the model's own.
  std::string passed_through;
  /// Keep the shard's memory private to its process, so that it is read through the kernel.
  bool private_memory = false;
  std::string transport = demo_transports[0];
};

/// The hidden verb's name, and its arguments for that shard.
inline constexpr const char* demo_shard_verb = "demo-shard";
std::vector<std::string> arguments_of(const DemoShard& shard);
/// Declares those arguments, which the parsed program then has in `shard`.
void add_shard_arguments(CLI::App& app, const std::shared_ptr<DemoShard>& shard);

/// A shard of the scene that joins the exchange at that port of this process.
DemoShard shard_of(const Scene& scene, const DemoSide& side, const ShardId& id, std::uint16_t port);
/// What the shard's process opens. Errors: those of the layout.
Result<ShardMemoryOptions> memory_of(const DemoShard& shard);

/// Joins the exchange of the parent process and serves it until it ends.
/// A trainer shard fills its memory, version by version, as the engine itself would; a rollout
/// shard compares every byte of its memory after each commit. Both by the independent reference,
/// which knows nothing of pieces and plans.
Result<void> run_demo_shard(const DemoShard& shard);

}  // namespace weir::cli
