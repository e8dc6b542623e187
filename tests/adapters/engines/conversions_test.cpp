#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/safetensors/safetensors.hpp"
#include "runtime/convert.hpp"
#include "runtime/quantize.hpp"

// Goal: conversions give what PyTorch's casts and vLLM's own quantization give. Method: golden
// files that came out of them (tests/engines/conversions_dump.py) hold sources and results; all
// bits must agree, but that any NaN is as good as another.

namespace weir {

namespace {

class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(SafetensorsFile::open(std::filesystem::path(WEIR_GOLDEN_FOLDER) / "conversions" /
                                    name / "values.safetensors")
                  .value()) {}

  [[nodiscard]] std::span<const std::byte> operator[](std::string_view name) const {
    const auto& tensors = file_->tensors();
    const auto found = std::ranges::find(tensors, name, &FileTensor::name);
    REQUIRE(found != tensors.end());
    return file_->data(static_cast<std::size_t>(found - tensors.begin()));
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

std::uint32_t bits_at(std::span<const std::byte> bytes, std::size_t index, std::size_t size) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes.subspan(index * size, size).data(), size);
  return bits;
}

float f32_at(std::span<const std::byte> bytes, std::size_t index) {
  return std::bit_cast<float>(bits_at(bytes, index, 4));
}

bool is_nan(ElementType type, std::uint32_t bits) {
  switch (type) {
    case ElementType::f32:
      return (bits & 0x7fff'ffffU) > 0x7f80'0000U;
    case ElementType::f16:
      return (bits & 0x7fffU) > 0x7c00U;
    case ElementType::bf16:
      return (bits & 0x7fffU) > 0x7f80U;
    default:
      return type == ElementType::f8_e4m3 && (bits & 0x7fU) == 0x7fU;
  }
}

void require_same(ElementType type, std::span<const std::byte> got,
                  std::span<const std::byte> expected) {
  REQUIRE(got.size() == expected.size());
  REQUIRE(!got.empty());
  for (std::size_t i = 0; i < got.size() / size_of(type); ++i) {
    const std::uint32_t a = bits_at(got, i, size_of(type));
    const std::uint32_t b = bits_at(expected, i, size_of(type));
    if (a == b || (is_nan(type, a) && is_nan(type, b))) continue;
    FAIL("element " << i << " is " << a << ", not " << b);
  }
}

void require_same_float(float got, float expected) {
  const auto a = std::bit_cast<std::uint32_t>(got);
  const auto b = std::bit_cast<std::uint32_t>(expected);
  if (!is_nan(ElementType::f32, a) || !is_nan(ElementType::f32, b)) REQUIRE(a == b);
}

/// A matrix of which each block has a scale; a block of one row that is as wide as it, a channel.
struct Blocks {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t block_rows = 0;
  std::size_t block_columns = 0;

  /// Calls `use(block, rows' first elements, elements of each)`, blocks counted row by row.
  template <class Use>
  void for_each(const Use& use) const {
    std::size_t block = 0;
    for (std::size_t row = 0; row < rows; row += block_rows) {
      for (std::size_t column = 0; column < columns; column += block_columns, ++block) {
        std::vector<std::size_t> first;
        for (std::size_t i = row; i < std::min(row + block_rows, rows); ++i) {
          first.push_back(i * columns + column);
        }
        use(block, first, std::min(block_columns, columns - column));
      }
    }
  }
};

constexpr Blocks golden_blocks{
    .rows = 140, .columns = 300, .block_rows = 128, .block_columns = 128};
constexpr Blocks golden_channels{.rows = 8, .columns = 500, .block_rows = 1, .block_columns = 500};

void check_quantized(const Blocks& blocks, Scaling scaling, ElementType type,
                     std::span<const std::byte> weights, std::span<const std::byte> codes,
                     std::span<const std::byte> scales) {
  std::vector<std::byte> ours(codes.size());
  blocks.for_each([&](std::size_t block, const std::vector<std::size_t>& rows, std::size_t count) {
    float absmax = 0;
    for (const std::size_t at : rows) {
      absmax = absmax_run(type, weights.data() + at * size_of(type), count, absmax);
    }
    const float scale = scale_of(scaling, absmax);
    require_same_float(scale, f32_at(scales, block));
    for (const std::size_t at : rows) {
      quantize_run(scaling, scale, ours.data() + at, type, weights.data() + at * size_of(type),
                   count);
    }
  });
  require_same(code_type(scaling), ours, codes);
}

void check_dequantized(const Blocks& blocks, TypePair types, std::span<const std::byte> codes,
                       std::span<const std::byte> scales, std::span<const std::byte> expected) {
  std::vector<std::byte> ours(expected.size());
  blocks.for_each([&](std::size_t block, const std::vector<std::size_t>& rows, std::size_t count) {
    for (const std::size_t at : rows) {
      dequantize_run(types, f32_at(scales, block), ours.data() + at * size_of(types.target),
                     codes.data() + at, count);
    }
  });
  require_same(types.target, ours, expected);
}

}  // namespace

TEST_CASE("casts are those of PyTorch", "[engines][conversions]") {
  const Golden golden("casts");
  constexpr ElementType floats[] = {ElementType::f32, ElementType::f16, ElementType::bf16};
  for (const ElementType source : floats) {
    for (const ElementType target : floats) {
      if (source == target) continue;
      const std::string name(name_of(source));
      const std::span<const std::byte> values = golden[name];
      const std::size_t count = values.size() / size_of(source);
      std::vector<std::byte> ours(count * size_of(target));
      convert_run({.source = source, .target = target}, ours.data(), values.data(), count);
      CAPTURE(name, name_of(target));
      require_same(target, ours, golden[name + "_to_" + std::string(name_of(target))]);
    }
  }
  const std::span<const std::byte> values = golden["f32"];
  std::vector<std::byte> codes(values.size() / 4);
  quantize_run(Scaling::f8_block, 1, codes.data(), ElementType::f32, values.data(), codes.size());
  require_same(ElementType::f8_e4m3, codes, golden["f32_to_f8_e4m3"]);
  std::vector<std::byte> back(4 * golden["f8_e4m3"].size());
  dequantize_run({.source = ElementType::f8_e4m3, .target = ElementType::f32}, 1, back.data(),
                 golden["f8_e4m3"].data(), golden["f8_e4m3"].size());
  require_same(ElementType::f32, back, golden["f8_e4m3_to_f32"]);
}

TEST_CASE("FP8 with scales of blocks is that of vLLM", "[engines][conversions]") {
  const Golden golden("blocks");
  check_quantized(golden_blocks, Scaling::f8_block, ElementType::bf16, golden["weights"],
                  golden["codes"], golden["scales"]);
  check_quantized(golden_blocks, Scaling::f8_block_ue8m0, ElementType::bf16, golden["weights"],
                  golden["ue8m0_codes"], golden["ue8m0_scales"]);
  check_dequantized(golden_blocks, {.source = ElementType::f8_e4m3, .target = ElementType::bf16},
                    golden["codes"], golden["scales"], golden["dequantized"]);
}

TEST_CASE("FP8 and INT8 with scales of channels are those of vLLM", "[engines][conversions]") {
  const Golden golden("channels");
  check_quantized(golden_channels, Scaling::f8_channel, ElementType::f32, golden["weights"],
                  golden["f8_codes"], golden["f8_scales"]);
  check_quantized(golden_channels, Scaling::i8_channel, ElementType::f32, golden["weights"],
                  golden["i8_codes"], golden["i8_scales"]);
  check_dequantized(golden_channels, {.source = ElementType::i8, .target = ElementType::f16},
                    golden["i8_codes"], golden["i8_scales"], golden["i8_dequantized"]);
}

}  // namespace weir
