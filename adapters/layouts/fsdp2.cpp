// FSDP2: every parameter is cut on dimension 0 into chunks of ceil(N / W) rows; the last rows may
// be fewer, and trailing ranks may have none. Ranks of one shard group make a replica.

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"

namespace weir {
namespace {

constexpr std::array options = {EngineOption{.name = "dp"}, EngineOption{.name = "hsdp"}};

Result<LayoutSize> size(const LayoutSpec& spec) {
  return layout_size(spec, option(spec, "dp"), option(spec, "hsdp"));
}

Result<RankLayout> lay_out_rank(const Model& model, const LayoutSpec& spec, std::uint32_t rank) {
  const std::int64_t ranks = option(spec, "dp");
  RankBuilder builder(model, spec.dtype);
  for (const Tensor& tensor : model.tensors) {
    if (tensor.shape.rank() == 0 || tensor.kind == TensorKind::buffer) {
      builder.whole(tensor.name, tensor.name);
      continue;
    }
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t chunk = rounded_up(rows, ranks) / ranks;
    const std::int64_t first = std::min(rows, rank * chunk);
    const IndexRange kept{.first = first, .count = std::min(rows - first, chunk)};
    builder.stack(tensor.name, {{.tensor = tensor.name, .rows = kept}});
  }
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine fsdp2_engine{
    .name = "fsdp2", .options = options, .families = {}, .size = size, .lay_out = lay_out_rank};

}  // namespace weir
