// One rank of an engine that generates, layer by layer.

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "adapters/layouts/internal/serving.hpp"

namespace weir::serving {
namespace {

/// `DEFAULT_VOCAB_PADDING_SIZE` of both engines.
constexpr std::int64_t vocabulary_multiple = 64;

void add_layer(RankBuilder& builder, const Rank& rank, const std::string& local,
               std::int64_t index) {
  const std::string layer = layer_name(index);
  if (has_delta_net(rank.config, index)) {
    add_delta_net(builder, rank, local, layer);
  } else if (rank.config.latent.kv_lora_rank > 0) {
    add_latent_attention(builder, rank, local, layer);
  } else {
    add_attention(builder, rank, local, layer);
  }
  if (has_experts(rank.config, index)) {
    add_experts(builder, rank, local, index);
  } else {
    add_mlp(builder, rank, local + "mlp.", layer + "mlp.", rank.config.intermediate_size);
  }
  for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
    builder.whole(local + norm, layer + norm);
  }
}

/// A draft model of its own, which shares embedding and head with the model.
void add_mtp(RankBuilder& builder, const Rank& rank, std::int64_t index) {
  const std::string layer = layer_name(index);
  for (const char* name :
       {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight"}) {
    builder.whole(layer + name, layer + name);
  }
  add_layer(builder, rank, layer + std::string(rank.names.mtp_block), index);
}

}  // namespace

std::int64_t padded_vocabulary(const ModelConfig& config) noexcept {
  return rounded_up(config.vocab_size, vocabulary_multiple);
}

Result<void> check_biases(const ModelConfig& config, const Biases& biases) {
  const auto without = [&](const char* what) {
    return failure(ErrorCode::invalid,
                   std::string(biases.engine) + " leaves out the bias of " + what + " of a " +
                       config.family + ": use a model without it, or hf or fsdp2, which keep it");
  };
  const auto& output = biases.output;
  if (config.output_bias && std::ranges::find(output, config.family) == output.end()) {
    return without("o_proj");
  }
  // Both engines build it without.
  if (config.qkv_bias && config.family == "qwen3_next") return without("q, k and v");
  if (config.mlp_bias && !biases.mlp) return without("the MLP");
  return {};
}

Result<IndexRange> stage_layers(const ModelConfig& config, const LayoutSpec& spec,
                                std::int64_t stage, const std::vector<std::int64_t>& spare) {
  const std::int64_t stages = option(spec, "pp");
  std::vector<std::int64_t> counts = spec.layers;
  if (counts.empty()) {
    counts.assign(static_cast<std::size_t>(stages), config.num_hidden_layers / stages);
    for (std::int64_t i = 0; i < config.num_hidden_layers % stages; ++i) {
      ++counts[static_cast<std::size_t>(spare[static_cast<std::size_t>(i)])];
    }
  } else if (auto fits = check_layers(config, counts, stages, "pp"); !fits) {
    return failure(fits);
  }
  const auto own = counts.begin() + stage;
  return IndexRange{.first = std::accumulate(counts.begin(), own, std::int64_t{0}), .count = *own};
}

Result<RankLayout> lay_out(const TensorIndex& index, const LayoutSpec& spec, const Rank& rank) {
  const ModelConfig& config = rank.config;
  const std::string embedding(names_of(config).embedding);
  const std::string local_embedding =
      has_joint_experts(config) ? std::string(rank.names.joint_embedding) : embedding;
  const std::string head(head_name);
  const std::int64_t vocabulary = padded_vocabulary(config);
  const bool tied = config.tie_word_embeddings;
  RankBuilder builder(index, spec.dtype);
  // Tied embeddings are one tensor here: lm_head.weight is an alias, and the model says so.
  const bool copy = rank.last_stage && !rank.first_stage && tied;
  const bool embeds = copy && !rank.tied_copy_is_head;
  if (rank.first_stage || embeds || (rank.last_stage && rank.mtp)) {
    builder.padded_rows(local_embedding, embedding, rank.embedding.of(vocabulary));
  }
  for (std::int64_t layer = rank.layers.first; layer < rank.layers.end(); ++layer) {
    add_layer(builder, rank, layer_name(layer), layer);
  }
  if (rank.last_stage) builder.whole(std::string(final_norm_name), final_norm_name);
  if (rank.last_stage && !tied) builder.padded_rows(head, head, rank.head.of(vocabulary));
  if (copy && rank.tied_copy_is_head) {
    builder.padded_rows(head, embedding, rank.head.of(vocabulary));
  }
  for (std::int64_t i = 0; i < config.mtp_layers && rank.mtp && rank.last_stage; ++i) {
    add_mtp(builder, rank, config.num_hidden_layers + i);
  }
  return std::move(builder).finish();
}

}  // namespace weir::serving
