#include "adapters/oracle/internal/narrowing.hpp"

#include <cstdint>
#include <cstring>

#include "runtime/assert.hpp"

namespace weir::oracle::internal {
namespace {

/// A bf16 is the upper half of an f32. What is cut off decides: more than half a step of the upper
/// half goes up, less goes down, and exactly half goes to the even neighbour. A carry out of the
/// mantissa raises the exponent, which is right, up to infinity.
std::uint16_t narrowed(std::uint32_t bits) noexcept {
  const std::uint32_t upper = bits >> 16;
  const std::uint32_t lower = bits & 0xffff;
  const bool nan = (bits & 0x7f800000) == 0x7f800000 && (bits & 0x007fffff) != 0;
  const bool up = lower > 0x8000 || (lower == 0x8000 && (upper & 1) == 1);
  // The quiet bit keeps a NaN whose payload lies in the lower half from becoming infinity.
  return static_cast<std::uint16_t>(nan ? upper | 0x0040 : upper + (up ? 1 : 0));
}

}  // namespace

void convert(ElementType from, ElementType to, std::span<const std::byte> source,
             std::span<std::byte> target) {
  const std::size_t count = source.size() / size_of(from);
  WEIR_ASSERT(target.size() / size_of(to) == count);
  if (from == ElementType::f32 && to == ElementType::bf16) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t wide = 0;
      std::memcpy(&wide, source.data() + 4 * i, 4);
      const std::uint16_t narrow = narrowed(wide);
      std::memcpy(target.data() + 2 * i, &narrow, 2);
    }
    return;
  }
  WEIR_ASSERT(from == ElementType::bf16 && to == ElementType::f32);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t narrow = 0;
    std::memcpy(&narrow, source.data() + 2 * i, 2);
    const std::uint32_t wide = static_cast<std::uint32_t>(narrow) << 16;
    std::memcpy(target.data() + 4 * i, &wide, 4);
  }
}

}  // namespace weir::oracle::internal
