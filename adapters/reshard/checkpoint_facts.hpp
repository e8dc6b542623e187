#pragma once
// What must travel beside the tensors of a resharded checkpoint, so that the original can come
// back.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/model/model.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/result.hpp"

namespace weir {

/// A checkpoint without its bytes.
struct CheckpointFacts {
  Model model;
  /// Shapes as the checkpoint's files state them, of the tensors that canonical space folds
  /// because they have more than `rank_max` dimensions. By name.
  std::map<std::string, std::vector<std::int64_t>> full_shapes;
  FileMetadata metadata;  ///< The `__metadata__` of the checkpoint's files.

  friend bool operator==(const CheckpointFacts&, const CheckpointFacts&) = default;
};

/// A shape in canonical space: dimensions from the last allowed one on become one.
/// The product of the extents must fit (checked where they enter).
Dims folded(const std::vector<std::int64_t>& shape);

/// Tensors, aliases and metadata as JSON text, for a rank file's metadata. The config is not part
/// of it: it travels as `config.json`.
std::string encode(const CheckpointFacts& facts);

/// The inverse; `config` becomes the model's. Any text is safe to pass. Errors (`invalid`), to
/// stand after the name of the file: not JSON, or not of that form.
Result<CheckpointFacts> parse_checkpoint_facts(std::string_view text, const ModelConfig& config);

}  // namespace weir
