#pragma once
// What engines that generate have in common: heads cut whole, merged [Q; K; V] and [gate; up],
// experts in two stacked tensors. They differ in who keeps what, and in a few names.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"
#include "adapters/layouts/internal/tensor_parallel.hpp"

namespace weir::serving {

inline constexpr std::array options = {
    EngineOption{.name = "tp"}, EngineOption{.name = "pp"}, EngineOption{.name = "dp"},
    EngineOption{.name = "ep"}, EngineOption{.name = "redundant", .fallback = 0, .least = 0}};
/// Some kernels (FlashInfer's) want up before gate.
inline constexpr std::array<std::string_view, 2> gate_up_words = {"w13", "w31"};
inline constexpr std::array<std::string_view, 2> mtp_words = {"drop", "keep"};
inline constexpr std::array<std::string_view, 11> families = {
    "llama",   "qwen2",       "qwen3",          "qwen3_moe",  "glm4_moe", "deepseek_v3",
    "kimi_k2", "bailing_moe", "bailing_moe_v2", "qwen3_next", "gpt_oss"};

/// Names that engines do not share.
struct Names {
  std::string_view experts;       ///< Behind a layer's name: where w13_weight is.
  std::string_view latent_down;   ///< Behind "self_attn.": [q_a; kv_a] in one.
  std::string_view mtp_block;     ///< Behind a layer of MTP's name: its decoder layer.
  std::string_view absorbed_key;  ///< Behind "self_attn.": what is derived from kv_b_proj.
  std::string_view absorbed_value;
  /// Behind a layer's name: full attention in models that have linear attention too.
  std::string_view hybrid_attention = "self_attn.";
  /// Of gpt-oss: the embedding, attention behind a layer's name, and what the names of the biases
  /// of experts have behind "w13_" and "w2_".
  std::string_view joint_embedding = "model.embed_tokens.weight";
  std::string_view joint_attention = "self_attn.";
  std::string_view joint_bias = "bias";
};

/// How a rank shares in a model, which must outlive it.
struct Rank {
  const ModelConfig& config;
  Names names;
  Part attention;    ///< Of heads.
  Part embedding;    ///< Of the padded vocabulary, where tokens come in.
  Part head;         ///< Of the padded vocabulary, where logits go out.
  Part mlp;          ///< Of rows of plain MLPs and shared experts.
  Part expert_rows;  ///< Of the rows of each expert.
  /// The expert in each local slot, for every layer of experts from the first one on.
  std::vector<std::vector<std::int64_t>> slots;
  bool up_first = false;      ///< w13 is [up; gate].
  bool fused_shared = false;  ///< Shared experts sit in further slots behind all others.
  IndexRange layers;
  bool first_stage = true;
  bool last_stage = true;
  bool mtp = false;  ///< Whether layers of MTP are kept, on the last stage.
  /// A last stage that is not the first has a copy of tied embeddings: as the head, or else as the
  /// embedding.
  bool tied_copy_is_head = false;
};

/// Rows of the vocabulary when padded as both engines do.
std::int64_t padded_vocabulary(const ModelConfig& config) noexcept;

/// The objection to cutting attention into `tp` parts: query heads whole, and key-value heads
/// whole or, where there are fewer than ranks, each on equally many neighbouring ranks.
std::optional<std::string> head_objection(const ModelConfig& config, std::int64_t tp,
                                          const char* what = "tp");

/// Which biases an engine's own classes have, whatever the checkpoint has.
struct Biases {
  const char* engine;
  std::span<const std::string_view>
      output;        ///< Families with a bias of o_proj, where they have it.
  bool mlp = false;  ///< Of llama.
};
/// Error (`invalid`): the model has a bias that the engine would leave out.
Result<void> check_biases(const ModelConfig& config, const Biases& biases);

/// The experts in a rank's slots, of `redundant` + count physical ones that are dealt out to
/// `part`.
struct Placement {
  Part part;
  bool round_robin = false;
};
/// Errors: those of `physical_maps`.
Result<std::vector<std::vector<std::int64_t>>> slots_of(const ModelConfig& config,
                                                        const LayoutSpec& spec,
                                                        const Placement& placement);

/// Error (`invalid`): options that engines do not have for experts that are joint in one tensor.
Result<void> check_joint_experts(const ModelConfig& config, const LayoutSpec& spec);

/// The layers of a pipeline stage: as `layers=` says or, where that is empty, evenly, with those
/// that are left over going to `spare` (stages, in the order in which they take one each).
/// Error (`invalid`): `layers=` does not sum to the model's layers.
Result<IndexRange> stage_layers(const ModelConfig& config, const LayoutSpec& spec,
                                std::int64_t stage, const std::vector<std::int64_t>& spare);

/// What the rank keeps.
Result<RankLayout> lay_out(const TensorIndex& index, const LayoutSpec& spec, const Rank& rank);

/// Attention of one layer, whose names begin with `local` and, canonically, `layer`.
void add_attention(RankBuilder& builder, const Rank& rank, const std::string& local,
                   const std::string& layer);
void add_latent_attention(RankBuilder& builder, const Rank& rank, const std::string& local,
                          const std::string& layer);
/// Gated DeltaNet, whose heads are cut as those of attention are.
void add_delta_net(RankBuilder& builder, const Rank& rank, const std::string& local,
                   const std::string& layer);
/// [gate; up] and down of the MLP whose names begin with `local` and, canonically, `mlp`.
void add_mlp(RankBuilder& builder, const Rank& rank, const std::string& local,
             const std::string& mlp, std::int64_t width);
/// Router, experts and shared experts of the layer with that number.
void add_experts(RankBuilder& builder, const Rank& rank, const std::string& local,
                 std::int64_t index);

}  // namespace weir::serving
