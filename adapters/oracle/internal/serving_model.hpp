#pragma once
// All of a decoder on one rank of vLLM or SGLang, as lists of rows.

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/oracle/internal/serving_layer.hpp"

namespace weir::oracle::internal {

/// One rank's stage, and how it shares in what is not in a layer.
struct ServingStage {
  ServingRank rank;
  Share embedding;
  Share head;
  std::vector<std::int64_t> layers_of_stages;
  std::int64_t stage = 0;
  std::string table;  ///< What the engine calls the embedding, if not as the checkpoint does.
  bool mtp = false;
  std::string mtp_block;              ///< What a layer of MTP calls its decoder layer.
  std::string last_stages_own_table;  ///< What the last stage calls its copy of tied embeddings.
};

void write_serving_model(const ModelConfig& config, const ServingStage& stage, RankWriter& writer);

/// That `layers=`, if given, has a number for each stage, which add up.
bool layers_fit(const ModelConfig& config, const LayoutSpec& spec, std::int64_t stages,
                RankWriter& writer);

}  // namespace weir::oracle::internal
