#pragma once
// One layer of Megatron-Core's decoder, as lists of rows.

#include <cstdint>
#include <string>

#include "adapters/oracle/internal/decoder.hpp"

namespace weir::oracle::internal {

struct MegatronRank {
  std::int64_t tp = 1;
  std::int64_t tp_rank = 0;
  std::int64_t ep = 1;
  std::int64_t ep_rank = 0;
  std::int64_t etp = 1;
  std::int64_t etp_rank = 0;
  std::int64_t glu_block = 0;  ///< 0: gate and up of experts do not alternate.
  bool sequential = false;
};

/// `hf` and `local` are what the layer's names begin with.
void write_megatron_layer(const ModelConfig& config, const MegatronRank& rank, std::int64_t index,
                          const std::string& local, RankWriter& writer);

}  // namespace weir::oracle::internal
