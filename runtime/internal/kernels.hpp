#pragma once
// The inner loops of conversions, one set for each level of vector instructions.

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/element_type.hpp"
#include "runtime/simd_level.hpp"

namespace weir::internal {

/// f32, f16 and bf16, in the order of `ElementType`.
inline constexpr std::size_t float_types = 3;
static_assert(static_cast<int>(ElementType::f32) == 0 && static_cast<int>(ElementType::f16) == 1 &&
              static_cast<int>(ElementType::bf16) == 2);

constexpr std::size_t float_index(ElementType type) noexcept {
  return static_cast<std::size_t>(type);
}

/// f8_e4m3 and i8.
inline constexpr std::size_t code_types = 2;

constexpr std::size_t code_index(ElementType type) noexcept {
  return type == ElementType::i8 ? 1 : 0;
}

/// What becomes of an element x on its way to a code.
enum class Division : std::uint8_t {
  exact,          ///< x / scale
  by_reciprocal,  ///< x * (1 / scale)
};

using ConvertRun = void (*)(std::byte* target, const std::byte* source, std::size_t count) noexcept;
using ScaledRun = void (*)(float scale, std::byte* target, const std::byte* source,
                           std::size_t count) noexcept;
/// The largest of the elements' bits without sign; the order of bits is that of values, with NaNs
/// above infinity.
using AbsmaxRun = std::uint32_t (*)(const std::byte* source, std::size_t count) noexcept;

/// Targets of runs of at least `stream_target_bytes_min` are visible to other threads only after
/// `stream_fence`. Those with a scale count on the usual floating-point environment.
struct Kernels {
  /// By source and target; none from a type to itself.
  std::array<std::array<ConvertRun, float_types>, float_types> convert;
  std::array<AbsmaxRun, float_types> absmax;
  /// By division, source and code.
  std::array<std::array<std::array<ScaledRun, code_types>, float_types>, 2> quantize;
  /// By code and target.
  std::array<std::array<ScaledRun, float_types>, code_types> dequantize;
};

/// Whole lines of a target are written past the cache from here on.
inline constexpr std::size_t stream_target_bytes_min = 4096;

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

/// Those of a level that this processor has.
const Kernels& kernels_of(SimdLevel level) noexcept;

}  // namespace weir::internal
