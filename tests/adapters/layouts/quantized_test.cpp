#include <catch2/catch_test_macros.hpp>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "runtime/conversion_sides.hpp"
#include "runtime/planner.hpp"
#include "tests/adapters/layouts/small_models.hpp"

// Goal: where an engine keeps codes, the scale of each local block is the scale of the whole
// tensor's block that lies there; and layouts that cut blocks are refused.
// Method: every element of every local tensor is named by its place in the canonical tensor, once
// through the codes' pieces and once through the scales'; names and shapes by hand for one rank.

namespace weir {
namespace {

/// Wide enough to have several blocks along each dimension.
ModelConfig wide_config() {
  ModelConfig config = llama_config(4, 2);
  config.head_dim = 128;
  config.hidden_size = 192;  // Its last block is half a block.
  config.intermediate_size = 512;
  config.vocab_size = 100;
  config.num_hidden_layers = 1;
  return config;
}

ModelConfig expert_config() {
  ModelConfig config = wide_config();
  config.family = "qwen3_moe";
  config.qk_norm = true;
  config.experts.count = 2;
  config.experts.intermediate_size = 256;
  return config;
}

std::string error_of(const Model& model, const std::string& spec) {
  const auto layout = Layout::of(model, spec_of(spec));
  if (!layout) return layout.error().text;
  for (std::uint32_t rank = 0; rank < layout->size().ranks; ++rank) {
    const auto kept = layout->rank(rank);
    if (!kept) return kept.error().text;
  }
  return "";
}

RankLayout rank_of(const Layout& layout, std::uint32_t rank) {
  auto kept = layout.rank(rank);
  if (!kept) FAIL(kept.error().text);
  return *std::move(kept);
}

/// Every `step`th local element to its canonical one: tensor, row (of all leading dimensions),
/// column.
using Elements =
    std::unordered_map<std::int64_t, std::tuple<std::uint32_t, std::int64_t, std::int64_t>>;

Elements elements_of(const LocalTensor& local, std::int64_t step) {
  Elements elements;
  for (const LocalPiece& piece : local.pieces) {
    const int rank = piece.box.extent.rank();
    for (std::int64_t i = 0; i < element_count(piece.box.extent); i += step) {
      std::int64_t rest = i;
      std::int64_t place = piece.offset;
      Dims at = piece.box.start;
      for (int dim = rank - 1; dim >= 0; --dim) {
        at[dim] += rest % piece.box.extent[dim];
        place += rest % piece.box.extent[dim] * piece.stride[dim];
        rest /= piece.box.extent[dim];
      }
      const std::tuple element(piece.tensor, at[rank - 2], at[rank - 1]);
      if (!elements.emplace(place, element).second) FAIL("two elements at " << place);
    }
  }
  return elements;
}

/// That each local block of codes has its own whole block's scale. Rows of 1 where channels have
/// scales.
void check_scales(const Model& model, const LocalTensor& codes, const LocalTensor& scales) {
  CAPTURE(codes.name);
  const Elements scale_at = elements_of(scales, 1);
  const std::int64_t columns = codes.shape.back();
  const std::int64_t rows = codes.shape[codes.shape.size() - 2];
  for (const auto& [place, element] : elements_of(codes, 61)) {
    const auto& [tensor, row, column] = element;
    const Encoding& encoding = model.encodings.at(model.tensors[tensor].encoding - 1);
    const Dims block = encoding.block;
    const std::int64_t tall = block[block.rank() - 2];
    const std::int64_t wide = block[block.rank() - 1] == 0 ? 1 << 20 : block[block.rank() - 1];
    const std::int64_t of_matrix = scales.shape[scales.shape.size() - 2] * scales.shape.back();
    const std::int64_t local = place / (rows * columns) * of_matrix +
                               place / columns % rows / tall * scales.shape.back() +
                               place % columns / wide;
    const auto found = scale_at.find(local);
    if (found == scale_at.end()) FAIL("no scale for " << place);
    const auto& [scale_tensor, scale_row, scale_column] = found->second;
    const bool right = scale_row == row / tall && scale_column == column / wide &&
                       model.tensors[scale_tensor].name.ends_with(encoding.scales_suffix) &&
                       model.tensors[scale_tensor].name.starts_with(model.tensors[tensor].name);
    if (!right) FAIL("another block's scale for " << place);
  }
}

std::vector<Manifest> manifests_of(const Model& model, const std::string& spec, Side side) {
  auto layout = Layout::of(model, spec_of(spec));
  if (!layout) FAIL(layout.error().text);
  std::vector<Manifest> manifests;
  for (std::uint32_t rank = 0; rank < layout->size().ranks; ++rank) {
    manifests.push_back(place(layout->model(), rank_of(*layout, rank), {side, 0, rank},
                              layout->size().ranks, RegionKind::host_private)
                            .manifest);
  }
  return manifests;
}

}  // namespace

TEST_CASE("codes have scales of their blocks behind them, under the engine's names",
          "[adapters][layouts][quant]") {
  const Model model = small_model(wide_config());
  auto layout = Layout::of(model, spec_of("vllm:tp=2,quant=fp8_block"));
  REQUIRE(layout);
  std::vector<std::string> lines;
  for (const LocalTensor& local : rank_of(*layout, 1).tensors) {
    std::string line = local.name + " " + std::string(name_of(local.type));
    for (const std::int64_t extent : local.shape) line += " " + std::to_string(extent);
    lines.push_back(line);
  }
  REQUIRE(lines == std::vector<std::string>{
                       "model.embed_tokens.weight bf16 64 192",
                       "model.layers.0.self_attn.qkv_proj.weight f8_e4m3 512 192",
                       "model.layers.0.self_attn.qkv_proj.weight_scale_inv f32 4 2",
                       "model.layers.0.self_attn.o_proj.weight f8_e4m3 192 256",
                       "model.layers.0.self_attn.o_proj.weight_scale_inv f32 2 2",
                       "model.layers.0.mlp.gate_up_proj.weight f8_e4m3 512 192",
                       "model.layers.0.mlp.gate_up_proj.weight_scale_inv f32 4 2",
                       "model.layers.0.mlp.down_proj.weight f8_e4m3 192 256",
                       "model.layers.0.mlp.down_proj.weight_scale_inv f32 2 2",
                       "model.layers.0.input_layernorm.weight bf16 192",
                       "model.layers.0.post_attention_layernorm.weight bf16 192",
                       "model.norm.weight bf16 192",
                       "lm_head.weight bf16 64 192",
                   });
}

TEST_CASE("the scale of a local block is that of the whole tensor's block there",
          "[adapters][layouts][quant]") {
  for (const ModelConfig& config : {wide_config(), expert_config()}) {
    const Model model = model_with(config);
    for (const std::string spec : {"hf:", "vllm:tp=2,", "sglang:tp=2,", "megatron:tp=2,"}) {
      for (const std::string quant : {"fp8_block", "fp8_channel"}) {
        CAPTURE(config.family, spec, quant);
        auto layout = Layout::of(model, spec_of(spec + "quant=" + quant));
        REQUIRE(layout);
        std::size_t checked = 0;
        for (std::uint32_t rank = 0; rank < layout->size().ranks; ++rank) {
          const RankLayout kept = rank_of(*layout, rank);
          for (std::size_t i = 0; i + 1 < kept.tensors.size(); ++i) {
            if (kept.tensors[i].type != ElementType::f8_e4m3) continue;
            check_scales(layout->model(), kept.tensors[i], kept.tensors[i + 1]);
            ++checked;
          }
        }
        REQUIRE(checked >= 4);
      }
    }
  }
}

TEST_CASE("whatever trains, quantized engines get all that they need",
          "[adapters][layouts][quant]") {
  const Model model = model_with(expert_config());
  for (const std::string train : {"megatron:tp=2", "megatron:tp=4,ep=2,dtype=f32", "fsdp2:dp=3",
                                  "hf", "megatron:tp=2,quant=fp8_channel"}) {
    for (const std::string rollout :
         {"vllm:tp=2,quant=fp8_block", "sglang:tp=2,ep=2,quant=fp8_channel",
          "vllm:tp=4,quant=int8_channel", "hf:quant=fp8_block_ue8m0", "vllm:tp=2"}) {
      const bool both = train.ends_with("channel") && rollout.find("quant") != std::string::npos;
      if (both && !rollout.ends_with("fp8_channel")) continue;
      CAPTURE(train, rollout);
      const auto sides = choose_conversion_sides(manifests_of(model, train, Side::trainer),
                                                 manifests_of(model, rollout, Side::rollout));
      if (!sides) FAIL(sides.error().text);
      std::vector<Manifest> all = sides->published;
      all.insert(all.end(), sides->received.begin(), sides->received.end());
      const auto plan = make_plan(all);
      if (!plan) FAIL(plan.error().text);
    }
  }
}

TEST_CASE("from codes of a checkpoint come codes, or values where dtype asks for them",
          "[adapters][layouts][quant]") {
  Model model = *quantized(model_with(wide_config()), WeightQuant::fp8_block);
  model.config = {};  // As that of a checkpoint with a `quantization_config` is.
  const auto layout = Layout::of(model, spec_of("hf:dtype=f32"));
  REQUIRE(layout);
  const Model& values = layout->model();
  REQUIRE(values.encodings.empty());
  for (const LocalTensor& local : rank_of(*layout, 0).tensors) {
    CAPTURE(local.name);
    REQUIRE(local.type == ElementType::f32);
    REQUIRE_FALSE(local.name.ends_with("_scale_inv"));
  }
  for (const std::string rollout : {"hf", "hf:dtype=bf16", "fsdp2:dp=3,dtype=f32"}) {
    CAPTURE(rollout);
    const auto sides = choose_conversion_sides(manifests_of(model, "hf", Side::trainer),
                                               manifests_of(model, rollout, Side::rollout));
    if (!sides) FAIL(sides.error().text);
    std::vector<Manifest> all = sides->published;
    all.insert(all.end(), sides->received.begin(), sides->received.end());
    const auto plan = make_plan(all);
    if (!plan) FAIL(plan.error().text);
  }
  const auto alone = lay_out(model, spec_of("hf:dtype=f32"), 0);
  REQUIRE_FALSE(alone);
  REQUIRE(alone.error().text ==
          "hf:dtype=f32 has values where the model has codes: lay it out by Layout::of");
}

TEST_CASE("layouts that cut blocks are refused by local tensor", "[adapters][layouts][quant]") {
  const Model model = small_model(wide_config());
  REQUIRE(error_of(model, "vllm:tp=4,quant=fp8_channel").empty());
  REQUIRE(error_of(model, "fsdp2:dp=3,quant=fp8_block")
              .starts_with("fsdp2:dp=3,quant=fp8_block: model.layers.0.mlp.down_proj.weight has "
                           "[0:64, 0:512] of model.layers.0.mlp.down_proj.weight 192x512 at row "
                           "0, column 0, which cuts blocks of 128x128: use other parallel degrees, "
                           "another quant, or none"));
  ModelConfig narrow = wide_config();
  narrow.head_dim = 64;
  REQUIRE(error_of(small_model(narrow), "vllm:tp=2,quant=fp8_block")
              .find("qkv_proj.weight has [0:64, 0:192] of model.layers.0.self_attn.k_proj.weight"
                    " 128x192 at row 128, column 0") != std::string::npos);
}

TEST_CASE("quant is one of the known ones, once, and asks for a layout with its own model",
          "[adapters][layouts][quant]") {
  const auto error = [](const std::string& text) {
    const auto spec = parse_layout(text);
    REQUIRE_FALSE(spec);
    return spec.error().text;
  };
  REQUIRE(error("vllm:quant=fp4") ==
          "quant=fp4: use fp8_block, fp8_block_ue8m0, fp8_channel or int8_channel");
  REQUIRE(error("hf:quant=fp8_block,quant=fp8_block") ==
          "option quant is given twice: leave one out");
  REQUIRE(text_of(spec_of("vllm:quant=fp8_block,tp=2")) == "vllm:tp=2,quant=fp8_block");
  const Model model = small_model(wide_config());
  const auto alone = lay_out(model, spec_of("hf:quant=fp8_block"), 0);
  REQUIRE_FALSE(alone);
  REQUIRE(alone.error().text.ends_with("lay it out by Layout::of"));
}

}  // namespace weir
