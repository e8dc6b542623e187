// FSDP2: every parameter is cut on dimension 0 into chunks of ceil(N / W) rows; the last rows may
// be fewer, and trailing ranks may have none. Ranks of one shard group make a replica.

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/packed_experts.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"

namespace weir {
namespace {

constexpr std::array options = {EngineOption{.name = "dp"}, EngineOption{.name = "hsdp"}};

Result<LayoutSize> size(const LayoutSpec& spec) {
  return layout_size(spec, option(spec, "dp"), option(spec, "hsdp"));
}

IndexRange chunk_of(std::int64_t total, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t chunk = rounded_up(total, ranks) / ranks;
  const std::int64_t first = std::min(total, rank * chunk);
  return {.first = first, .count = std::min(total - first, chunk)};
}

Result<RankLayout> lay_out_rank(const TensorIndex& index, const LayoutSpec& spec,
                                std::uint32_t rank) {
  const Model& model = index.model();
  const std::int64_t ranks = option(spec, "dp");
  if (auto fits = check_packing(model, spec); !fits) return failure(fits);
  const bool packed = chosen(spec, "experts", "packed");
  RankBuilder builder(index, spec.dtype);
  for (const Tensor& tensor : model.tensors) {
    if (packed && is_of_expert(tensor.name)) continue;
    if (tensor.shape.rank() == 0 || tensor.kind == TensorKind::buffer) {
      builder.whole(tensor.name, tensor.name);
      continue;
    }
    const IndexRange kept = chunk_of(tensor.shape[0], ranks, rank);
    builder.stack(tensor.name, {{.tensor = builder.of(tensor.name), .rows = kept}});
  }
  // Packed experts are a parameter like any other, whose dimension 0 counts experts.
  if (packed) {
    add_packed_experts(builder, model.config, chunk_of(model.config.experts.count, ranks, rank));
  }
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine fsdp2_engine{.name = "fsdp2",
                              .options = options,
                              .choices = packing_choices,
                              .families = {},
                              .size = size,
                              .lay_out = lay_out_rank};

}  // namespace weir
