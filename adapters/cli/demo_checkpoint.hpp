#pragma once
// The checkpoint that a demo uses when nobody gives it one: made once, kept in a cache folder.

#include <filesystem>

#include "adapters/cli/console.hpp"
#include "adapters/cli/held_signals.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

/// The folder of a checkpoint with the tensor names, shapes and types of Qwen3-0.6B (1.2 GB), or
/// of a tiny Qwen3 where `small`: under `$XDG_CACHE_HOME/weir` or `~/.cache/weir`, made now if it
/// is not there. Errors: those of `write_seeded_checkpoint`; `refused` when there is no place for
/// it; `unavailable` when a person interrupted.
Result<std::filesystem::path> demo_checkpoint(bool small, Console& console,
                                              const HeldSignals& signals);

}  // namespace weir::cli
