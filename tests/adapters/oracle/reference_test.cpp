#include "adapters/oracle/reference.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <random>

#include "adapters/oracle/internal/narrowing.hpp"
#include "adapters/oracle/oracle.hpp"
#include "adapters/oracle/seeded_version.hpp"
#include "tests/adapters/oracle/decoder_model.hpp"

namespace weir::oracle {
namespace {

// Goal: memory is filled as the rows say, and no wrong byte gets past the comparison. Method:
// element by element from `rank_of` and `make_version`, without runs, blocks, tasks or workers;
// literal cases for rounding; and each refusal.

using Bytes = std::vector<std::byte>;

Model small_model(ElementType type) {
  ModelConfig config;
  config.family = "qwen3";
  config.hidden_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 20;
  config.vocab_size = 100;
  config.qk_norm = config.qkv_bias = true;
  config.type = type;
  return decoder_model(config);
}

/// A model, its bytes of version 0 (random, but finite) and one rank's region with gaps.
struct Case {
  Model model;
  std::vector<Bytes> canonical;
  RankMemory memory;
  std::vector<LocalTensor> locals;
  std::map<std::string, std::uint64_t> offsets;
  Bytes region;

  Case(Model m, LayoutSpec spec, std::uint32_t rank)
      : model(std::move(m)), memory{model, std::move(spec), rank, {}, {}, {}} {
    std::mt19937_64 random(3);
    for (const Tensor& tensor : model.tensors) {
      Bytes& bytes = canonical.emplace_back(static_cast<std::size_t>(element_count(tensor.shape)) *
                                            size_of(tensor.type));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xbf);
    }
    memory.canonical = [this](std::size_t tensor) { return std::span(canonical[tensor]); };
    locals = *rank_of(model, memory.spec, rank);
    std::uint64_t end = 3;  // Odd on purpose: nothing may rest on alignment.
    for (const LocalTensor& local : locals) {
      memory.places.push_back({local.name, end});
      offsets[local.name] = end;
      end += local.rows.size() * static_cast<std::size_t>(local.columns) * size_of(local.type) + 5;
    }
    std::reverse(memory.places.begin(), memory.places.end());
    region.assign(end, std::byte{0xee});
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  /// What the region should be, one element at a time.
  [[nodiscard]] Bytes expected(std::uint64_t version) const {
    Bytes result(region.size(), std::byte{0xee});
    for (const LocalTensor& local : locals) {
      std::uint64_t at = offsets.at(local.name);
      for (const Row& row : local.rows) {
        for (std::int64_t c = 0; c < local.columns; ++c, at += size_of(local.type)) {
          const auto bytes = element(row, local.first_column + c, version, local.type);
          std::memcpy(result.data() + at, bytes.data(), size_of(local.type));
        }
      }
    }
    return result;
  }

  [[nodiscard]] std::array<std::byte, 8> element(const Row& row, std::int64_t column,
                                                 std::uint64_t version,
                                                 ElementType local_type) const {
    std::array<std::byte, 8> value{};
    if (row.tensor == padding) return value;
    const auto index = static_cast<std::size_t>(row.tensor);
    const Tensor& tensor = model.tensors[index];
    std::int64_t columns = 1;
    for (int dim = 1; dim < tensor.shape.rank(); ++dim) columns *= tensor.shape[dim];
    const std::int64_t flat = row.row * columns + column;
    ElementType type = tensor.type;
    const std::size_t size = size_of(type);
    make_version({type, version, tensor_seed(tensor.name), flat},
                 std::span(canonical[index]).subspan(static_cast<std::size_t>(flat) * size, size),
                 std::span(value).first(size));
    for (const ElementType next : {memory.passed_through.value_or(type), local_type}) {
      if (next == type) continue;
      const auto source = value;
      internal::convert(type, next, std::span(source).first(size_of(type)),
                        std::span(value).first(size_of(next)));
      type = next;
    }
    return value;
  }
};

LayoutSpec layout(std::string name, std::map<std::string, std::int64_t> options,
                  std::optional<ElementType> dtype = {}) {
  return {std::move(name), std::move(options), {}, dtype};
}

std::uint64_t bytes_of_locals(const Case& c) {
  std::uint64_t bytes = 0;
  for (const LocalTensor& local : c.locals) {
    bytes += local.rows.size() * static_cast<std::size_t>(local.columns) * size_of(local.type);
  }
  return bytes;
}

void fill_and_compare(Case& c, std::uint64_t version) {
  Workers workers(2);
  const Result<void> filled = fill_rank(c.memory, version, c.region, workers);
  REQUIRE(filled.has_value());
  REQUIRE(c.region == c.expected(version));
  const Result<std::uint64_t> compared = compare_rank(c.memory, version, c.region, workers);
  REQUIRE(compared.has_value());
  REQUIRE(*compared == bytes_of_locals(c));
  REQUIRE_FALSE(compare_rank(c.memory, version + 1, c.region, workers).has_value());
}

std::string error_of(const Case& c, std::uint64_t version = 0) {
  Workers workers(2);
  const Result<std::uint64_t> compared = compare_rank(c.memory, version, c.region, workers);
  REQUIRE_FALSE(compared.has_value());
  REQUIRE(compared.error().code == ErrorCode::invalid);
  return compared.error().text;
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank is filled element by element as the rows say", "[oracle]") {
  const std::pair<LayoutSpec, std::uint32_t> cases[] = {
      {layout("hf", {}), 0},
      {layout("fsdp2", {{"dp", 7}}), 6},
      {layout("megatron", {{"tp", 2}, {"pp", 2}}), 1},
      {layout("megatron", {{"tp", 2}, {"pp", 2}}), 3},
      {layout("vllm", {{"tp", 2}}), 1},
      {layout("vllm", {{"tp", 2}}, ElementType::f32), 0},
      {layout("megatron", {{"tp", 2}}, ElementType::bf16), 1},
  };
  for (const auto& [spec, rank] : cases) {
    for (const ElementType type : {ElementType::bf16, ElementType::f32}) {
      INFO(spec.name << " rank " << rank << " of a model in " << name_of(type));
      Case c(small_model(type), spec, rank);
      fill_and_compare(c, 0);
      fill_and_compare(c, 3);
    }
  }
}

TEST_CASE("values that passed through bf16 have lost their low bits", "[oracle]") {
  Case lost(small_model(ElementType::f32), layout("vllm", {{"tp", 2}}), 1);
  lost.memory.passed_through = ElementType::bf16;
  fill_and_compare(lost, 2);
  Case kept(small_model(ElementType::bf16), layout("vllm", {{"tp", 2}}), 1);
  kept.memory.passed_through = ElementType::f32;
  fill_and_compare(kept, 2);
}

TEST_CASE("blocks and tasks join without a seam", "[oracle]") {
  // Over 1 MiB of rows that no block divides, one long row, and a long vector.
  Model model;
  model.tensors = {{"long", ElementType::u8, Dims{1, 100'003}, TensorKind::parameter},
                   {"rows", ElementType::i64, Dims{150, 31, 32}, TensorKind::parameter},
                   {"scalar", ElementType::i64, Dims{}, TensorKind::buffer},
                   {"vector", ElementType::i64, Dims{140'001}, TensorKind::parameter}};
  Case c(model, layout("fsdp2", {{"dp", 1}}), 0);
  fill_and_compare(c, 1);
}

TEST_CASE("rounding to bf16 goes to the nearest, ties to even", "[oracle]") {
  const auto rounded = [](std::uint32_t bits) {
    const auto source = std::bit_cast<std::array<std::byte, 4>>(bits);
    std::array<std::byte, 2> target{};
    internal::convert(ElementType::f32, ElementType::bf16, source, target);
    return std::bit_cast<std::uint16_t>(target);
  };
  CHECK(rounded(0x3f800000) == 0x3f80);
  CHECK(rounded(0x3f807fff) == 0x3f80);
  CHECK(rounded(0x3f808000) == 0x3f80);  // Half way, even below.
  CHECK(rounded(0x3f808001) == 0x3f81);
  CHECK(rounded(0x3f818000) == 0x3f82);  // Half way, even above.
  CHECK(rounded(0x3fffffff) == 0x4000);
  CHECK(rounded(0xbf818000) == 0xbf82);
  CHECK(rounded(0x7f7fffff) == 0x7f80);  // Beyond bf16's largest: infinity.
  CHECK(rounded(0xff800000) == 0xff80);
  CHECK(rounded(0x7f800001) == 0x7fc0);  // A NaN stays one.
  CHECK(rounded(0xffc00000) == 0xffc0);
  CHECK(rounded(0x00000001) == 0x0000);
  CHECK(rounded(0x80000000) == 0x8000);
}

TEST_CASE("f16 is rounded to, and read, by the same rule", "[oracle]") {
  const auto converted = [](ElementType from, ElementType to, std::uint32_t bits) {
    const auto source = std::bit_cast<std::array<std::byte, 4>>(bits);
    std::array<std::byte, 4> target{};
    internal::convert(from, to, std::span(source).first(size_of(from)),
                      std::span(target).first(size_of(to)));
    return std::bit_cast<std::uint32_t>(target);
  };
  const auto rounded = [&](std::uint32_t bits) {
    return converted(ElementType::f32, ElementType::f16, bits);
  };
  CHECK(rounded(0x3f801000) == 0x3c00);  // Half way, even below.
  CHECK(rounded(0x3f803000) == 0x3c02);  // Half way, even above.
  CHECK(rounded(0x477fefff) == 0x7bff);
  CHECK(rounded(0xc77ff000) == 0xfc00);  // Half way to what would be next: infinity.
  CHECK(rounded(0x387fffff) == 0x0400);  // From below the smallest normal one up to it.
  CHECK(rounded(0x33000000) == 0x0000);  // Half of the smallest, even below.
  CHECK(rounded(0xb3c00000) == 0x8002);  // One and a half of it, even above.
  CHECK(rounded(0xff800001) == 0xfe00);  // A NaN stays one.
  CHECK(converted(ElementType::bf16, ElementType::f16, 0x3f81) == 0x3c08);
  CHECK(converted(ElementType::f16, ElementType::f32, 0x8001) == 0xb3800000);
  CHECK(converted(ElementType::f16, ElementType::f32, 0x3c01) == 0x3f802000);
  CHECK(converted(ElementType::f16, ElementType::f32, 0xfc00) == 0xff800000);
  CHECK(converted(ElementType::f16, ElementType::bf16, 0x3c04) == 0x3f80);  // Half way.
  CHECK(converted(ElementType::f16, ElementType::bf16, 0x7c01) == 0x7fc0);
}

TEST_CASE("any single wrong byte is found and named", "[oracle]") {
  Case c(small_model(ElementType::bf16), layout("vllm", {{"tp", 2}}), 1);
  Workers workers(2);
  REQUIRE(fill_rank(c.memory, 4, c.region, workers).has_value());
  for (std::size_t i = 0; i < c.region.size(); ++i) {
    bool inside = false;
    for (const LocalTensor& local : c.locals) {
      const std::uint64_t start = c.offsets.at(local.name);
      const std::uint64_t bytes = local.rows.size() * static_cast<std::size_t>(local.columns) * 2;
      inside |= i >= start && i < start + bytes;
    }
    if (i % 23 != 0 && inside) continue;  // Each byte of a gap, and some of the others.
    c.region[i] ^= std::byte{0x40};
    const bool equal = compare_rank(c.memory, 4, c.region, workers).has_value();
    c.region[i] ^= std::byte{0x40};
    if (equal == inside) FAIL("byte " << i << (inside ? " inside" : " outside"));
  }
}

TEST_CASE("a difference is reported by where it is and what belongs there", "[oracle]") {
  Case c(small_model(ElementType::bf16), layout("vllm", {{"tp", 2}}), 1);
  Workers workers(2);
  for (Bytes& tensor : c.canonical) {
    for (std::size_t i = 0; i < tensor.size(); i += 2) {
      std::memcpy(tensor.data() + i, "\x80\x3f", 2);  // All ones.
    }
  }
  REQUIRE(fill_rank(c.memory, 0, c.region, workers).has_value());
  // Rank 1 keeps q3 q4 q5, k1, v1 of six rows each: row 19 is row 6 + 1 of k, of 12 columns.
  const std::string merged = "model.layers.1.self_attn.qkv_proj.weight";
  std::memcpy(c.region.data() + c.offsets.at(merged) + (19 * 12 + 5) * 2, "\x00\xc0", 2);
  CHECK(error_of(c) ==
        "rank 1 of vllm:tp=2, version 0: local tensor " + merged +
            " row 19 column 5 should be model.layers.1.self_attn.k_proj.weight[7, 5] = 0x3f80 (1)"
            " but is 0xc000 (-2)");
  // An earlier tensor's difference comes first. Row 36 + 64 of the vocabulary is its first padding.
  const std::string table = "model.embed_tokens.weight";
  std::memcpy(c.region.data() + c.offsets.at(table) + (36 * 12 + 1) * 2, "\x01\x00", 2);
  CHECK(contains(error_of(c), table + " row 36 column 1 should be padding = 0x0000 (0) but is"));

  Case bytes({{}, {{"mask", ElementType::u8, Dims{4}, TensorKind::buffer}}, {}}, layout("hf", {}),
             0);
  REQUIRE(fill_rank(bytes.memory, 0, bytes.region, workers).has_value());
  bytes.canonical[0][2] = std::byte{0x0a};
  bytes.region[3 + 2] = std::byte{0xb0};
  CHECK(contains(error_of(bytes), "should be mask[2] = 0x0a but is 0xb0"));
}

TEST_CASE("places and bytes that do not fit are refused", "[oracle]") {
  const auto refused = [](const std::string& reason, const auto& spoil) {
    Case c(small_model(ElementType::bf16), layout("fsdp2", {{"dp", 2}}), 1);
    spoil(c);
    Workers workers(1);
    const Result<void> filled = fill_rank(c.memory, 0, c.region, workers);
    REQUIRE_FALSE(filled.has_value());
    CHECK(filled.error().text == error_of(c));
    contains(filled.error().text, reason);
  };
  refused("lm_head.weight has two places", [](Case& c) {
    c.memory.places.push_back({"lm_head.weight", 0});
  });
  refused("lm_head.weight has no place", [](Case& c) { c.memory.places.pop_back(); });
  refused("keeps no local tensor extra", [](Case& c) { c.memory.places.push_back({"extra", 0}); });
  refused("ends outside its region", [](Case& c) { c.region.resize(c.region.size() - 6); });
  refused("ends outside its region", [](Case& c) { c.memory.places[0].offset = ~0ULL; });
  refused("overlap; place them apart", [](Case& c) { c.memory.places[1].offset += 6; });
  refused("tensor lm_head.weight has 2400 bytes but 2399 were given",
          [](Case& c) { c.canonical[0].pop_back(); });
  refused("rank 2 is not below dp", [](Case& c) { c.memory.rank = 2; });
}

}  // namespace weir::oracle
