// MLPs of engines that generate: [gate; up], and experts stacked into w13 and w2.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "adapters/layouts/internal/serving.hpp"
#include "runtime/assert.hpp"

namespace weir::serving {
namespace {

/// The MLP in a slot: where its names begin, and where its rows do in those tensors.
struct Slot {
  std::string mlp;
  std::int64_t first_row = 0;
};

std::vector<Slot> slots_in(const Rank& rank, const std::string& layer) {
  const ExpertsConfig& experts = rank.config.experts;
  std::vector<Slot> slots;
  for (const std::int64_t expert : rank.slots) {
    slots.push_back({layer + "mlp.experts." + std::to_string(expert) + ".", 0});
  }
  if (!rank.fused_shared) return slots;
  const std::string shared = layer + std::string(names_of(rank.config).shared_experts);
  for (std::int64_t row = 0; row < experts.shared_intermediate_size;
       row += experts.intermediate_size) {
    slots.push_back({shared, row});
  }
  return slots;
}

/// w13 is [slot, gate and up rows, hidden], w2 is [slot, hidden, columns].
void add_stacked(RankBuilder& builder, const Rank& rank, const std::string& local,
                 const std::vector<Slot>& slots) {
  const IndexRange kept = rank.expert_rows.of(rank.config.experts.intermediate_size);
  std::vector<RowRun> runs;
  std::vector<ColumnRun> columns;
  for (const Slot& slot : slots) {
    const IndexRange own{.first = slot.first_row + kept.first, .count = kept.count};
    RowRun gate{.tensor = slot.mlp + "gate_proj.weight", .rows = own};
    RowRun up{.tensor = slot.mlp + "up_proj.weight", .rows = own};
    if (rank.up_first) std::swap(gate, up);
    runs.push_back(std::move(gate));
    runs.push_back(std::move(up));
    columns.push_back({.tensor = slot.mlp + "down_proj.weight", .columns = own});
  }
  builder.stack_parts(local + "w13_weight", std::ssize(slots), runs);
  builder.stack_columns(local + "w2_weight", columns);
}

}  // namespace

Result<std::vector<std::int64_t>> slots_of(const ModelConfig& config, const LayoutSpec& spec,
                                           const Placement& placement) {
  const std::int64_t experts = config.experts.count;
  const std::int64_t physical = experts + option(spec, "redundant");
  if (!spec.physical.empty()) {
    if (std::ssize(spec.physical) != physical) {
      return failure(ErrorCode::invalid,
                     "physical= has " + std::to_string(spec.physical.size()) +
                         " slots: give experts + redundant = " + std::to_string(physical));
    }
    std::vector<bool> seen(static_cast<std::size_t>(experts));
    for (const std::int64_t expert : spec.physical) {
      if (expert >= experts) {
        return failure(ErrorCode::invalid, "physical= names expert " + std::to_string(expert) +
                                               ": the model has experts 0 to " +
                                               std::to_string(experts - 1));
      }
      seen[static_cast<std::size_t>(expert)] = true;
    }
    const auto missing = std::ranges::find(seen, false);
    if (missing != seen.end()) {
      return failure(ErrorCode::invalid, "physical= leaves out expert " +
                                             std::to_string(missing - seen.begin()) +
                                             ": give each expert a slot");
    }
  }
  const Part& part = placement.part;
  // The first ranks have one more, where ranks do not divide the slots.
  const std::int64_t least = physical / part.count;
  const std::int64_t more = physical % part.count;
  const std::int64_t count = least + (part.index < more ? 1 : 0);
  const std::int64_t first = part.index * least + std::min(part.index, more);
  std::vector<std::int64_t> slots;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t slot = placement.round_robin ? part.index + i * part.count : first + i;
    slots.push_back(spec.physical.empty() ? slot % experts
                                          : spec.physical[static_cast<std::size_t>(slot)]);
  }
  return slots;
}

void add_mlp(RankBuilder& builder, const Rank& rank, const std::string& local,
             const std::string& mlp, std::int64_t width) {
  const IndexRange kept = rank.mlp.of(width);
  const auto merged = [&](const std::string& kind) {
    builder.stack(local + "gate_up_proj." + kind,
                  {{.tensor = mlp + "gate_proj." + kind, .rows = kept},
                   {.tensor = mlp + "up_proj." + kind, .rows = kept}});
  };
  merged("weight");
  if (rank.config.mlp_bias) merged("bias");
  builder.columns(local + "down_proj.weight", mlp + "down_proj.weight", kept);
  if (rank.config.mlp_bias) builder.whole(local + "down_proj.bias", mlp + "down_proj.bias");
}

void add_experts(RankBuilder& builder, const Rank& rank, const std::string& local,
                 const std::string& layer) {
  const ExpertsConfig& experts = rank.config.experts;
  const DecoderNames names = names_of(rank.config);
  const auto name = [](const std::string& prefix, std::string_view suffix) {
    return prefix + std::string(suffix);
  };
  const std::string router = std::string(names.router) + "weight";
  builder.whole(local + router, layer + router);
  if (experts.router_f32) builder.keep_last_in_f32();
  if (experts.score_bias) {
    builder.whole(name(local, names.score_bias), name(layer, names.score_bias));
    builder.keep_last_in_f32();
  }
  if (experts.shared_intermediate_size > 0 && !rank.fused_shared) {
    add_mlp(builder, rank, name(local, names.shared_experts), name(layer, names.shared_experts),
            experts.shared_intermediate_size);
  }
  if (experts.shared_intermediate_size > 0 && !names.shared_gate.empty()) {
    builder.whole(name(local, names.shared_gate), name(layer, names.shared_gate));
  }
  const std::vector<Slot> slots = slots_in(rank, layer);
  // A rank beyond the last expert keeps none.
  if (!slots.empty()) add_stacked(builder, rank, name(local, rank.names.experts), slots);
}

}  // namespace weir::serving
