#pragma once
// `weir demo --async`: trainers and rollouts go on at their own pace, while versions flow from the
// ones to the others; some of them may be killed on the way.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/roster.hpp"
#include "adapters/cli/async_shard.hpp"
#include "adapters/cli/console.hpp"
#include "adapters/cli/demo_scene.hpp"
#include "runtime/result.hpp"

namespace CLI {
class App;
}

namespace weir::cli {

struct AsyncDemoOptions {
  bool async = false;  ///< Whether it was asked for.
  SceneOptions scene;
  bool private_memory = false;
  /// Ends once that version is READY and served by all replicas; none: after `seconds`.
  std::optional<std::uint64_t> versions;
  std::uint32_t seconds = 10;
  std::chrono::milliseconds step{300};
  std::chrono::milliseconds decode{20};
  PublishWay way = PublishWay::snapshot;
  bool late = false;  ///< Whether rollouts wait until copies are whole.
  Placement placement = Placement::second_buffer;
  Follow follow = Follow::finish;
  std::vector<std::string> kills;  ///< As a person writes them: see `parse_kill`.
  std::chrono::milliseconds restart{500};
};

/// Runs it and prints what happened. Success means that everything that was served agreed with the
/// reference, that no version went back, and that all who were killed came back.
/// Errors: `invalid`, `not_found`, `refused` for a bad request, found before a process starts;
/// `unavailable`, `timeout`, `io` for trouble on the way.
Result<void> run_async_demo(const AsyncDemoOptions& options, Console& console);

/// Declares `--async` and all that needs it; `--versions` has been declared. `options` outlives the
/// parsing.
void add_async_options(CLI::App& app, AsyncDemoOptions& options);

}  // namespace weir::cli
