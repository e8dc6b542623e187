#include "adapters/cli/demo_checkpoint.hpp"

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

#include "adapters/cli/progress.hpp"
#include "adapters/model/known_models.hpp"
#include "adapters/model/seeded_checkpoint.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

// Part of the folder's name, so that a change of the values is never mixed with older files.
constexpr std::uint64_t checkpoint_seed = 1;

Result<std::filesystem::path> cache_folder() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets environment variables here.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::filesystem::path(cache) / "weir";
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::filesystem::path(home) / ".cache" / "weir";
  }
  return failure(ErrorCode::refused,
                 "no place to keep a checkpoint: set XDG_CACHE_HOME to a folder, or give --model");
}

}  // namespace

Result<std::filesystem::path> demo_checkpoint(bool small, Console& console,
                                              const HeldSignals& signals) {
  Result<std::filesystem::path> cache = cache_folder();
  if (!cache) return cache;
  const std::string name = small ? "tiny-qwen3" : "qwen3-0.6b";
  const std::filesystem::path folder = *cache / (name + "-seed" + std::to_string(checkpoint_seed));
  std::error_code code;
  if (std::filesystem::exists(folder, code)) return folder;
  std::filesystem::create_directories(*cache, code);
  if (code) {
    return failure(ErrorCode::refused, "cannot make " + cache->string() + ": " + code.message() +
                                           "; set XDG_CACHE_HOME to another folder");
  }
  const Result<ModelConfig> config = named_config(name);
  if (!config) return failure(config);

  std::optional<ProgressBar> bar;
  std::uint64_t drawn = 0;
  Workers workers(0);
  const Result<void> made = write_seeded_checkpoint(
      folder, *config, checkpoint_seed,
      [&](std::uint64_t done, std::uint64_t total) {
        if (!bar) {
          bar.emplace(console, ProgressOptions{.label = "making " + folder.string(),
                                               .total_bytes = total,
                                               .redraw = console.terminal});
        }
        bar->add(done - drawn);
        drawn = done;
      },
      workers);
  if (!made) return failure(made);
  if (bar) bar->finish();
  if (signals.pending()) return failure(ErrorCode::unavailable, "interrupted");
  return folder;
}

}  // namespace weir::cli
