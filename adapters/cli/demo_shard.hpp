#pragma once
// One shard of a demo, in a process of its own: it plays the training or generating engine.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

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
};

/// On one host a dead process is noticed at once; a silent one is only waiting for a processor,
/// which more shards than cores all want.
inline constexpr std::chrono::seconds demo_silence_max{30};

/// The hidden verb's name, and its arguments for that shard.
inline constexpr const char* demo_shard_verb = "demo-shard";
std::vector<std::string> arguments_of(const DemoShard& shard);

/// Joins the exchange of the parent process and serves it until it ends.
/// A trainer shard fills its memory, version by version, as the engine itself would; a rollout
/// shard compares every byte of its memory after each commit. Both by the independent reference,
/// which knows nothing of pieces and plans.
Result<void> run_demo_shard(const DemoShard& shard);

}  // namespace weir::cli
