#include "adapters/model/quantized_model.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

namespace weir {
namespace {

constexpr std::array<std::string_view, weight_quant_count> names = {"fp8_block", "fp8_block_ue8m0",
                                                                    "fp8_channel", "int8_channel"};

/// Modules whose `weight` is quantized, by the last part of their names.
constexpr std::array<std::string_view, 19> projections = {
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_a_proj",
    "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "in_proj_qkvz", "out_proj", "query_key_value",
    "dense",
    // Packed experts are parameters of their own, without `weight`.
    "gate_up_proj", "qkv_proj", "in_proj_qkv", "in_proj_z"};

bool is_projection(const Tensor& tensor) {
  constexpr std::string_view weight = ".weight";
  std::string_view name = tensor.name;
  if (!name.starts_with("model.layers.") || tensor.shape.rank() < 2) return false;
  if (tensor.kind != TensorKind::parameter) return false;
  if (name.ends_with(weight)) name.remove_suffix(weight.size());
  const std::string_view module = name.substr(name.rfind('.') + 1);
  return std::ranges::find(projections, module) != projections.end();
}

Encoding encoding_of(WeightQuant quant, int rank) {
  const bool blocks = quant == WeightQuant::fp8_block || quant == WeightQuant::fp8_block_ue8m0;
  Encoding encoding{.kind = Encoding::Kind::scaled,
                    .scales_suffix = blocks ? "_scale_inv" : "_scale",
                    .block = Dims::filled(rank, 1),
                    .power_of_two = quant == WeightQuant::fp8_block_ue8m0};
  encoding.block[rank - 2] = blocks ? 128 : 1;
  encoding.block[rank - 1] = blocks ? 128 : 0;
  return encoding;
}

}  // namespace

std::string_view name_of(WeightQuant quant) noexcept {
  return names.at(static_cast<std::size_t>(quant));
}

std::optional<WeightQuant> weight_quant_named(std::string_view name) noexcept {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<WeightQuant>(found - names.begin());
}

Result<Model> quantized(const Model& model, WeightQuant quant) {
  if (model.config.family == "gpt_oss") {
    return failure(ErrorCode::invalid, "engines keep weights of gpt_oss as MXFP4, which is not " +
                                           std::string(name_of(quant)) + ": leave quant out");
  }
  if (!model.encodings.empty()) {
    return failure(ErrorCode::invalid, "the model's weights are codes already: leave quant out");
  }
  Model made = model;
  std::vector<Tensor> scales;
  for (Tensor& tensor : made.tensors) {
    if (!is_projection(tensor)) continue;
    const Encoding encoding = encoding_of(quant, tensor.shape.rank());
    const auto found = std::ranges::find(made.encodings, encoding);
    tensor.encoding = static_cast<std::uint32_t>(found - made.encodings.begin()) + 1;
    if (found == made.encodings.end()) made.encodings.push_back(encoding);
    tensor.type = quant == WeightQuant::int8_channel ? ElementType::i8 : ElementType::f8_e4m3;
    scales.push_back({tensor.name + encoding.scales_suffix, ElementType::f32,
                      scales_shape(encoding, tensor.shape), TensorKind::parameter});
  }
  if (scales.empty()) {
    return failure(ErrorCode::invalid, "the model has no projections that " +
                                           std::string(name_of(quant)) +
                                           " quantizes, by their names: leave quant out");
  }
  made.tensors.insert(made.tensors.end(), std::make_move_iterator(scales.begin()),
                      std::make_move_iterator(scales.end()));
  std::ranges::sort(made.tensors, {}, &Tensor::name);
  return made;
}

Model dequantized(const Model& model, ElementType type) {
  Model made = model;
  std::set<std::string> scales;
  for (Tensor& tensor : made.tensors) {
    if (tensor.encoding == 0) continue;
    scales.insert(tensor.name + model.encodings[tensor.encoding - 1].scales_suffix);
    tensor.encoding = 0;
    tensor.type = type;
  }
  std::erase_if(made.tensors, [&](const Tensor& tensor) { return scales.contains(tensor.name); });
  made.encodings.clear();
  return made;
}

}  // namespace weir
