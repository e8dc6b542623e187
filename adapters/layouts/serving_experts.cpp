// MLPs of engines that generate: [gate; up], and experts stacked into w13 and w2.

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "adapters/layouts/internal/expert_maps.hpp"
#include "adapters/layouts/internal/serving.hpp"
#include "runtime/assert.hpp"

namespace weir::serving {
namespace {

/// The MLP in a slot, and where its rows begin in those tensors.
struct Slot {
  GatedMlp mlp;
  std::int64_t first_row = 0;
};

const std::vector<std::int64_t>& experts_in(const Rank& rank, std::int64_t index) {
  return rank.slots[static_cast<std::size_t>(index - rank.config.experts.first_layer)];
}

std::vector<Slot> slots_in(const TensorIndex& tensors, const Rank& rank, std::int64_t index) {
  const ExpertsConfig& experts = rank.config.experts;
  const std::string layer = layer_name(index);
  const std::span<const GatedMlp> routed = tensors.experts(layer);
  const std::vector<std::int64_t>& here = experts_in(rank, index);
  std::vector<Slot> slots;
  slots.reserve(here.size());
  for (const std::int64_t expert : here) {
    slots.push_back({routed[static_cast<std::size_t>(expert)], 0});
  }
  if (!rank.fused_shared) return slots;
  const GatedMlp shared = tensors.mlp(layer + std::string(names_of(rank.config).shared_experts));
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
  runs.reserve(2 * slots.size());
  std::vector<ColumnRun> columns;
  columns.reserve(slots.size());
  for (const Slot& slot : slots) {
    const IndexRange own{.first = slot.first_row + kept.first, .count = kept.count};
    const auto [gate, up, down] = slot.mlp;
    runs.push_back({.tensor = rank.up_first ? up : gate, .rows = own});
    runs.push_back({.tensor = rank.up_first ? gate : up, .rows = own});
    columns.push_back({.tensor = down, .columns = own});
  }
  builder.stack_parts(local + "w13_weight", std::ssize(slots), runs);
  builder.stack_columns(local + "w2_weight", columns);
}

/// The same of experts that the checkpoint has in one tensor. Gate and up alternate here, too, row
/// by row; and since ranks add up what they make of their rows of down, one alone has its bias.
void add_joint(RankBuilder& builder, const Rank& rank, const std::string& local,
               std::int64_t index) {
  const std::vector<std::int64_t>& experts = experts_in(rank, index);
  const std::int64_t hidden = rank.config.hidden_size;
  const auto [first, rows] = rank.expert_rows.of(rank.config.experts.intermediate_size);
  const std::int64_t slots = std::ssize(experts);
  const std::string there = layer_name(index) + "mlp.experts.";
  const std::string bias(rank.names.joint_bias);
  std::vector<LocalBox> w13;
  std::vector<LocalBox> w13_bias;
  std::vector<LocalBox> w2;
  std::vector<LocalBox> w2_bias;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t expert = experts[static_cast<std::size_t>(slot)];
    const std::int64_t size = rows * hidden;
    w13.push_back({.box = {.start = {expert, 0, first, 0}, .extent = {1, hidden, rows, 2}},
                   .offset = slot * 2 * size,
                   .stride = {2 * size, 1, 2 * hidden, hidden}});
    w13_bias.push_back({.box = {.start = {expert, first, 0}, .extent = {1, rows, 2}},
                        .offset = slot * 2 * rows,
                        .stride = {2 * rows, 2, 1}});
    w2.push_back({.box = {.start = {expert, first, 0}, .extent = {1, rows, hidden}},
                  .offset = slot * size,
                  .stride = {size, 1, rows}});
    if (rank.expert_rows.index > 0) continue;
    w2_bias.push_back({.box = {.start = {expert, 0}, .extent = {1, hidden}},
                       .offset = slot * hidden,
                       .stride = {hidden, 1}});
  }
  builder.boxes(local + "w13_weight", there + "gate_up_proj", {slots, 2 * rows, hidden}, w13);
  builder.boxes(local + "w13_" + bias, there + "gate_up_proj_bias", {slots, 2 * rows}, w13_bias);
  builder.boxes(local + "w2_weight", there + "down_proj", {slots, hidden, rows}, w2);
  builder.boxes(local + "w2_" + bias, there + "down_proj_bias", {slots, hidden}, w2_bias);
}

}  // namespace

Result<void> check_joint_experts(const ModelConfig& config, const LayoutSpec& spec) {
  if (!has_joint_experts(config)) return {};
  if (option(spec, "redundant") > 0 || !spec.physical.empty()) {
    return failure(ErrorCode::invalid, spec.name + " has no redundant experts of " + config.family +
                                           ": leave redundant= and physical= out");
  }
  if (chosen(spec, "gate_up", "w13")) return {};
  return failure(ErrorCode::invalid, "gate_up=w31: gate and up of " + config.family +
                                         " alternate row by row: leave it out");
}

Result<std::vector<std::vector<std::int64_t>>> slots_of(const ModelConfig& config,
                                                        const LayoutSpec& spec,
                                                        const Placement& placement) {
  const auto maps =
      physical_maps(config, spec, chosen(spec, "mtp", "keep") ? config.mtp_layers : 0);
  if (!maps) return failure(maps);
  const std::int64_t physical = config.experts.count + option(spec, "redundant");
  const Part& part = placement.part;
  // The first ranks have one more, where ranks do not divide the slots.
  const std::int64_t least = physical / part.count;
  const std::int64_t more = physical % part.count;
  const std::int64_t count = least + (part.index < more ? 1 : 0);
  const std::int64_t first = part.index * least + std::min(part.index, more);
  std::vector<std::vector<std::int64_t>> layers;
  for (const std::vector<std::int64_t>& map : *maps) {
    std::vector<std::int64_t>& slots = layers.emplace_back();
    for (std::int64_t i = 0; i < count && !map.empty(); ++i) {
      const std::int64_t slot = placement.round_robin ? part.index + i * part.count : first + i;
      slots.push_back(map[static_cast<std::size_t>(slot)]);
    }
  }
  return layers;
}

void add_mlp(RankBuilder& builder, const Rank& rank, const std::string& local,
             const std::string& mlp, std::int64_t width) {
  const IndexRange kept = rank.mlp.of(width);
  const auto merged = [&](const std::string& kind) {
    builder.stack(local + "gate_up_proj." + kind,
                  {{.tensor = builder.of(mlp + "gate_proj." + kind), .rows = kept},
                   {.tensor = builder.of(mlp + "up_proj." + kind), .rows = kept}});
  };
  merged("weight");
  if (rank.config.mlp_bias) merged("bias");
  builder.columns(local + "down_proj.weight", mlp + "down_proj.weight", kept);
  if (rank.config.mlp_bias) builder.whole(local + "down_proj.bias", mlp + "down_proj.bias");
}

void add_experts(RankBuilder& builder, const Rank& rank, const std::string& local,
                 std::int64_t index) {
  const std::string layer = layer_name(index);
  const ExpertsConfig& experts = rank.config.experts;
  const DecoderNames names = names_of(rank.config);
  const auto name = [](const std::string& prefix, std::string_view suffix) {
    return prefix + std::string(suffix);
  };
  const std::string router = std::string(names.router) + "weight";
  builder.whole(local + router, layer + router);
  if (experts.router_f32) builder.keep_last_in_f32();
  if (has_joint_experts(rank.config)) {
    const std::string bias = std::string(names.router) + "bias";
    builder.whole(local + bias, layer + bias);
    add_joint(builder, rank, name(local, rank.names.experts), index);
    return;
  }
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
  const std::vector<Slot> slots = slots_in(builder.index(), rank, index);
  // A rank beyond the last expert keeps none.
  if (!slots.empty()) add_stacked(builder, rank, name(local, rank.names.experts), slots);
}

}  // namespace weir::serving
