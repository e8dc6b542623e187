#pragma once
// What becomes of generations that are under way when a replica switches to another version.

#include <cstdint>

namespace weir {

/// Told to the engine when it is asked to pause.
enum class InFlight : std::uint8_t {
  abort_and_resume,     ///< Abort, then go on from the prefix: prefill is repeated (AReaL, verl).
  keep,                 ///< Go on with the old KV cache (PipelineRL, prime-rl, NeMo-RL's default).
  keep_and_drop_cache,  ///< Go on, with the KV cache computed anew (NeMo-RL's option, SGLang).
  drain,                ///< Start nothing new and wait for those that run (slime, verl).
  abort_and_requeue,  ///< Abort, and start the whole group anew (slime's fully asynchronous mode).
};

}  // namespace weir
