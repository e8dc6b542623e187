#pragma once
// Element conversions on the way from source to target: f32 to bf16 and back.

#include <cstddef>
#include <cstdint>

#include "runtime/element_type.hpp"

namespace weir {

/// Whether elements of these two different types can be converted while they are copied.
constexpr bool conversion_exists(ElementType source, ElementType target) noexcept {
  return (source == ElementType::f32 && target == ElementType::bf16) ||
         (source == ElementType::bf16 && target == ElementType::f32);
}

/// The bits of the nearest bf16, ties to the even one; what is too large becomes infinity (IEEE
/// 754 round to nearest). A NaN keeps its sign and upper payload and becomes quiet.
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

/// The same for `count` dense elements; neither side needs to be aligned.
void bf16_run_of_f32(std::byte* target, const std::byte* source, std::size_t count) noexcept;
void f32_run_of_bf16(std::byte* target, const std::byte* source, std::size_t count) noexcept;

}  // namespace weir
