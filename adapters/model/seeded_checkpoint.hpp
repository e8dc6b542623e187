#pragma once
// Checkpoints with made-up weights: the exact names, shapes and types of a real model, for moving
// without downloading one.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir {

/// Called one call at a time, though from any worker thread. Bytes of tensor data.
using SeededProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

/// Makes the folder `dir` with a `config.json` that Transformers reads too, and
/// `model.safetensors`. Every value is a bf16 number of either sign with magnitude in
/// [2^-7, 2^-5) that depends on the seed, the tensor's name and the value's index alone.
/// The folder appears whole or not at all; each seed gives the same bytes everywhere.
/// Errors: `invalid` (unknown family, implausible sizes, a type other than bf16), `refused`
/// (`dir` exists, another process is making it, not enough space), `not_found`, `io`.
Result<void> write_seeded_checkpoint(const std::filesystem::path& dir, const ModelConfig& config,
                                     std::uint64_t seed, const SeededProgress& progress,
                                     Workers& workers);

/// The text of a `config.json` for that config, which must be of a known family. Settings that no
/// layout depends on (rope_theta, …) are those of the family's published models.
std::string config_json_of(const ModelConfig& config);

}  // namespace weir
