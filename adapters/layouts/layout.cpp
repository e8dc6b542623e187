#include "adapters/layouts/layout.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/quantized_layout.hpp"
#include "adapters/model/decoder_names.hpp"

namespace weir {
namespace {

std::string texts_of(std::span<const std::string_view> names) {
  return alternatives({names.begin(), names.end()});
}

Result<void> check_family(const Engine& engine, const Model& model) {
  const std::string& family = model.config.family;
  if (std::ranges::find(engine.families, family) != engine.families.end()) return {};
  return failure(ErrorCode::invalid,
                 "layout " + std::string(engine.name) + " does not know " +
                     (family.empty() ? "this model" : "the model family '" + family + "'") +
                     ", only " + texts_of(engine.families) +
                     ": use hf or fsdp2, which take any model");
}

/// An engine's rule relies on the model having just the tensors, of just the shapes, that its
/// config implies: whichever were missing it could not find, and others it would leave behind.
Result<void> check_complete(const Model& model) {
  const auto expected = model_of(model.config);
  if (!expected) return failure(expected);
  const auto described = [](const Tensor& tensor) { return std::tie(tensor.name, tensor.shape); };
  const auto [actual, wanted] =
      std::ranges::mismatch(model.tensors, expected->tensors, {}, described, described);
  const bool no_more = actual == model.tensors.end();
  if (no_more && wanted == expected->tensors.end()) return {};
  if (!no_more && (wanted == expected->tensors.end() || actual->name < wanted->name)) {
    return failure(ErrorCode::invalid, "the model has " + actual->name +
                                           ", which by its config it has not: correct the config");
  }
  if (no_more || wanted->name < actual->name) {
    return failure(ErrorCode::invalid, "the model lacks " + wanted->name +
                                           ", which by its config it has: correct the config");
  }
  return failure(ErrorCode::invalid, actual->name + " is " + text_of(actual->shape) +
                                         " and by its config " + text_of(wanted->shape) +
                                         ": correct the config");
}

Result<void> check_rank(const std::string& spec, const LayoutSize& size, std::uint32_t rank) {
  if (rank < size.ranks) return {};
  return failure(ErrorCode::invalid, "rank " + std::to_string(rank) + " is out of range: " + spec +
                                         " has ranks 0 to " + std::to_string(size.ranks - 1));
}

/// hf and fsdp2 take any model, but know the names of experts only where the config is right.
Result<void> check_model(const Engine& engine, const Model& model, const LayoutSpec& spec) {
  if (!engine.families.empty()) {
    if (auto known = check_family(engine, model); !known) return known;
    return check_complete(model);
  }
  const bool packs = choice_named(engine, "experts") != nullptr &&
                     chosen(spec, "experts", "packed") && !model.config.family.empty();
  return packs ? check_complete(model) : Result<void>();
}

/// All tensors of all layers of MTP, for an engine that is told to do without them.
std::vector<std::uint32_t> left_out(const Engine& engine, const Model& model,
                                    const LayoutSpec& spec) {
  std::vector<std::uint32_t> tensors;
  if (choice_named(engine, "mtp") == nullptr || !chosen(spec, "mtp", "drop")) return tensors;
  for (std::int64_t i = 0; i < model.config.mtp_layers; ++i) {
    const std::string layer = layer_name(model.config.num_hidden_layers + i);
    for (std::uint32_t index = 0; index < model.tensors.size(); ++index) {
      if (model.tensors[index].name.starts_with(layer)) tensors.push_back(index);
    }
  }
  std::ranges::sort(tensors);
  return tensors;
}

/// The numbers, in the quantized model, of tensors that are left out and of their scales.
std::vector<std::uint32_t> with_scales(const Model& quantized,
                                       const std::vector<std::uint32_t>& numbers,
                                       const std::vector<std::uint32_t>& left_out) {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t index : left_out) {
    const Tensor& tensor = quantized.tensors[numbers[index]];
    all.push_back(numbers[index]);
    if (tensor.encoding == 0) continue;
    const std::string scales = tensor.name + quantized.encodings[tensor.encoding - 1].scales_suffix;
    const auto found = std::ranges::lower_bound(quantized.tensors, scales, {}, &Tensor::name);
    all.push_back(static_cast<std::uint32_t>(found - quantized.tensors.begin()));
  }
  std::ranges::sort(all);
  return all;
}

/// All tensors but those that are left out.
std::vector<const Tensor*> kept_tensors(const Model& model,
                                        const std::vector<std::uint32_t>& left_out) {
  std::vector<const Tensor*> kept;
  kept.reserve(model.tensors.size());
  for (std::uint32_t index = 0; index < model.tensors.size(); ++index) {
    if (!std::ranges::binary_search(left_out, index)) kept.push_back(&model.tensors[index]);
  }
  return kept;
}

}  // namespace

Result<LayoutSize> size_of(const LayoutSpec& spec) {
  const auto engine = engine_named(spec.name);
  if (!engine) return failure(engine);
  const auto all = settled(**engine, spec);
  if (!all) return failure(all);
  return size_in(**engine, *all);
}

struct Layout::Parts {
  std::unique_ptr<const Model> values;  ///< Where `dtype` asks for those of a model of codes.
  std::shared_ptr<const Engine> engine;
  LayoutSpec spec;   ///< Settled.
  std::string text;  ///< As it was given.
  LayoutSize size;
  TensorIndex index;
  std::vector<std::uint32_t> left_out;
  std::vector<std::uint32_t> empty = {};
  Inventory inventory = {};
  std::optional<Model> quantized = {};
  std::vector<std::uint32_t> numbers = {};  ///< In `quantized` of each tensor.
};

Layout::Layout(std::unique_ptr<const Parts> parts) noexcept : parts_(std::move(parts)) {}
Layout::Layout(Layout&&) noexcept = default;
Layout& Layout::operator=(Layout&&) noexcept = default;
Layout::~Layout() = default;

Result<Layout> Layout::of(const Model& given, const LayoutSpec& spec) {
  const auto engine = engine_named(spec.name);
  if (!engine) return failure(engine);
  auto all = settled(**engine, spec);
  if (!all) return failure(all);
  const auto size = size_in(**engine, *all);
  if (!size) return failure(size);
  std::unique_ptr<const Model> values;
  if (spec.dtype && !given.encodings.empty()) {
    values = std::make_unique<const Model>(dequantized(given, *spec.dtype));
  }
  const Model& model = values ? *values : given;
  if (auto known = check_model(**engine, model, *all); !known) return failure(known);
  std::vector<std::uint32_t> without = left_out(**engine, model, *all);
  auto parts =
      std::make_unique<Parts>(Parts{std::move(values), *engine, *std::move(all), text_of(spec),
                                    *size, TensorIndex(model), std::move(without)});
  if (spec.quant) {
    auto made = quantized(model, *spec.quant);
    if (!made) return failure(made);
    parts->quantized = *std::move(made);
    parts->numbers = numbers_in(*parts->quantized, model);
    parts->left_out = with_scales(*parts->quantized, parts->numbers, parts->left_out);
  }
  const Model& placed = parts->quantized ? *parts->quantized : model;
  std::vector<const Tensor*> kept = kept_tensors(placed, parts->left_out);
  for (const Tensor* tensor : kept) {
    if (element_count(tensor->shape) > 0) continue;
    parts->empty.push_back(static_cast<std::uint32_t>(tensor - placed.tensors.data()));
  }
  parts->inventory = inventory_of(std::move(kept));
  return Layout(std::move(parts));
}

const Model& Layout::model() const noexcept {
  return parts_->quantized ? *parts_->quantized : parts_->index.model();
}

const LayoutSize& Layout::size() const noexcept {
  return parts_->size;
}

Result<RankLayout> Layout::rank(std::uint32_t rank) const {
  if (auto checked = check_rank(parts_->text, parts_->size, rank); !checked) {
    return failure(checked);
  }
  auto layout = rank_in(*parts_->engine, parts_->index, parts_->spec, rank);
  if (layout && parts_->quantized) {
    layout = quantized_layout(*parts_->quantized, parts_->numbers, *std::move(layout));
    if (!layout) {
      return failure(layout.error().code, parts_->text + ": " + layout.error().text);
    }
  }
  if (!layout) return layout;
  layout->left_out = parts_->left_out;
  layout->empty = parts_->empty;
  layout->inventory = parts_->inventory;
  return layout;
}

Result<RankLayout> lay_out(const Model& model, const LayoutSpec& spec, std::uint32_t rank) {
  if (spec.quant) {
    return failure(ErrorCode::invalid,
                   text_of(spec) + " has scales that the model has not: lay it out by Layout::of");
  }
  if (spec.dtype && !model.encodings.empty()) {
    return failure(ErrorCode::invalid, text_of(spec) +
                                           " has values where the model has codes: "
                                           "lay it out by Layout::of");
  }
  const auto layout = Layout::of(model, spec);
  if (!layout) return failure(layout);
  return layout->rank(rank);
}

std::uint64_t bytes_of(const LocalTensor& tensor) noexcept {
  std::uint64_t bytes = size_of(tensor.type);
  for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

}  // namespace weir
