#include "adapters/layouts/internal/packed_experts.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace weir {

Result<void> check_packing(const Model& model, const LayoutSpec& spec) {
  if (!chosen(spec, "experts", "packed")) return {};
  if (model.config.experts.count > 0 && !has_joint_experts(model.config)) return {};
  return failure(ErrorCode::invalid,
                 "experts=packed is for a model whose experts are tensors of their own, and this "
                 "one has none: leave it out");
}

bool is_of_expert(std::string_view name) {
  return name.find(".mlp.experts.") != std::string_view::npos;
}

void add_packed_experts(RankBuilder& builder, const ModelConfig& config, IndexRange experts) {
  const std::int64_t width = config.experts.intermediate_size;
  for (std::int64_t index = 0; index < config.num_hidden_layers + config.mtp_layers; ++index) {
    if (!has_experts(config, index)) continue;
    const std::string layer = layer_name(index);
    const std::span<const GatedMlp> all = builder.index().experts(layer);
    std::vector<RowRun> gate_up;
    std::vector<ColumnRun> down;
    // A rank without experts still has the shapes of the rest, which expert 0 gives.
    const std::int64_t last = std::max<std::int64_t>(experts.end(), experts.first + 1);
    for (std::int64_t i = experts.first; i < last; ++i) {
      const GatedMlp& expert = all[experts.count == 0 ? 0 : static_cast<std::size_t>(i)];
      gate_up.push_back({.tensor = expert.gate, .rows = {.count = width}});
      gate_up.push_back({.tensor = expert.up, .rows = {.count = width}});
      down.push_back({.tensor = expert.down, .columns = {.count = width}});
    }
    builder.stack_parts(layer + "mlp.experts.gate_up_proj", std::ssize(down), gate_up);
    if (experts.count == 0) builder.empty_last();
    builder.stack_columns(layer + "mlp.experts.down_proj", down);
    if (experts.count == 0) builder.empty_last();
  }
}

}  // namespace weir
