#pragma once
// A model whose weights engines keep as 8-bit codes and scales: the same tensors, and the scales.

#include <cstdint>
#include <optional>
#include <string_view>

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// How weights are quantized. Formulas: `Scaling` of `runtime/quantize.hpp`.
enum class WeightQuant : std::uint8_t {
  fp8_block,        ///< f8_e4m3, f32 scales of blocks of 128x128 in `*_scale_inv` (DeepSeek-V3).
  fp8_block_ue8m0,  ///< The same with scales that are powers of two.
  fp8_channel,      ///< f8_e4m3, an f32 scale for each output channel in `*_scale`.
  int8_channel,     ///< i8, the same.
};

inline constexpr int weight_quant_count = 4;

/// "fp8_block", …
std::string_view name_of(WeightQuant quant) noexcept;
/// The inverse; nothing for an unknown name.
std::optional<WeightQuant> weight_quant_named(std::string_view name) noexcept;

/// The model with the weights of its linear projections as codes, and their scales among its
/// tensors, each the last dimension's rows and columns cut into blocks. Projections are those that
/// published FP8 checkpoints quantize: of attention, of MLPs and of experts, in decoder layers and
/// layers of MTP. Embeddings, heads, norms, biases, routers and convolutions stay as they are.
/// Errors (`invalid`): a model that has codes already; a family whose weights engines keep in other
/// codes (gpt-oss: MXFP4).
Result<Model> quantized(const Model& model, WeightQuant quant);

/// The inverse: the model of the values that codes stand for, in `type`, without their scales.
Model dequantized(const Model& model, ElementType type);

}  // namespace weir
