// Hugging Face: one rank keeps every canonical tensor whole, under its own name.

#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"

namespace weir {
namespace {

Result<LayoutSize> size(const LayoutSpec& /*spec*/) {
  return LayoutSize{};
}

Result<RankLayout> lay_out_rank(const Model& model, const LayoutSpec& spec,
                                std::uint32_t /*rank*/) {
  RankBuilder builder(model, spec.dtype);
  for (const Tensor& tensor : model.tensors) builder.whole(tensor.name, tensor.name);
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine hf_engine{
    .name = "hf", .options = {}, .families = {}, .size = size, .lay_out = lay_out_rank};

}  // namespace weir
