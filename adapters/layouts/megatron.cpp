// Megatron-Core with Transformer Engine: tensor, expert, expert tensor, pipeline and virtual
// pipeline parallelism, padded vocabulary, layers of MTP.
//
// Which rank is which. Megatron numbers its ranks in the order tp-cp-ep-dp-pp, the first fastest:
// in a stage of S ranks, rank s has tensor rank s % tp for attention, MLPs and vocabulary, and
// expert tensor rank s % etp and expert rank s / etp % ep for experts; the stage comes last. A
// replica here is the least run of a stage's ranks that holds everything once, lcm(tp x cp,
// etp x ep) of them, and the same of the other stages, stage after stage. So Megatron's global
// rank in a job of `dp` replicas with N ranks of a stage each is
//     replica x N + rank % N + (rank / N) x dp x N,
// and what Megatron calls its data parallel size is dp x N / (tp x cp). With ep > 1 a replica's
// ranks hold the same dense weights several times, and with cp > 1 all weights: a plan may serve
// from any.

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/megatron.hpp"

namespace weir {
namespace {

constexpr std::array options = {EngineOption{.name = "tp"},
                                EngineOption{.name = "cp"},
                                EngineOption{.name = "ep"},
                                EngineOption{.name = "etp", .like = "tp"},
                                EngineOption{.name = "pp"},
                                EngineOption{.name = "vpp"},
                                EngineOption{.name = "dp"},
                                EngineOption{.name = "vocab_multiple", .fallback = 128},
                                EngineOption{.name = "glu_interleave", .fallback = 0, .least = 0}};

/// Whether experts are one grouped module or one module each; whether layers of MTP are trained.
constexpr std::array<std::string_view, 2> expert_words = {"grouped", "sequential"};
constexpr std::array<std::string_view, 2> mtp_words = {"keep", "drop"};
constexpr std::array choices = {EngineChoice{.name = "experts", .words = expert_words},
                                EngineChoice{.name = "mtp", .words = mtp_words}};

constexpr std::array<std::string_view, 11> families = {
    "llama",   "qwen2",       "qwen3",          "qwen3_moe",  "glm4_moe", "deepseek_v3",
    "kimi_k2", "bailing_moe", "bailing_moe_v2", "qwen3_next", "gpt_oss"};

/// The decoder layers of one model chunk.
struct Chunk {
  IndexRange layers;
  bool first = false;
  bool last = false;
};

std::optional<std::string> objection(const ModelConfig& config, std::int64_t tp) {
  if (auto text = indivisible(config.num_attention_heads, tp, "query heads")) return text;
  if (config.latent.kv_lora_rank == 0) {
    if (auto text = indivisible(megatron::fused_rows(config), tp, "rows of fused QKV")) return text;
  }
  if (config.delta_net.full_attention_interval > 0) {
    const std::int64_t linear = config.delta_net.key_heads;
    if (auto text = indivisible(linear, tp, "heads of linear attention")) return text;
  }
  return indivisible_mlp(config, tp);
}

/// Ranks of a stage of one replica. Both products are at most 2^32, so that theirs still fits.
std::int64_t stage_ranks(const LayoutSpec& spec) {
  const std::int64_t dense = option(spec, "tp") * option(spec, "cp");
  const std::int64_t expert = option(spec, "etp") * option(spec, "ep");
  return dense / std::gcd(dense, expert) * expert;
}

Result<LayoutSize> size(const LayoutSpec& spec) {
  const std::int64_t pp = option(spec, "pp");
  const std::int64_t vpp = option(spec, "vpp");
  if (vpp > 1 && pp == 1) {
    return failure(ErrorCode::invalid, "vpp=" + std::to_string(vpp) +
                                           " cuts pipeline stages, and there is one stage only: "
                                           "give pp=2 or more, or leave vpp out");
  }
  if (auto fits = check_layer_numbers(spec, pp * vpp, "pp x vpp"); !fits) return failure(fits);
  const std::int64_t dense = option(spec, "tp") * option(spec, "cp");
  const std::int64_t expert = option(spec, "etp") * option(spec, "ep");
  const std::int64_t largest = std::max(dense, expert);
  return layout_size(spec, largest > option_max ? largest : stage_ranks(spec) * pp,
                     option(spec, "dp"));
}

Result<void> check_expert_options(const ModelConfig& config, const LayoutSpec& spec) {
  const ExpertsConfig& experts = config.experts;
  const std::int64_t ep = option(spec, "ep");
  const std::int64_t etp = option(spec, "etp");
  const std::int64_t interleave = option(spec, "glu_interleave");
  if (experts.count == 0) {
    return check_no_experts({{"ep", ep > 1},
                             {"etp", etp != option(spec, "tp")},
                             {"glu_interleave", interleave > 0},
                             {"experts", !chosen(spec, "experts", "grouped")}});
  }
  if (auto good = check_divides("ep", ep, experts.count, "experts"); !good) return good;
  if (has_joint_experts(config) && etp > 1) {
    return failure(ErrorCode::invalid, "etp=" + std::to_string(etp) +
                                           ": Megatron-Core does not cut experts with biases, as " +
                                           config.family + " has them: give etp=1");
  }
  if (auto good = check_divides("etp", etp, experts.intermediate_size, "rows of an expert");
      !good) {
    return good;
  }
  if (interleave == 0) return {};
  return check_divides("glu_interleave", interleave, experts.intermediate_size / etp,
                       "rows of a rank's expert");
}

/// Layers are dealt out to chunks in the order (vp 0, pp 0), (vp 0, pp 1), …, (vp 1, pp 0), ….
Chunk chunk_of(const ModelConfig& config, const LayoutSpec& spec, std::int64_t index) {
  const std::int64_t chunks = option(spec, "pp") * option(spec, "vpp");
  Chunk chunk{.layers = {}, .first = index == 0, .last = index == chunks - 1};
  if (spec.layers.empty()) {
    const std::int64_t each = rounded_up(config.num_hidden_layers, chunks) / chunks;
    chunk.layers = {.first = index * each,
                    .count = std::min(each, config.num_hidden_layers - index * each)};
  } else {
    const auto own = spec.layers.begin() + index;
    chunk.layers = {.first = std::accumulate(spec.layers.begin(), own, std::int64_t{0}),
                    .count = *own};
  }
  return chunk;
}

void add_layer(RankBuilder& builder, const megatron::Rank& rank, const std::string& local,
               std::int64_t index) {
  const megatron::Layer layer{.local = local, .canonical = layer_name(index)};
  if (has_delta_net(rank.config, index)) {
    megatron::add_delta_net(builder, rank, layer);
  } else if (rank.config.latent.kv_lora_rank > 0) {
    megatron::add_latent_attention(builder, rank, layer);
  } else {
    megatron::add_attention(builder, rank, layer);
  }
  if (has_experts(rank.config, index)) {
    megatron::add_experts(builder, rank, layer);
  } else {
    megatron::add_mlp(builder, rank, layer);
  }
}

/// Behind the last decoder layer. The embedding and the head that they use are the model's own.
void add_mtp(RankBuilder& builder, const megatron::Rank& rank, const std::string& prefix) {
  for (std::int64_t i = 0; i < rank.config.mtp_layers; ++i) {
    const std::int64_t index = rank.config.num_hidden_layers + i;
    const std::string local = prefix + "mtp.layers." + std::to_string(i) + ".";
    const std::string canonical = layer_name(index);
    builder.whole(local + "enorm.weight", canonical + "enorm.weight");
    builder.whole(local + "hnorm.weight", canonical + "hnorm.weight");
    builder.stack(local + "eh_proj.weight", {{.tensor = builder.of(canonical + "eh_proj.weight"),
                                              .rows = rank.tensor.of(rank.config.hidden_size)}});
    add_layer(builder, rank, local + "transformer_layer.", index);
    builder.whole(local + "final_layernorm.weight", canonical + "shared_head.norm.weight");
  }
}

/// Where stages do not divide the layers, all but the last have equally many and the last has the
/// rest, as by `--decoder-last-pipeline-num-layers`. Returns how many that are; 0 where it can't
/// be.
std::int64_t shorter_last_stage(const ModelConfig& config, const LayoutSpec& spec) {
  if (option(spec, "vpp") > 1) return 0;
  const std::int64_t pp = option(spec, "pp");
  const std::int64_t each = rounded_up(config.num_hidden_layers, pp) / pp;
  return std::max<std::int64_t>(0, config.num_hidden_layers - each * (pp - 1));
}

/// `--add-bias-linear` gives all linear layers biases, those of experts too, `--add-qkv-bias` only
/// query, key and value.
Result<void> check_biases(const ModelConfig& config) {
  const bool none = !config.qkv_bias && !config.output_bias && !config.mlp_bias;
  const bool qkv_alone = config.qkv_bias && !config.output_bias && !config.mlp_bias;
  const bool joint = has_joint_experts(config);
  const bool all =
      config.qkv_bias && config.output_bias && (config.experts.count > 0 ? joint : config.mlp_bias);
  if (all || (!joint && (none || qkv_alone))) return {};
  return failure(
      ErrorCode::invalid,
      "Megatron-Core has biases in all linear layers, in query, key and value alone, or "
      "in none, and this model's are others (attention_bias, mlp_bias): use hf or fsdp2");
}

Result<void> check_model(const ModelConfig& config, const LayoutSpec& spec, bool mtp) {
  const std::int64_t tp = option(spec, "tp");
  const auto tp_objection = [&](std::int64_t other) { return objection(config, other); };
  if (auto fits = check_tp(config.num_attention_heads, tp, tp_objection); !fits) return fits;
  if (auto fits = check_expert_options(config, spec); !fits) return fits;
  if (auto fits = check_biases(config); !fits) return fits;
  if (mtp) {
    if (auto fits = check_divides("tp", tp, config.hidden_size, "rows of eh_proj"); !fits) {
      return fits;
    }
  }
  const std::int64_t chunks = option(spec, "pp") * option(spec, "vpp");
  if (spec.layers.empty() && shorter_last_stage(config, spec) > 0) return {};
  return check_layers(config, spec.layers, chunks, "pp x vpp");
}

Result<RankLayout> lay_out_rank(const TensorIndex& index, const LayoutSpec& spec,
                                std::uint32_t number) {
  const ModelConfig& config = index.model().config;
  const std::int64_t tp = option(spec, "tp");
  const std::int64_t etp = option(spec, "etp");
  const std::int64_t ep = option(spec, "ep");
  const std::int64_t pp = option(spec, "pp");
  const std::int64_t vpp = option(spec, "vpp");
  const bool mtp = config.mtp_layers > 0 && chosen(spec, "mtp", "keep");
  if (auto fits = check_model(config, spec, mtp); !fits) return failure(fits);

  const std::int64_t in_stage = number % stage_ranks(spec);
  const std::int64_t stage = number / stage_ranks(spec);
  const megatron::Rank rank{.config = config,
                            .tensor = {.count = tp, .index = in_stage % tp},
                            .expert = {.count = ep, .index = in_stage / etp % ep},
                            .expert_tensor = {.count = etp, .index = in_stage % etp},
                            .glu_interleave = option(spec, "glu_interleave"),
                            .sequential_experts = chosen(spec, "experts", "sequential")};
  const std::int64_t padded = rounded_up(config.vocab_size, option(spec, "vocab_multiple") * tp);
  const std::string_view embedding = names_of(config).embedding;
  RankBuilder builder(index, spec.dtype);
  for (std::int64_t vp = 0; vp < vpp; ++vp) {
    const Chunk chunk = chunk_of(config, spec, vp * pp + stage);
    const std::string prefix = vpp > 1 ? "model" + std::to_string(vp) + "." : "";
    // Layers of MTP embed tokens too, on the last stage.
    if (chunk.first || (chunk.last && mtp)) {
      builder.padded_rows(prefix + "embedding.word_embeddings.weight", embedding,
                          rank.tensor.of(padded));
    }
    for (std::int64_t layer = 0; layer < chunk.layers.count; ++layer) {
      add_layer(builder, rank, prefix + "decoder.layers." + std::to_string(layer) + ".",
                chunk.layers.first + layer);
    }
    if (!chunk.last) continue;
    builder.whole(prefix + "decoder.final_layernorm.weight", final_norm_name);
    if (mtp) add_mtp(builder, rank, prefix);
    // With tied embeddings the last stage keeps a copy of its own of the first stage's rows.
    const bool tied = config.tie_word_embeddings;
    if (!tied || pp > 1) {
      builder.padded_rows(prefix + "output_layer.weight", tied ? embedding : head_name,
                          rank.tensor.of(padded));
    }
  }
  return std::move(builder).finish();
}

}  // namespace

constexpr Engine megatron_engine{.name = "megatron",
                                 .options = options,
                                 .choices = choices,
                                 .takes_layers = true,
                                 .families = families,
                                 .size = size,
                                 .lay_out = lay_out_rank};

}  // namespace weir
