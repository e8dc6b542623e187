#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/files/scratch_folder.hpp"
#include "tests/adapters/layouts/small_models.hpp"

// Goal: every layer of experts can have a map of its own, which says what is in each physical slot,
// as engines that balance load change them. Method: layers of three experts whose slots are told
// from w13's pieces; files as a user would have them, good and bad.

namespace weir {

namespace {

/// A dense layer and two of experts.
ModelConfig layered_config() {
  ModelConfig config = latent_config(3);
  config.num_hidden_layers = 3;
  return config;
}

/// The experts in w13 of a layer of every rank: "0 1 | 2 0".
std::string placement(const std::string& spec, int layer) {
  const Model model = model_with(layered_config());
  const std::string name = "model.layers." + std::to_string(layer) + ".mlp.experts.w13_weight";
  std::string text;
  for (std::uint32_t rank = 0; rank < size_of(spec_of(spec))->ranks; ++rank) {
    const RankLayout layout = rank_of(model, spec, rank);
    text += rank == 0 ? "" : " |";
    for (const LocalPiece& piece : find(layout, name)->pieces) {
      const std::string& tensor = model.tensors[piece.tensor].name;
      const std::size_t at = tensor.find("experts.") + 8;
      if (tensor.find("gate_proj") != std::string::npos) {
        text += " " + tensor.substr(at, tensor.find('.', at) - at);
      }
    }
  }
  return text.substr(1);
}

std::string refusal(const ModelConfig& config, const std::string& spec) {
  const auto layout = lay_out(model_with(config), spec_of(spec), 0);
  REQUIRE_FALSE(layout.has_value());
  return layout.error().text;
}

}  // namespace

TEST_CASE("each layer of experts has the map that is given for it", "[layouts]") {
  const std::string layers = "sglang:tp=2,ep=2,redundant=1,physical=0-1-2-0/2-2-1-0";
  REQUIRE(placement(layers, 1) == "0 1 | 2 0");
  REQUIRE(placement(layers, 2) == "2 2 | 1 0");
  // The same as SGLang counts: the dense layer has a map, too, which means nothing.
  const std::string all = "sglang:tp=2,ep=2,redundant=1,physical=9-9/0-1-2-0/2-2-1-0";
  REQUIRE(placement(all, 1) == "0 1 | 2 0");
  REQUIRE(placement(all, 2) == "2 2 | 1 0");
  REQUIRE(placement("sglang:redundant=1,physical=1-0-2-1", 2) == "1 0 2 1");
}

TEST_CASE("layers of MTP that are kept have maps behind all others", "[layouts]") {
  ModelConfig config = layered_config();
  config.mtp_layers = 1;
  const Model model = model_with(config);
  const RankLayout layout = rank_of(model, "vllm:dp=3,ep=3,mtp=keep,physical=0-1-2/1-2-0/2-0-1", 0);
  const LocalTensor* w13 =
      find(layout, "model.layers.3.mtp_block.mlp.experts.routed_experts.w13_weight");
  REQUIRE(model.tensors[w13->pieces.at(0).tensor].name ==
          "model.layers.3.mlp.experts.2.gate_proj.weight");
  REQUIRE(
      refusal(config, "vllm:dp=3,ep=3,physical=0-1-2/1-2-0/2-0-1/2-0-1") ==
      "physical= has maps for 4 layers: give one for all, 2 for the layers of experts, or 3 for "
      "all layers");
}

TEST_CASE("a layer's map that is not one of all experts is refused by layer and expert",
          "[layouts]") {
  const ModelConfig config = layered_config();
  REQUIRE(refusal(config, "sglang:physical=0-1-2/0-1-2-0") ==
          "physical= of layer 2 has 4 slots: give experts + redundant = 3");
  REQUIRE(refusal(config, "sglang:physical=0-1-2/0-1-3") ==
          "physical= of layer 2 names expert 3: the model has experts 0 to 2");
  REQUIRE(refusal(config, "sglang:physical=0-1-1/0-1-2") ==
          "physical= of layer 1 leaves out expert 2: give each expert a slot");
}

TEST_CASE("maps of layers are read from a file of JSON", "[layouts]") {
  const ScratchFolder folder;
  const std::string file = (folder / "maps.json").string();
  const auto maps = [&](const std::string& text) {
    write_bytes(file, text);
    return parse_layout("sglang:tp=2,physical=@" + file);
  };
  const std::vector<std::vector<std::int64_t>> two = {{0, 1, 2}, {2, 1, 0}};
  REQUIRE(maps("{\"physical_to_logical_map\": [[0, 1, 2], [2, 1, 0]], \"other\": 1}")->physical ==
          two);
  REQUIRE(maps("[[0, 1, 2], [2, 1, 0]]")->physical == two);
  REQUIRE(maps("[0, 1, 2]")->physical == std::vector<std::vector<std::int64_t>>{{0, 1, 2}});
  // Whatever reads the text of the spec later needs no file.
  REQUIRE(text_of(*maps("[[0, 1], [1, 0]]")) == "sglang:tp=2,physical=0-1/1-0");

  const auto refused = [&](const std::string& text) { return maps(text).error().text; };
  REQUIRE(refused("{}") == file +
                               " has no \"physical_to_logical_map\": give it, a list for each "
                               "layer with the expert in each physical slot");
  for (const char* none : {"3", "[]", "{\"physical_to_logical_map\": {}}"}) {
    REQUIRE(refused(none) == file + ": \"physical_to_logical_map\" is no list of layers");
  }
  REQUIRE(refused("[[0], 3]") ==
          file + ": list 1 is no list: give the expert in each physical slot");
  for (const char* wrong : {"[[0], [0, -1]]", "[[0], [0, 65537]]", "[[0], [0, 1.5]]"}) {
    REQUIRE(refused(wrong) == file + ": list 1, slot 1, is no number of an expert from 0 to 65536");
  }
  REQUIRE(refused("[[0]").starts_with(file));
  REQUIRE(parse_layout("sglang:physical=@" + file + ".not").error().code == ErrorCode::not_found);
}

}  // namespace weir
