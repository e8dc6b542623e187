// Hugging Face: one rank keeps every canonical tensor whole, under its own name, or a layer's
// experts together as Transformers 5 does.

#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/packed_experts.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"

namespace weir {
namespace {

Result<LayoutSize> size(const LayoutSpec& /*spec*/) {
  return LayoutSize{};
}

Result<RankLayout> lay_out_rank(const TensorIndex& index, const LayoutSpec& spec,
                                std::uint32_t /*rank*/) {
  const Model& model = index.model();
  if (auto fits = check_packing(model, spec); !fits) return failure(fits);
  const bool packed = chosen(spec, "experts", "packed");
  RankBuilder builder(index, spec.dtype);
  for (const Tensor& tensor : model.tensors) {
    if (!packed || !is_of_expert(tensor.name)) builder.whole(tensor.name, tensor.name);
  }
  if (packed) add_packed_experts(builder, model.config, {.count = model.config.experts.count});
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine hf_engine{.name = "hf",
                           .options = {},
                           .choices = packing_choices,
                           .families = {},
                           .size = size,
                           .lay_out = lay_out_rank};

}  // namespace weir
