// Goal: a model opened from files is what the files hold, and fits its config or is refused.
// Method: a seeded tiny checkpoint, rewritten with one fault at a time.
#include "adapters/model/checkpoint_model.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "adapters/model/known_models.hpp"
#include "adapters/model/quantized_model.hpp"
#include "adapters/model/seeded_checkpoint.hpp"
#include "tests/adapters/files/scratch_folder.hpp"

namespace weir {
namespace {

constexpr const char* embedding = "model.embed_tokens.weight";

ModelConfig tiny_config() {
  ModelConfig config = *named_config("tiny-qwen3");
  config.num_hidden_layers = 1;
  return config;
}

std::vector<FileTensor> tensors_of(const ModelConfig& config) {
  std::vector<FileTensor> tensors;
  const auto model = model_of(config);
  for (const Tensor& tensor : model->tensors) {
    const auto extents = tensor.shape.values();
    tensors.push_back({tensor.name, tensor.type, {extents.begin(), extents.end()}});
  }
  return tensors;
}

FileTensor& named(std::vector<FileTensor>& tensors, std::string_view name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const FileTensor& tensor) { return tensor.name == name; });
}

/// Writes those tensors, all zero save the first byte of `marked`, and opens them as a model.
Result<Model> opened(const std::vector<FileTensor>& tensors, const ModelConfig& config,
                     std::string_view marked = "") {
  const ScratchFolder folder;
  auto writer = SafetensorsWriter::create(folder / "model.safetensors", tensors, {});
  REQUIRE(writer.has_value());
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].name == marked) (*writer)->data(index)[0] = std::byte{1};
  }
  REQUIRE((*writer)->commit().has_value());
  const auto checkpoint = Checkpoint::open(folder.path());
  REQUIRE(checkpoint.has_value());
  return open_model(**checkpoint, config);
}

std::string fault_of(const std::vector<FileTensor>& tensors, std::string_view marked = "") {
  const auto model = opened(tensors, tiny_config(), marked);
  REQUIRE_FALSE(model.has_value());
  CHECK(model.error().code == ErrorCode::invalid);
  return model.error().text;
}

const std::string unfit = "the checkpoint does not fit its config.json: ";
const std::string way_out = " (without config.json it is taken as it is, for hf and fsdp2)";

}  // namespace

TEST_CASE("a checkpoint that fits its config is that model", "[model]") {
  REQUIRE(*opened(tensors_of(tiny_config()), tiny_config()) == *model_of(tiny_config()));
}

TEST_CASE("the file's types count, not the config's", "[model]") {
  auto tensors = tensors_of(tiny_config());
  named(tensors, "model.norm.weight").type = ElementType::f32;
  const auto model = opened(tensors, tiny_config());
  REQUIRE(model.has_value());
  REQUIRE(model->tensors.back().name == "model.norm.weight");
  REQUIRE(model->tensors.back().type == ElementType::f32);
  REQUIRE(model->tensors.front().type == ElementType::bf16);
}

TEST_CASE("tensors that engines compute are left out", "[model]") {
  auto tensors = tensors_of(tiny_config());
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", ElementType::f32, {8}});
  REQUIRE(*opened(tensors, tiny_config()) == *model_of(tiny_config()));
}

TEST_CASE("a tied head in the file is left out if it equals the embedding", "[model]") {
  auto tensors = tensors_of(tiny_config());
  tensors.push_back({"lm_head.weight", ElementType::bf16, {1000, 64}});
  REQUIRE(*opened(tensors, tiny_config()) == *model_of(tiny_config()));
  const std::string refusal =
      "tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\", though config.json "
      "says tie_word_embeddings: set it to false";
  REQUIRE(fault_of(tensors, "lm_head.weight") == refusal);
  REQUIRE(fault_of(tensors, embedding) == refusal);
  tensors.back().type = ElementType::f16;
  REQUIRE(fault_of(tensors) == refusal);
  tensors.back() = {"lm_head.weight", ElementType::bf16, {64, 1000}};
  REQUIRE(fault_of(tensors) == refusal);
}

TEST_CASE("a checkpoint that does not fit its config is told by tensor", "[model]") {
  auto missing = tensors_of(tiny_config());
  missing.erase(missing.begin());
  REQUIRE(fault_of(missing) == unfit + "tensor \"model.embed_tokens.weight\" is missing" + way_out);
  missing.push_back({"lm_head.weight", ElementType::bf16, {1000, 64}});
  REQUIRE(fault_of(missing) == unfit + "tensor \"model.embed_tokens.weight\" is missing" + way_out);
  missing.push_back({"model.extra", ElementType::bf16, {}});
  REQUIRE(fault_of(missing) == unfit + "tensor \"model.embed_tokens.weight\" is missing, and 1 " +
                                   "more such faults" + way_out);

  auto extra = tensors_of(tiny_config());
  extra.push_back({"model.extra", ElementType::bf16, {}});
  REQUIRE(fault_of(extra) == unfit + "tensor \"model.extra\" is unknown" + way_out);

  auto shaped = tensors_of(tiny_config());
  named(shaped, embedding).shape = {1000, 65};
  REQUIRE(fault_of(shaped) ==
          unfit + "tensor \"model.embed_tokens.weight\" is 1000x65 and should be 1000x64" +
              way_out);

  auto whole = tensors_of(tiny_config());
  named(whole, embedding).type = ElementType::i8;
  REQUIRE(fault_of(whole) == unfit + "tensor \"model.embed_tokens.weight\" is i8 and should be " +
                                 "floating-point" + way_out);
}

TEST_CASE("a config without rules gives no tensors of its own but takes any", "[model]") {
  const auto model = opened({{"conv", ElementType::f32, {2, 3, 4, 5, 6}},
                             {"position_ids", ElementType::i64, {1, 512}},
                             {"scale", ElementType::f32, {}},
                             {"x.rotary_emb.inv_freq", ElementType::f32, {8}}},
                            ModelConfig{});
  REQUIRE(model.has_value());
  const std::vector<Tensor> expected = {
      {"conv", ElementType::f32, {2, 3, 4, 30}, TensorKind::parameter},
      {"position_ids", ElementType::i64, {1, 512}, TensorKind::buffer},
      {"scale", ElementType::f32, {}, TensorKind::parameter},
      {"x.rotary_emb.inv_freq", ElementType::f32, {8}, TensorKind::parameter}};
  REQUIRE(model->tensors == expected);
  REQUIRE(model->aliases.empty());
}

TEST_CASE("codes of a checkpoint have their encoding, and scales that fit", "[model]") {
  const std::vector<FileTensor> tensors = {
      {"head.weight", ElementType::bf16, {10, 300}},
      {"ids", ElementType::i64, {4}},
      {"q.weight", ElementType::f8_e4m3, {200, 300}},
      {"q.weight_scale_inv", ElementType::f32, {2, 3}},
      {"zero", ElementType::i8, {}},
  };
  ModelConfig config;
  config.codes =
      Encoding{.kind = Encoding::Kind::scaled, .scales_suffix = "_scale_inv", .block = {128, 128}};
  const auto model = opened(tensors, config);
  REQUIRE(model.has_value());
  REQUIRE(model->encodings == std::vector<Encoding>{*config.codes});
  REQUIRE(model->tensors ==
          std::vector<Tensor>{
              {"head.weight", ElementType::bf16, {10, 300}},
              {"ids", ElementType::i64, {4}, TensorKind::buffer},
              {"q.weight", ElementType::f8_e4m3, {200, 300}, TensorKind::parameter, 1},
              {"q.weight_scale_inv", ElementType::f32, {2, 3}},
              {"zero", ElementType::i8, {}, TensorKind::buffer},
          });
  const Model values = dequantized(*model, ElementType::bf16);
  REQUIRE(values.encodings.empty());
  REQUIRE(values.tensors == std::vector<Tensor>{
                                {"head.weight", ElementType::bf16, {10, 300}},
                                {"ids", ElementType::i64, {4}, TensorKind::buffer},
                                {"q.weight", ElementType::bf16, {200, 300}},
                                {"zero", ElementType::i8, {}, TensorKind::buffer},
                            });

  const auto fault = [&](const std::vector<FileTensor>& changed) {
    const auto refused = opened(changed, config);
    REQUIRE_FALSE(refused.has_value());
    return refused.error().text;
  };
  auto changed = tensors;
  changed[3] = {"q.weight_scale_inv", ElementType::bf16, {2, 2}};
  REQUIRE(fault(changed) == unfit + "tensor \"q.weight_scale_inv\", the scales of codes, is bf16 " +
                                "2x2 and should be f32 2x3" + way_out);
  changed[3].name = "q.weight_scale";
  changed.push_back({"v.weight", ElementType::i8, {1, 1}});
  REQUIRE(fault(changed) == unfit + "tensor \"q.weight_scale_inv\", the scales of codes, is " +
                                "missing, and 1 more such faults" + way_out);
}

TEST_CASE("a model is loaded from a folder, with or without config, and from a file", "[model]") {
  const ScratchFolder folder;
  Workers workers(1);
  REQUIRE(write_seeded_checkpoint(folder / "m", tiny_config(), 1, {}, workers).has_value());
  REQUIRE(*load_model(folder / "m") == *model_of(tiny_config()));
  const auto file = load_model(folder / "m/model.safetensors");
  REQUIRE(file->config == ModelConfig{});
  REQUIRE(file->tensors == model_of(tiny_config())->tensors);

  std::filesystem::remove(folder / "m/config.json");
  REQUIRE(load_model(folder / "m") == file);
  write_bytes(folder / "m/config.json", "[]");
  REQUIRE(load_model(folder / "m").error().text ==
          (folder / "m/config.json").string() + " is not a JSON object");
  ModelConfig other = tiny_config();
  other.vocab_size = 999;
  write_bytes(folder / "m/config.json", "");
  std::filesystem::remove(folder / "m/config.json");
  write_bytes(folder / "m/config.json", config_json_of(other));
  REQUIRE(load_model(folder / "m").error().text ==
          (folder / "m").string() + ": " + unfit +
              "tensor \"model.embed_tokens.weight\" is 1000x64 and should be 999x64" + way_out);
  REQUIRE(load_model(folder / "no").error().code == ErrorCode::not_found);
  std::filesystem::create_directories(folder / "n/config.json");
  REQUIRE(load_model(folder / "n").error().text ==
          (folder / "n/config.json").string() + " is not a regular file");
}

}  // namespace weir
