#include "adapters/reshard/internal/verify.hpp"

#include <catch2/catch_test_macros.hpp>

#include "adapters/reshard/rank_file.hpp"
#include "adapters/reshard/reshard.hpp"
#include "tests/adapters/reshard/quick_folder.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir {

// Goal: `verify` sees every wrong byte. Method: flip single bytes of good outputs and inputs, in
// weights, in padding, and in one of several equal copies.

namespace {

class SilentObserver final : public ReshardObserver {
 public:
  void begin(std::string_view /*stage*/, std::uint64_t /*bytes*/) override {}
  void advance(std::uint64_t /*bytes*/) override {}
  void end() override {}
  bool interrupted() override { return stop; }
  bool stop = false;
};

/// A checkpoint "in", and "out" in another layout, made from it.
struct Scene {
  explicit Scene(const std::string& layout) : to(parse_layout(layout).value()) {
    Random random(3);
    ModelConfig config{.family = "llama",
                       .hidden_size = 16,
                       .num_hidden_layers = 2,
                       .num_attention_heads = 8,
                       .num_key_value_heads = 2,
                       .head_dim = 2,
                       .intermediate_size = 8,
                       .vocab_size = 70};
    write_random_checkpoint(folder / "in", config, random);
    REQUIRE(make("in", to, "out"));
  }

  Result<ReshardReport> make(const std::string& input, const LayoutSpec& layout,
                             const std::string& output, bool verify = false) {
    SilentObserver observer;
    ReshardRequest request;
    request.input = folder / input;
    request.to = layout;
    request.output = folder / output;
    request.verify = verify;
    return reshard(request, workers, observer);
  }

  Result<std::uint64_t> verify(SilentObserver& observer) {
    const auto source = ReshardSource::open(folder / "in", std::nullopt);
    REQUIRE(source);
    std::vector<std::unique_ptr<SafetensorsFile>> files;
    const std::uint32_t ranks = size_of(to).value().ranks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      auto file = SafetensorsFile::open(file_of(rank));
      REQUIRE(file);
      files.push_back(std::move(*file));
    }
    return verify_resharding(**source, to, files, workers, observer);
  }
  Result<std::uint64_t> verify() {
    SilentObserver observer;
    return verify(observer);
  }

  std::filesystem::path file_of(std::uint32_t rank) {
    return folder / "out" / rank_file_name({.rank = rank, .ranks = size_of(to).value().ranks});
  }

  /// Flips one byte of a tensor's data: the `at`th, or counted from its end where negative.
  static void flip(const std::filesystem::path& path, const std::string& tensor, std::int64_t at) {
    std::uint64_t offset = 0;
    {
      const auto file = SafetensorsFile::open(path);
      REQUIRE(file);
      const auto& tensors = (*file)->tensors();
      std::size_t index = 0;
      while (tensors.at(index).name != tensor) ++index;
      const auto data = (*file)->data(index);
      // The data ends the file, so places count from the last tensor's end.
      std::span<const std::byte> last = data;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto other = (*file)->data(i);
        if (other.data() + other.size() > last.data() + last.size()) last = other;
      }
      const std::uint64_t end = std::filesystem::file_size(path);
      offset = end - static_cast<std::uint64_t>(last.data() + last.size() - data.data());
      offset +=
          at >= 0 ? static_cast<std::uint64_t>(at) : data.size() - static_cast<std::uint64_t>(-at);
    }
    std::string content = read_bytes(path);
    content[offset] = static_cast<char>(content[offset] ^ 1);
    write_bytes(path, content);
  }

  QuickFolder folder;
  LayoutSpec to;
  Workers workers{2};
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a good output is verified to its last byte", "[reshard]") {
  for (const char* layout : {"vllm:tp=4", "megatron:tp=2,pp=2", "fsdp2:dp=3,dtype=f32"}) {
    Scene scene(layout);
    std::uint64_t bytes = 0;
    for (std::uint32_t rank = 0; rank < size_of(scene.to).value().ranks; ++rank) {
      const auto file = SafetensorsFile::open(scene.file_of(rank));
      for (const FileTensor& tensor : (*file)->tensors()) bytes += bytes_of(tensor);
    }
    REQUIRE(scene.verify() == Result<std::uint64_t>(bytes));
  }
}

TEST_CASE("verify names the file, tensor and row of a flipped byte", "[reshard]") {
  Scene scene("vllm:tp=2");
  Scene::flip(scene.file_of(1), "model.layers.1.mlp.down_proj.weight", -1);
  const auto result = scene.verify();
  REQUIRE_FALSE(result);
  REQUIRE(result.error().code == ErrorCode::io);
  REQUIRE(contains(result.error().text, scene.file_of(1).string()));
  REQUIRE(contains(result.error().text, "tensor model.layers.1.mlp.down_proj.weight"));
  REQUIRE(contains(result.error().text, "row 15"));  // Of [16, 4], the last.
}

TEST_CASE("verify sees a byte that was flipped in any tensor of any rank", "[reshard]") {
  Scene scene("megatron:tp=2,pp=2");
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    std::vector<FileTensor> tensors;
    {
      const auto file = SafetensorsFile::open(scene.file_of(rank));
      tensors = (*file)->tensors();
    }
    for (const FileTensor& tensor : tensors) {
      Scene::flip(scene.file_of(rank), tensor.name, 0);
      INFO(rank << " " << tensor.name);
      REQUIRE_FALSE(scene.verify());
      Scene::flip(scene.file_of(rank), tensor.name, 0);
    }
  }
  REQUIRE(scene.verify());
}

TEST_CASE("verify sees padding that is not zero", "[reshard]") {
  Scene scene("vllm:tp=2");
  // 70 rows are padded to 128; the second rank holds rows 64 to 127, of which 6 are real.
  Scene::flip(scene.file_of(1), "lm_head.weight", -1);
  const auto result = scene.verify();
  REQUIRE_FALSE(result);
  REQUIRE(contains(result.error().text, "lm_head.weight"));
  REQUIRE(contains(result.error().text, "row 63"));
}

TEST_CASE("an input whose equal copies differ is found out", "[reshard]") {
  Scene scene("megatron:tp=2");
  Scene::flip(scene.file_of(1), "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 0);
  const auto report = scene.make("out", parse_layout("hf").value(), "back", true);
  REQUIRE_FALSE(report);
  REQUIRE(report.error().code == ErrorCode::io);
  REQUIRE(contains(report.error().text, "the input contradicts itself"));
  REQUIRE_FALSE(std::filesystem::exists(scene.folder / "back"));
}

TEST_CASE("a file of another layout is not verified", "[reshard]") {
  Scene scene("vllm:tp=2");
  scene.to = parse_layout("fsdp2:dp=2").value();
  const auto result = scene.verify();
  REQUIRE_FALSE(result);
  REQUIRE(contains(result.error().text, "the oracle knows other tensors"));
}

TEST_CASE("verify stops when it is interrupted", "[reshard]") {
  Scene scene("vllm:tp=2");
  SilentObserver observer;
  observer.stop = true;
  const auto result = scene.verify(observer);
  REQUIRE_FALSE(result);
  REQUIRE(result.error().code == ErrorCode::unavailable);
}

}  // namespace weir
