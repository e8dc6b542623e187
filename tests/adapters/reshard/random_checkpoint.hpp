#pragma once
// Small checkpoints of random shape and content, from a seed.

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "adapters/model/model.hpp"
#include "adapters/model/seeded_checkpoint.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/random.hpp"
#include "tests/adapters/reshard/quick_folder.hpp"

namespace weir {

template <class T>
T one_of(Random& random, const std::vector<T>& choices) {
  return choices[random.below(choices.size())];
}

/// A small model of a known family: 8 query heads and 1 to 8 KV heads, so that tensor parallelism
/// of 1, 2, 4 and 8 fits, and any vocabulary, tied or not, with such biases as every engine has.
inline ModelConfig random_config(Random& random) {
  ModelConfig config;
  config.family = one_of<std::string>(random, {"llama", "qwen2", "qwen3"});
  config.hidden_size = 8 * random.between(1, 3);
  config.num_hidden_layers = random.between(2, 5);
  config.num_attention_heads = 8;
  config.num_key_value_heads = one_of<std::int64_t>(random, {1, 2, 4, 8});
  config.head_dim = one_of<std::int64_t>(random, {2, 4});
  if (config.family != "qwen3") config.head_dim = config.hidden_size / 8;
  config.intermediate_size = 8 * random.between(1, 4);
  config.vocab_size = random.between(1, 200);
  config.tie_word_embeddings = random.chance(1, 2);
  const bool bias = random.chance(1, 2);
  config.output_bias = config.mlp_bias = config.family == "llama" && bias;
  config.qkv_bias = config.family == "qwen2" || config.output_bias;
  config.qk_norm = config.family == "qwen3";
  return config;
}

/// Fills a tensor at random. Floating-point values are finite, since a conversion there and back
/// keeps every value but not every NaN: their top exponent bit is zero.
inline void fill(std::span<std::byte> bytes, ElementType type, Random& random) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  if (type != ElementType::bf16 && type != ElementType::f32) return;
  const std::size_t step = size_of(type);
  for (std::size_t end = step; end <= bytes.size(); end += step) {
    bytes[end - 1] &= std::byte{0xbf};
    // Of f32 only what bf16 can hold, so that a way through bf16 loses nothing.
    if (type == ElementType::f32) bytes[end - 4] = bytes[end - 3] = std::byte{0};
  }
}

inline void write_random_file(const std::filesystem::path& file,
                              const std::vector<FileTensor>& tensors, const FileMetadata& metadata,
                              Random& random) {
  auto writer = SafetensorsWriter::create(file, tensors, metadata);
  REQUIRE(writer);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    fill((*writer)->data(index), tensors[index].type, random);
  }
  REQUIRE((*writer)->commit());
}

/// Makes `folder` with `config.json` and one or two safetensors files, of one type or with norms
/// in f32.
inline void write_random_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                                    Random& random) {
  std::filesystem::create_directory(folder);
  write_bytes(folder / "config.json", config_json_of(config));
  const auto model = model_of(config);
  REQUIRE(model);
  const auto type = one_of<ElementType>(random, {ElementType::bf16, ElementType::f32});
  const bool wide_norms = random.chance(1, 2);
  const std::size_t cut = random.chance(1, 2) ? model->tensors.size() / 2 : model->tensors.size();
  std::vector<FileTensor> first;
  std::vector<FileTensor> second;
  for (const Tensor& tensor : model->tensors) {
    const bool norm = tensor.name.ends_with("norm.weight");
    const FileTensor file_tensor{.name = tensor.name,
                                 .type = norm && wide_norms ? ElementType::f32 : type,
                                 .shape = stored_shape(config, tensor)};
    (first.size() < cut ? first : second).push_back(file_tensor);
  }
  const FileMetadata metadata = {{"format", "pt"}};
  if (second.empty()) {
    write_random_file(folder / "model.safetensors", first, metadata, random);
    return;
  }
  write_random_file(folder / "part-1.safetensors", first, metadata, random);
  write_random_file(folder / "part-2.safetensors", second, metadata, random);
}

/// Type, shape and bytes of a tensor.
struct TensorContent {
  ElementType type = ElementType::bf16;
  std::vector<std::int64_t> shape;
  std::string bytes;
  friend bool operator==(const TensorContent&, const TensorContent&) = default;
};

/// Every tensor of a checkpoint, by name.
inline std::map<std::string, TensorContent> tensors_in(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  REQUIRE(checkpoint);
  std::map<std::string, TensorContent> tensors;
  for (const Checkpoint::Entry& entry : (*checkpoint)->entries()) {
    const auto data = (*checkpoint)->data(entry);
    std::string bytes(data.size(), '\0');
    if (!data.empty()) std::memcpy(bytes.data(), data.data(), data.size());
    tensors[entry.tensor.name] = {entry.tensor.type, entry.tensor.shape, std::move(bytes)};
  }
  return tensors;
}

}  // namespace weir
