// Megatron-Core's Gated DeltaNet: one input projection for everything.

#include <string>
#include <vector>

#include "adapters/layouts/internal/megatron.hpp"

namespace weir::megatron {
namespace {

/// What the input projection makes, in its order, and where it begins among the rows of one key
/// head's group in the checkpoint: [q, k, v, z] of in_proj_qkvz, [b, a] of in_proj_ba.
struct Output {
  const char* tensor;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t group_rows = 0;
};

std::vector<Output> outputs_of(const DeltaNetConfig& net) {
  const std::int64_t key = net.key_head_dim;
  const std::int64_t heads = net.value_heads / net.key_heads;
  const std::int64_t value = heads * net.value_head_dim;
  const std::int64_t qkvz = 2 * key + 2 * value;
  const char* const in_proj_qkvz = "in_proj_qkvz.weight";
  const char* const in_proj_ba = "in_proj_ba.weight";
  return {{.tensor = in_proj_qkvz, .first = 0, .rows = key, .group_rows = qkvz},
          {.tensor = in_proj_qkvz, .first = key, .rows = key, .group_rows = qkvz},
          {.tensor = in_proj_qkvz, .first = 2 * key, .rows = value, .group_rows = qkvz},
          {.tensor = in_proj_qkvz, .first = 2 * key + value, .rows = value, .group_rows = qkvz},
          {.tensor = in_proj_ba, .first = 0, .rows = heads, .group_rows = 2 * heads},
          {.tensor = in_proj_ba, .first = heads, .rows = heads, .group_rows = 2 * heads}};
}

}  // namespace

void add_delta_net(RankBuilder& builder, const Rank& rank, const Layer& layer) {
  const DeltaNetConfig& net = rank.config.delta_net;
  const std::int64_t keys = net.key_heads * net.key_head_dim;
  const std::int64_t values = net.value_heads * net.value_head_dim;
  const std::string local = layer.local + "self_attention.";
  const std::string there = layer.canonical + "linear_attn.";
  for (const char* name : {"dt_bias", "A_log"}) {
    builder.stack(local + name,
                  {{.tensor = builder.of(there + name), .rows = rank.tensor.of(net.value_heads)}});
  }
  builder.whole(local + "in_proj.layer_norm_weight", layer.canonical + "input_layernorm.weight");
  const IndexRange groups = rank.tensor.of(net.key_heads);
  std::vector<RowRun> projection;
  for (const Output& output : outputs_of(net)) {
    for (std::int64_t group = groups.first; group < groups.end(); ++group) {
      projection.push_back(
          {.tensor = builder.of(there + output.tensor),
           .rows = {.first = group * output.group_rows + output.first, .count = output.rows}});
    }
  }
  builder.stack(local + "in_proj.weight", projection);
  const auto convolved = [&](std::int64_t first, std::int64_t rows) {
    const IndexRange kept = rank.tensor.of(rows);
    return RowRun{.tensor = builder.of(there + "conv1d.weight"),
                  .rows = {.first = first + kept.first, .count = kept.count}};
  };
  builder.stack(local + "conv1d.weight",
                {convolved(0, keys), convolved(keys, keys), convolved(2 * keys, values)});
  // Megatron-Core keeps all of its norms so, and the checkpoint all but this one.
  builder.whole(local + "out_norm.weight", there + "norm.weight");
  builder.less_one_last();
  builder.columns(local + "out_proj.weight", there + "out_proj.weight", rank.tensor.of(values));
}

}  // namespace weir::megatron
