#include "adapters/layouts/layout.hpp"

#include <algorithm>
#include <tuple>

#include "adapters/layouts/internal/engines.hpp"

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
  // hf and fsdp2 take any model, but know the names of experts only where the config is right.
  const bool packs = choice_named(**engine, "experts") != nullptr && (*engine)->families.empty() &&
                     chosen(*all, "experts", "packed") && !model.config.family.empty();
  if (!(*engine)->families.empty() || packs) {
    if (!packs) {
      if (auto known = check_family(**engine, model); !known) return failure(known);
    }
    if (auto complete = check_complete(model); !complete) return failure(complete);
  }
  return (*engine)->lay_out(model, *all, rank);
}

std::uint64_t bytes_of(const LocalTensor& tensor) noexcept {
  std::uint64_t bytes = size_of(tensor.type);
  for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

}  // namespace weir
