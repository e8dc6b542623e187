#pragma once
// One layer of a decoder as vLLM and SGLang keep it, as lists of rows.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adapters/oracle/internal/decoder.hpp"

namespace weir::oracle::internal {

/// Part `index` of `count`.
struct Share {
  std::int64_t count = 1;
  std::int64_t index = 0;
};

struct ServingRank {
  Share attention;
  Share mlp;
  Share expert;  ///< Of each expert's rows.
  /// The expert in each slot of this rank, by layer.
  std::map<std::int64_t, std::vector<std::int64_t>> slots;
  bool up_first = false;
  bool shared_in_slots = false;
  std::string experts;      ///< What the names of experts begin with, behind "mlp.experts.".
  std::string latent_down;  ///< What the engine calls q_a and kv_a in one.
  /// Where full attention is beside linear attention: behind the layer's name.
  std::string hybrid_attention = "self_attn.";
  std::string gpt_oss_attention = "self_attn.";
  std::string gpt_oss_bias = "bias";  ///< Behind "w13_" and "w2_".
};

void write_serving_layer(const ModelConfig& config, const ServingRank& rank, std::int64_t index,
                         const std::string& local, RankWriter& writer);

/// Whether attention can be shared among so many ranks.
bool heads_fit(const ModelConfig& config, std::int64_t ranks, RankWriter& writer);
/// Whether plain MLPs, shared experts and the padded vocabulary can.
bool rows_fit(const ModelConfig& config, std::int64_t ranks, RankWriter& writer);

/// That nothing is asked for that engines do not do with gpt-oss.
bool gpt_oss_fits(const ModelConfig& config, const LayoutSpec& spec, bool up_first,
                  RankWriter& writer);

/// The experts in all physical slots of all ranks, in order, for each layer that has experts: as
/// `physical=` says, or each expert and then the first ones again. Nothing where that is not a map.
std::optional<std::map<std::int64_t, std::vector<std::int64_t>>> all_slots(
    const ModelConfig& config, const LayoutSpec& spec, bool mtp, RankWriter& writer);

}  // namespace weir::oracle::internal
