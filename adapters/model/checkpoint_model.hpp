#pragma once
// From files to a model: the canonical tensors that a checkpoint really holds, checked against what
// its configuration promises.

#include <filesystem>
#include <optional>

#include "adapters/model/model.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The `config.json` of a folder; nothing where the folder (or the file that `path` is) has none.
/// Errors: `io`, and `invalid` with the path and what is wrong.
Result<std::optional<ModelConfig>> read_model_config(const std::filesystem::path& path);

/// The model that a checkpoint holds. Types are the file's own. Dimensions beyond the fourth are
/// folded into it. Tensors that are not floating-point are buffers, and so are those that the
/// config's family keeps as buffers.
///
/// With a config of a known family the checkpoint must hold exactly the tensors which that implies,
/// with their shapes. Two kinds of extra tensors are left out: `rotary_emb.inv_freq`, which engines
/// compute, and whatever is tied (`lm_head.weight`, the copies in layers of MTP), if it equals its
/// original byte for byte. A checkpoint without any tensor of the first layer of MTP is of a model
/// without such layers. Without a config, or with one of an unknown family, the model is whatever
/// the checkpoint holds; so it is with a `quantization_config`, but where that says how codes (two
/// dimensions, f8_e4m3 or i8) are scaled, they have that encoding.
///
/// Errors: `invalid` with the tensor that is missing, extra, mis-shaped, not floating-point, or not
/// equal though tied, scales that are missing, mis-shaped or not f32, and how many more there are.
Result<Model> open_model(const Checkpoint& checkpoint, const std::optional<ModelConfig>& config);

/// Both of the above for a folder with a `config.json` and weights, a folder with weights only, or
/// one safetensors file (without a config). For those who need the shape but not the bytes.
Result<Model> load_model(const std::filesystem::path& path);

}  // namespace weir
