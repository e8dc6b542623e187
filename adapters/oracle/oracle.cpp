#include "adapters/oracle/oracle.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "adapters/oracle/internal/decoder.hpp"

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

bool asks_for_packed(const Model& model, RankWriter& writer) {
  const bool packed = writer.second("experts", "each", "packed");
  if (!packed) return false;
  return writer.require(model.config.experts.count > 0 && model.config.family != "gpt_oss",
                        "experts=packed needs a model with experts one by one") &&
         require_decoder(model, writer);
}

bool is_experts(const Tensor& tensor) {
  return tensor.name.find("mlp.experts.") != std::string::npos;
}

struct Chunk {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// What is left is dealt out chunk by chunk until this rank's turn comes.
Chunk chunk_of(std::int64_t total, std::int64_t ranks, std::uint32_t rank) {
  const std::int64_t size = padded_up(total, ranks) / ranks;
  std::int64_t dealt = 0;
  for (std::uint32_t earlier = 0; earlier < rank; ++earlier) dealt += std::min(size, total - dealt);
  return {dealt, std::min(size, total - dealt)};
}

/// Expert after expert: gate and up on top of each other, and down beside them.
void write_packed(const Model& model, std::int64_t first, std::int64_t count, RankWriter& writer) {
  const ModelConfig& config = model.config;
  const std::int64_t width = config.experts.intermediate_size;
  for (std::int64_t i = 0; i < config.num_hidden_layers + config.mtp_layers; ++i) {
    if (!is_sparse(config, i)) continue;
    const std::string at = layer_of(i) + "mlp.experts.";
    std::vector<Rows> gate_up;
    std::vector<Rows> down;
    for (std::int64_t expert = first; expert < first + count; ++expert) {
      const MlpRows rows = expert_rows(config, layer_of(i), expert, writer);
      gate_up.push_back(stacked({rows.gate, rows.up}));
      down.push_back(rows.down);
    }
    if (count == 0) {
      writer.put_no_parts(at + "gate_up_proj", 2 * width, config.hidden_size,
                          at + "0.gate_proj.weight");
      writer.put_no_parts(at + "down_proj", config.hidden_size, width, at + "0.down_proj.weight");
    } else {
      writer.put_parts(at + "gate_up_proj", stacked(gate_up), count, config.hidden_size);
      writer.put_parts(at + "down_proj", stacked(down), count, width);
    }
  }
}

}  // namespace

/// One rank that keeps every tensor as it is, or all experts of a layer together.
void write_hf(const Model& model, std::uint32_t rank, RankWriter& writer) {
  writer.allow({"experts"});
  const bool packed = asks_for_packed(model, writer);
  if (!writer.require(rank < 1, "there is one rank only, rank 0")) return;
  for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
    if (packed && is_experts(model.tensors[tensor])) continue;
    writer.put_like(tensor, all_rows_of(model, tensor));
  }
  if (packed) write_packed(model, 0, model.config.experts.count, writer);
}

/// `torch.chunk` along dimension 0: as many chunks of ceil(N / W) rows as there are rows for, one
/// that is shorter, and then none. Scalars and buffers are not parameters that FSDP shards.
void write_fsdp2(const Model& model, std::uint32_t rank, RankWriter& writer) {
  writer.allow({"dp", "hsdp", "experts"});
  const bool packed = asks_for_packed(model, writer);
  const std::int64_t ranks = writer.option("dp");
  writer.option("hsdp");
  if (!writer.require(rank < ranks, "rank " + std::to_string(rank) + " is not below dp")) return;
  for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
    if (packed && is_experts(model.tensors[tensor])) continue;
    const Rows rows = all_rows_of(model, tensor);
    const bool whole =
        model.tensors[tensor].shape.rank() == 0 || model.tensors[tensor].kind == TensorKind::buffer;
    if (whole) {
      writer.put_like(tensor, rows);
      continue;
    }
    const Chunk chunk = chunk_of(std::ssize(rows), ranks, rank);
    writer.put_like(tensor, slice_of(rows, chunk.first, chunk.count));
  }
  if (!packed) return;
  // Experts are what dimension 0 of a packed tensor counts.
  const Chunk chunk = chunk_of(model.config.experts.count, ranks, rank);
  write_packed(model, chunk.first, chunk.count, writer);
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
    internal::write_vllm(model, spec, rank, writer);
  } else if (spec.name == "sglang") {
    internal::write_sglang(model, spec, rank, writer);
  } else {
    writer.require(false, "the oracle has no rules for layout '" + spec.name +
                              "'; it knows hf, fsdp2, megatron, vllm and sglang");
  }
  return writer.finish();
}

}  // namespace weir::oracle
