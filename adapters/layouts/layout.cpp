#include "adapters/layouts/layout.hpp"

#include <algorithm>

#include "adapters/layouts/internal/engines.hpp"

namespace weir {
namespace {

std::string texts_of(std::span<const std::string_view> names) {
  return alternatives({names.begin(), names.end()});
}

/// Engines that know names and shapes by family rely on the model having just those tensors.
Result<void> check_model(const Engine& engine, const Model& model) {
  if (engine.families.empty()) return {};
  const std::string& family = model.config.family;
  if (std::ranges::find(engine.families, family) == engine.families.end()) {
    return failure(ErrorCode::invalid,
                   "layout " + std::string(engine.name) + " does not know " +
                       (family.empty() ? "this model" : "the model family '" + family + "'") +
                       ", only " + texts_of(engine.families) +
                       ": use hf or fsdp2, which take any model");
  }
  return {};
}

Result<void> check_rank(const LayoutSpec& spec, const LayoutSize& size, std::uint32_t rank) {
  if (rank < size.ranks) return {};
  return failure(ErrorCode::invalid, "rank " + std::to_string(rank) +
                                         " is out of range: " + text_of(spec) + " has ranks 0 to " +
                                         std::to_string(size.ranks - 1));
}

}  // namespace

Result<LayoutSize> size_of(const LayoutSpec& spec) {
  const auto engine = engine_named(spec.name);
  if (!engine) return failure(engine);
  const auto all = settled(**engine, spec);
  if (!all) return failure(all);
  return (*engine)->size(*all);
}

Result<RankLayout> lay_out(const Model& model, const LayoutSpec& spec, std::uint32_t rank) {
  const auto engine = engine_named(spec.name);
  if (!engine) return failure(engine);
  const auto all = settled(**engine, spec);
  if (!all) return failure(all);
  const auto size = (*engine)->size(*all);
  if (!size) return failure(size);
  if (auto checked = check_rank(spec, *size, rank); !checked) return failure(checked);
  if (auto checked = check_model(**engine, model); !checked) return failure(checked);
  return (*engine)->lay_out(model, *all, rank);
}

std::uint64_t bytes_of(const LocalTensor& tensor) noexcept {
  std::uint64_t bytes = size_of(tensor.type);
  for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

}  // namespace weir
