#pragma once
// The three floating-point types that are converted to one another, as types: their bits, and how
// these become those of an f32 and come from them.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/convert.hpp"

namespace weir::internal {

struct F32 {
  using Bits = std::uint32_t;
  static constexpr std::uint32_t widen(Bits bits) noexcept { return bits; }
  static constexpr Bits narrow(std::uint32_t bits) noexcept { return bits; }
};

struct F16 {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t widen(Bits bits) noexcept { return f32_of_f16(bits); }
  static constexpr Bits narrow(std::uint32_t bits) noexcept { return f16_of_f32(bits); }
};

struct Bf16 {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t widen(Bits bits) noexcept { return f32_of_bf16(bits); }
  static constexpr Bits narrow(std::uint32_t bits) noexcept { return bf16_of_f32(bits); }
};

template <class Bits>
Bits load(const std::byte* from) noexcept {
  Bits bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

template <class Bits>
void store(std::byte* to, Bits bits) noexcept {
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace weir::internal
