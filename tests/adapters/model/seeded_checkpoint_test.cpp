// Goal: seeded checkpoints are whole, small in value, and the same everywhere.
// Method: the tiny model, made with different seeds and numbers of threads and read back.
#include "adapters/model/seeded_checkpoint.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "adapters/model/checkpoint_model.hpp"
#include "adapters/model/known_models.hpp"
#include "tests/adapters/files/scratch_folder.hpp"

namespace weir {
namespace {

float float_of(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::vector<std::uint16_t> values_of(const Checkpoint& checkpoint, std::string_view name) {
  const auto bytes = checkpoint.data(*checkpoint.find(name));
  std::vector<std::uint16_t> values(bytes.size() / 2);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string weights_of(const ModelConfig& config, std::uint64_t seed, unsigned threads) {
  const ScratchFolder folder;
  Workers workers(threads);
  REQUIRE(write_seeded_checkpoint(folder / "m", config, seed, {}, workers).has_value());
  return read_bytes(folder / "m/model.safetensors");
}

/// A model with one tensor larger than a worker's share, of a size that shares do not divide.
ModelConfig wide_config() {
  ModelConfig config = *named_config("tiny-qwen3");
  config.num_hidden_layers = 1;
  config.hidden_size = 63;
  config.vocab_size = 40'001;
  return config;
}

}  // namespace

TEST_CASE("a seeded checkpoint is the model it was asked for", "[model]") {
  const ScratchFolder folder;
  Workers workers(2);
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    ModelConfig config = *named_config("tiny-qwen3");
    config.family = family;
    config.qk_norm = config.family == "qwen3";
    config.qkv_bias = config.family != "qwen3";
    config.output_bias = config.mlp_bias = config.family == "llama";
    config.tie_word_embeddings = config.family != "llama";
    const auto dir = folder / family;
    REQUIRE(write_seeded_checkpoint(dir, config, 7, {}, workers).has_value());
    REQUIRE(*load_model(dir) == *model_of(config));
    REQUIRE((*Checkpoint::open(dir))->files()[0]->metadata() == FileMetadata{{"format", "pt"}});
  }
  REQUIRE(folder.entries() == 3);
}

TEST_CASE("values are finite, of both signs, small, and fill their range", "[model]") {
  const ScratchFolder folder;
  Workers workers(1);
  REQUIRE(write_seeded_checkpoint(folder / "m", *named_config("tiny-qwen3"), 7, {}, workers));
  const auto checkpoint = Checkpoint::open(folder / "m");
  std::set<std::uint16_t> distinct;
  double sum = 0;
  const auto values = values_of(**checkpoint, "model.embed_tokens.weight");
  for (const std::uint16_t bits : values) {
    const float value = float_of(bits);
    REQUIRE(std::abs(value) >= 0.0078125F);
    REQUIRE(std::abs(value) < 0.03125F);
    distinct.insert(bits);
    sum += value;
  }
  // Sign, exponent bit and seven mantissa bits: 512 values, all met in 64,000 draws.
  REQUIRE(distinct.size() == 512);
  // The mean's standard deviation is about 0.018 / sqrt(64,000) = 7e-5.
  REQUIRE(std::abs(sum / static_cast<double>(values.size())) < 5e-4);
}

TEST_CASE("a seed gives the same bytes with any number of threads", "[model]") {
  const std::string once = weights_of(wide_config(), 5, 1);
  REQUIRE((once == weights_of(wide_config(), 5, 3)));
  REQUIRE((once != weights_of(wide_config(), 6, 1)));
}

TEST_CASE("tensors of equal shape differ in value", "[model]") {
  const ScratchFolder folder;
  Workers workers(1);
  REQUIRE(write_seeded_checkpoint(folder / "m", *named_config("tiny-qwen3"), 7, {}, workers));
  const auto checkpoint = Checkpoint::open(folder / "m");
  REQUIRE(values_of(**checkpoint, "model.layers.0.mlp.up_proj.weight") !=
          values_of(**checkpoint, "model.layers.1.mlp.up_proj.weight"));
}

TEST_CASE("progress rises to the whole", "[model]") {
  const ScratchFolder folder;
  Workers workers(2);
  std::vector<std::uint64_t> done;
  std::uint64_t last_total = 0;
  const auto progress = [&](std::uint64_t bytes_done, std::uint64_t bytes_total) {
    REQUIRE((done.empty() || bytes_done > done.back()));
    done.push_back(bytes_done);
    last_total = bytes_total;
  };
  REQUIRE(write_seeded_checkpoint(folder / "m", wide_config(), 7, progress, workers).has_value());
  std::uint64_t bytes = 0;
  const auto checkpoint = Checkpoint::open(folder / "m");
  for (const auto& entry : (*checkpoint)->entries()) bytes += bytes_of(entry.tensor);
  REQUIRE(last_total == bytes);
  REQUIRE(done.back() == bytes);
}

TEST_CASE("what cannot be made leaves nothing", "[model]") {
  const ScratchFolder folder;
  Workers workers(1);
  ModelConfig config = *named_config("tiny-qwen3");
  config.type = ElementType::f32;
  REQUIRE(write_seeded_checkpoint(folder / "m", config, 7, {}, workers).error().text ==
          "seeded weights are bf16; the config asks for f32");
  config = ModelConfig{};
  REQUIRE(write_seeded_checkpoint(folder / "m", config, 7, {}, workers).error().code ==
          ErrorCode::invalid);
  config = *named_config("llama-3-8b");
  config.num_hidden_layers = 1;
  config.hidden_size = 1 << 20;
  config.vocab_size = 1 << 24;  // Embedding and head: 2 * 2^44 elements, 70 TB.
  const auto large = write_seeded_checkpoint(folder / "m", config, 7, {}, workers);
  REQUIRE(large.error().code == ErrorCode::refused);
  REQUIRE(large.error().text.starts_with("not enough space in "));
  REQUIRE(folder.entries() == 0);
  write_bytes(folder / "m", "taken");
  REQUIRE(write_seeded_checkpoint(folder / "m", *named_config("tiny-qwen3"), 7, {}, workers)
              .error()
              .code == ErrorCode::refused);
  REQUIRE(read_bytes(folder / "m") == "taken");
}

}  // namespace weir
