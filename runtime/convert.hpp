#pragma once
// Conversions between f32, bf16 and f16 on the way from source to target.
//
// All round to the nearest, ties to the even one (IEEE 754); what is too large becomes infinity,
// subnormal numbers are numbers like others, and a NaN keeps its sign and the upper part of its
// payload. bf16 and f16 become each other as if by way of f32, which holds both exactly, so that
// they are rounded once. The same bits at every `SimdLevel`, whatever the thread has set about
// rounding and subnormal numbers.

#include <cstddef>
#include <cstdint>

#include "runtime/element_type.hpp"
#include "runtime/simd_level.hpp"

namespace weir {

/// Whether `type` is one of those that are converted to one another: f32, bf16 and f16.
constexpr bool is_convertible_float(ElementType type) noexcept {
  return type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16;
}

/// Whether elements of these two different types can be converted while they are copied.
constexpr bool conversion_exists(ElementType source, ElementType target) noexcept {
  return source != target && is_convertible_float(source) && is_convertible_float(target);
}

namespace internal {

/// `number` / 2^`shift`, rounded to the nearest, ties to even. `number` is below 2^24; a shift of
/// 25 or more leaves less than a half of anything.
constexpr std::uint32_t rounded_shift(std::uint32_t number, std::uint32_t shift) noexcept {
  if (shift > 24) return 0;
  // Half a unit less one, plus the last bit that stays: carries exactly when rounding goes up.
  const std::uint32_t odd = (number >> shift) & 1U;
  return (number + (1U << (shift - 1)) - 1 + odd) >> shift;
}

/// How many times 2^`unit` the absolute value of a finite f32 fits, rounded in the same way: the
/// code of a subnormal number whose smallest one is 2^`unit`. Exact where the result is below 2^23.
constexpr std::uint32_t units_of_f32(std::uint32_t bits, int unit) noexcept {
  const std::uint32_t exponent = (bits >> 23) & 0xffU;
  // A subnormal f32 is less than half of any unit that is asked for.
  if (exponent == 0) return 0;
  const std::uint32_t number = (bits & 0x007f'ffffU) | 0x0080'0000U;
  // The value is `number` times 2^(exponent - 150).
  return rounded_shift(number, static_cast<std::uint32_t>(unit + 150) - exponent);
}

}  // namespace internal

/// The bits of the nearest bf16. A NaN becomes quiet.
constexpr std::uint16_t bf16_of_f32(std::uint32_t bits) noexcept {
  if ((bits & 0x7fff'ffffU) > 0x7f80'0000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  }
  // Half a unit less one, plus the last bit that stays: carries exactly when rounding goes up.
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// The bits of the f32 with the same value: exact, and NaNs keep their bits.
constexpr std::uint32_t f32_of_bf16(std::uint16_t bits) noexcept {
  return static_cast<std::uint32_t>(bits) << 16;
}

/// The bits of the nearest f16. A NaN becomes quiet.
constexpr std::uint16_t f16_of_f32(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t size = bits & 0x7fff'ffffU;
  std::uint32_t code = 0;
  if (size > 0x7f80'0000U) {
    code = 0x7e00U | ((size >> 13) & 0x03ffU);
  } else if (size >= 0x4780'0000U) {  // 2^16
    code = 0x7c00U;
  } else if (size >= 0x3880'0000U) {  // 2^-14, the smallest normal f16
    // Exponents count from -127 there and from -15 here. A carry may reach infinity, and should.
    code = ((size + 0x0fffU + ((size >> 13) & 1U)) >> 13) - ((127U - 15U) << 10);
  } else {
    code = internal::units_of_f32(size, -24);
  }
  return static_cast<std::uint16_t>(sign | code);
}

/// The bits of the f32 with the same value: exact. A NaN becomes quiet.
constexpr std::uint32_t f32_of_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t size = bits & 0x7fffU;
  if (size > 0x7c00U) return sign | 0x7fc0'0000U | (size & 0x03ffU) << 13;
  if (size == 0x7c00U) return sign | 0x7f80'0000U;
  if (size >= 0x0400U) return sign | ((size << 13) + ((127U - 15U) << 23));
  if (size == 0) return sign;
  // A subnormal f16 is `size` times 2^-24. Its leading bit goes to where f32 has it implied.
  const auto lead = static_cast<std::uint32_t>(31 - __builtin_clz(size));
  return sign | ((127U - 24U + lead) << 23) | ((size << (23U - lead)) & 0x007f'ffffU);
}

/// Which types a run is converted between.
struct TypePair {
  ElementType source = ElementType::f32;
  ElementType target = ElementType::f32;
};

/// Converts `count` dense elements as `types` says, which must exist. Neither side needs to
/// be aligned; they must not overlap. Uses non-temporal stores for long runs. The processor must
/// have `level`. Threading: any number of calls with disjoint targets at once.
void convert_run(TypePair types, std::byte* target, const std::byte* source, std::size_t count,
                 SimdLevel level = best_simd_level()) noexcept;

}  // namespace weir
