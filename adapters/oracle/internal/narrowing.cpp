#include "adapters/oracle/internal/narrowing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
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

/// An f16 by arithmetic: whole steps of the size that floats have at that place, or of 2^-24 where
/// that is larger. Dividing by a power of two is exact, and nearbyint rounds ties to even.
std::uint32_t narrowed_to_f16(std::uint32_t bits) noexcept {
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const double size = std::abs(double{std::bit_cast<float>(bits)});
  if (std::isnan(size)) return sign | 0x7e00 | (bits >> 13 & 0x03ff);
  if (size >= 65520) return sign | 0x7c00;
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  // 1024 steps are implied in the exponent above the lowest; one too many carries into it.
  return sign | (static_cast<std::uint32_t>(exponent + 14) * 1024 + steps);
}

std::uint32_t widened_from_f16(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000) << 16;
  const auto exponent = static_cast<int>(bits >> 10 & 0x1f);
  const std::uint32_t mantissa = bits & 0x03ff;
  if (exponent == 0x1f) {
    return sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x00400000U : 0);
  }
  const double steps = exponent == 0 ? mantissa : mantissa + 1024;
  const double size = std::ldexp(steps, std::max(exponent, 1) - 25);
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(size));
}

std::uint32_t f32_of(ElementType type, std::uint32_t bits) noexcept {
  WEIR_ASSERT(type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16);
  if (type == ElementType::f32) return bits;
  return type == ElementType::bf16 ? bits << 16 : widened_from_f16(bits);
}

std::uint32_t from_f32(ElementType type, std::uint32_t bits) noexcept {
  WEIR_ASSERT(type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16);
  if (type == ElementType::f32) return bits;
  return type == ElementType::bf16 ? narrowed(bits) : narrowed_to_f16(bits);
}

}  // namespace

void convert(ElementType from, ElementType to, std::span<const std::byte> source,
             std::span<std::byte> target) {
  const std::size_t count = source.size() / size_of(from);
  WEIR_ASSERT(target.size() / size_of(to) == count);
  // Whole models go through the first two loops, which compilers make fast.
  if (from == ElementType::f32 && to == ElementType::bf16) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t wide = 0;
      std::memcpy(&wide, source.data() + 4 * i, 4);
      const std::uint16_t narrow = narrowed(wide);
      std::memcpy(target.data() + 2 * i, &narrow, 2);
    }
    return;
  }
  if (from == ElementType::bf16 && to == ElementType::f32) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t narrow = 0;
      std::memcpy(&narrow, source.data() + 2 * i, 2);
      const std::uint32_t wide = static_cast<std::uint32_t>(narrow) << 16;
      std::memcpy(target.data() + 4 * i, &wide, 4);
    }
    return;
  }
  WEIR_ASSERT(from != to && (from == ElementType::f16 || to == ElementType::f16));
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, source.data() + size_of(from) * i, size_of(from));
    bits = from_f32(to, f32_of(from, bits));
    std::memcpy(target.data() + size_of(to) * i, &bits, size_of(to));
  }
}

}  // namespace weir::oracle::internal
