#pragma once
// `weir demo`: real weights from trainer shards to rollout shards in other processes, on this
// machine, with every byte compared.

#include <cstdint>

#include "adapters/cli/console.hpp"
#include "adapters/cli/demo_scene.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

struct DemoOptions {
  SceneOptions scene;
  std::uint64_t versions = 5;
  bool private_memory = false;  ///< Trainers and rollouts keep their memory private.
};

/// Runs it and prints what happened. Success means that every byte of every rollout shard agreed
/// with the reference after every version. Leaves no process and no shared memory behind.
/// Errors: `invalid`, `not_found`, `refused` for a bad request, found before a process starts;
/// `unavailable`, `timeout`, `io` for trouble on the way.
Result<void> run_demo(const DemoOptions& options, Console& console);

}  // namespace weir::cli
