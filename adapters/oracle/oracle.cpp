#include "adapters/oracle/oracle.hpp"

#include <algorithm>
#include <iterator>

#include "adapters/oracle/internal/rank_writer.hpp"

namespace weir::oracle {
namespace internal {
namespace {

Rows all_rows_of(const Model& model, std::size_t tensor) {
  const Dims& shape = model.tensors[tensor].shape;
  const std::int64_t count = shape.rank() == 0 ? 1 : shape[0];
  Rows rows;
  for (std::int64_t row = 0; row < count; ++row) {
    rows.push_back({static_cast<std::int64_t>(tensor), row});
  }
  return rows;
}

}  // namespace

/// One rank that keeps every tensor as it is.
void write_hf(const Model& model, std::uint32_t rank, RankWriter& writer) {
  writer.allow({}, false);
  if (!writer.require(rank < 1, "there is one rank only, rank 0")) return;
  for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
    writer.put_like(tensor, all_rows_of(model, tensor));
  }
}

/// `torch.chunk` along dimension 0: as many chunks of ceil(N / W) rows as there are rows for, one
/// that is shorter, and then none. Scalars and buffers are not parameters that FSDP shards.
void write_fsdp2(const Model& model, std::uint32_t rank, RankWriter& writer) {
  writer.allow({"dp", "hsdp"}, false);
  const std::int64_t ranks = writer.option("dp");
  writer.option("hsdp");
  if (!writer.require(rank < ranks, "rank " + std::to_string(rank) + " is not below dp")) return;
  for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
    const Rows rows = all_rows_of(model, tensor);
    const bool whole =
        model.tensors[tensor].shape.rank() == 0 || model.tensors[tensor].kind == TensorKind::buffer;
    if (whole) {
      writer.put_like(tensor, rows);
      continue;
    }
    // What is left is dealt out chunk by chunk until this rank's turn comes.
    const std::int64_t chunk = padded_up(std::ssize(rows), ranks) / ranks;
    std::int64_t dealt = 0;
    for (std::uint32_t earlier = 0; earlier < rank; ++earlier) {
      dealt += std::min(chunk, std::ssize(rows) - dealt);
    }
    writer.put_like(tensor, slice_of(rows, dealt, std::min(chunk, std::ssize(rows) - dealt)));
  }
}

}  // namespace internal

Result<std::vector<LocalTensor>> rank_of(const Model& model, const LayoutSpec& spec,
                                         std::uint32_t rank) {
  internal::RankWriter writer(model, spec);
  if (spec.name == "hf") {
    internal::write_hf(model, rank, writer);
  } else if (spec.name == "fsdp2") {
    internal::write_fsdp2(model, rank, writer);
  } else if (spec.name == "megatron") {
    internal::write_megatron(model, spec, rank, writer);
  } else if (spec.name == "vllm") {
    internal::write_vllm(model, rank, writer);
  } else {
    writer.require(false, "the oracle has no rules for layout '" + spec.name +
                              "'; it knows hf, fsdp2, megatron and vllm");
  }
  return writer.finish();
}

}  // namespace weir::oracle
