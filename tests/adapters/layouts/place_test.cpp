#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: local tensors become one region and a manifest that any planner accepts. Method: offsets
// and strides in bytes worked by hand for small layouts.

namespace weir {

namespace {

constexpr ShardId shard{.side = Side::rollout, .replica = 3, .rank = 1};

/// `place` as a rank of `ranks`; requires that the manifest is one that a peer would accept.
PlacedShard place_checked(const Model& model, const RankLayout& layout, std::uint32_t ranks,
                          RegionKind kind = RegionKind::host_private) {
  PlacedShard placed = place(model, layout, shard, ranks, kind);
  const auto checked = check(placed.manifest);
  INFO((checked ? "" : checked.error().text));
  REQUIRE(checked.has_value());
  return placed;
}

}  // namespace

TEST_CASE("bytes of a local tensor include its padding", "[layouts]") {
  LocalTensor local;
  local.type = ElementType::f32;
  local.shape = {128, 3};
  REQUIRE(bytes_of(local) == 1536);
  local.shape = {};
  REQUIRE(bytes_of(local) == 4);
  local.shape = {0, 1024};
  REQUIRE(bytes_of(local) == 0);
}

TEST_CASE("tensors are placed in order, each aligned to 256 bytes", "[layouts]") {
  const Model model{.config = {},
                    .tensors = {{.name = "a", .type = ElementType::u8, .shape = {3}},
                                {.name = "b", .type = ElementType::bf16, .shape = {8, 16}},
                                {.name = "c", .type = ElementType::f32, .shape = {}}},
                    .aliases = {{.name = "d", .of = "b"}}};
  const PlacedShard placed =
      place_checked(model, rank_of(model, "hf:dtype=f32", 0), 4, RegionKind::host_shared);
  // 3 bytes, then 8 * 16 * 4 = 512, then 4.
  REQUIRE(placed.offsets == std::vector<std::uint64_t>{0, 256, 768});
  REQUIRE(placed.region_bytes == 1024);
  const Manifest& manifest = placed.manifest;
  REQUIRE(manifest.shard == shard);
  REQUIRE(manifest.replica_ranks == 4);
  REQUIRE(manifest.inventory == inventory_of(model));
  REQUIRE(manifest.inventory.tensor_count == 3);
  REQUIRE(manifest.aliases == model.aliases);
  REQUIRE(manifest.regions ==
          std::vector<RegionInfo>{{.kind = RegionKind::host_shared, .bytes = 1024, .tickets = {}}});
  REQUIRE(manifest.tensors.at(1) ==
          Tensor{.name = "b", .type = ElementType::f32, .shape = {8, 16}});
  REQUIRE(
      manifest.pieces ==
      std::vector<Piece>{{.tensor = 0, .offset = 0, .box = {{0}, {3}}, .stride = {1}},
                         {.tensor = 1, .offset = 256, .box = {{0, 0}, {8, 16}}, .stride = {64, 4}},
                         {.tensor = 2, .offset = 768, .box = {}, .stride = {}}});
}

TEST_CASE("a manifest lists only tensors that the shard holds, each once", "[layouts]") {
  ModelConfig config = llama_config(4, 2);
  config.num_hidden_layers = 2;
  config.tie_word_embeddings = true;
  const Model model = small_model(config);
  const RankLayout layout = rank_of(model, "megatron:tp=2,pp=2", 2);
  const PlacedShard placed = place_checked(model, layout, 4);
  const Manifest& manifest = placed.manifest;
  // Nine of the second layer, the norm, and the embedding that output_layer repeats.
  REQUIRE(manifest.tensors.size() == 11);
  REQUIRE(manifest.inventory.tensor_count == model.tensors.size());
  std::vector<std::string> names;
  for (const Tensor& tensor : manifest.tensors) {
    names.push_back(tensor.name);
    REQUIRE(tensor.shape == std::ranges::find(model.tensors, tensor.name, &Tensor::name)->shape);
  }
  std::ranges::sort(names);
  REQUIRE(std::ranges::adjacent_find(names) == names.end());
}

TEST_CASE("the parts of a fused tensor lie one behind the other in bytes", "[layouts]") {
  // q is 4x2, k and v are 2x2, in bf16: rank 1 of 2 has rows 2:4 of q and rows 1:2 of k and v.
  const Model model = small_model(llama_config(4, 2));
  const RankLayout layout = rank_of(model, "vllm:tp=2", 1);
  const PlacedShard placed = place_checked(model, layout, 2);
  REQUIRE(layout.tensors.at(1).name == "model.layers.0.self_attn.qkv_proj.weight");
  const std::uint64_t start = placed.offsets.at(1);
  REQUIRE(start == 256);  // The embedding's 32 rows take 128 bytes before it.
  const auto& pieces = placed.manifest.pieces;
  REQUIRE(pieces.at(1).offset == start);
  REQUIRE(pieces.at(1).box == Box{{2, 0}, {2, 2}});
  REQUIRE(pieces.at(2).offset == start + 8);
  REQUIRE(pieces.at(3).offset == start + 12);
  REQUIRE(pieces.at(3).stride == Dims{4, 2});
  REQUIRE(placed.manifest.tensors.at(pieces.at(3).tensor).name ==
          "model.layers.0.self_attn.v_proj.weight");
}

TEST_CASE("every engine's manifests are ones that a peer accepts", "[layouts]") {
  ModelConfig config = llama_config(8, 2, 2);
  config.num_hidden_layers = 4;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.qk_norm = true;
  const Model model = small_model(config);
  for (const char* text : {"hf", "fsdp2:dp=3", "megatron:tp=4,pp=2,vpp=2", "vllm:tp=4"}) {
    const std::uint32_t ranks = size_of(spec_of(text))->ranks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const RankLayout layout = rank_of(model, text, rank);
      const PlacedShard placed =
          place(model, layout, {Side::trainer, 0, rank}, ranks, RegionKind::host_shared);
      INFO(text << " rank " << rank);
      REQUIRE(check(placed.manifest).has_value());
      REQUIRE(placed.offsets.size() == layout.tensors.size());
    }
  }
}

TEST_CASE("a rank that keeps nothing still has a region, and names empty tensors", "[layouts]") {
  const Model model{.config = {},
                    .tensors = {{.name = "empty", .type = ElementType::bf16, .shape = {0, 4}},
                                {.name = "one", .type = ElementType::bf16, .shape = {1}}},
                    .aliases = {}};
  const RankLayout layout = rank_of(model, "fsdp2:dp=2", 1);
  const PlacedShard placed = place_checked(model, layout, 2);
  REQUIRE(placed.offsets == std::vector<std::uint64_t>{0, 0});
  REQUIRE(placed.region_bytes == 256);
  REQUIRE(placed.manifest.pieces.empty());
  REQUIRE(placed.manifest.tensors.size() == 1);
  REQUIRE(placed.manifest.tensors.at(0).name == "empty");
}

}  // namespace weir
