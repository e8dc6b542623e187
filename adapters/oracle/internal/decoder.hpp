#pragma once
// What a decoder has, as lists of rows: the same whatever the layout, and whatever its family calls
// it. Each list is whole: layouts cut them.

#include <string>

#include "adapters/oracle/internal/rank_writer.hpp"

namespace weir::oracle::internal {

/// That the model is of a family whose rules are known and makes sense: heads in whole groups, and
/// just the tensors that its config calls for.
bool require_decoder(const Model& model, RankWriter& writer);

bool is_latent(const ModelConfig& config);
bool is_bailing(const ModelConfig& config);
bool is_next(const ModelConfig& config);
bool is_gpt_oss(const ModelConfig& config);
/// Of Qwen3-Next, all layers but every fourth one or so.
bool is_linear(const ModelConfig& config, std::int64_t layer);
/// Layers with a number from `first_layer` on have experts, those of MTP too.
bool is_sparse(const ModelConfig& config, std::int64_t layer);

std::string layer_of(std::int64_t index);
/// "self_attn." and the like, behind a layer's name.
std::string attention_of(const ModelConfig& config);
std::string embedding_of(const ModelConfig& config);
std::string score_bias_of(const ModelConfig& config);
/// Behind "mlp.".
std::string shared_of(const ModelConfig& config);

/// All rows of query, key and value; `kind` is "weight" or "bias".
struct QkvRows {
  Rows q;
  Rows k;
  Rows v;
};
QkvRows qkv_rows(const ModelConfig& config, const std::string& layer, const std::string& kind,
                 RankWriter& writer);

/// All rows of the three matrices of an MLP of that width, whose names begin with `mlp`.
struct MlpRows {
  Rows gate;
  Rows up;
  Rows down;
};
MlpRows mlp_rows(const ModelConfig& config, const std::string& mlp, std::int64_t width,
                 RankWriter& writer);
/// Of gpt-oss, too, whose experts lie behind one another in one tensor, columns before rows and
/// gate beside up: a row's elements are far apart there.
MlpRows expert_rows(const ModelConfig& config, const std::string& layer, std::int64_t expert,
                    RankWriter& writer);
/// The biases of an expert of gpt-oss.
MlpRows expert_bias_rows(const ModelConfig& config, const std::string& layer, std::int64_t expert,
                         RankWriter& writer);

}  // namespace weir::oracle::internal
