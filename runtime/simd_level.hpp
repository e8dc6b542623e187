#pragma once
// Which vector instructions this processor has, of those that kernels are written for.

#include <array>
#include <cstdint>
#include <string_view>

namespace weir {

/// Rising: a processor that has one level has all before it.
enum class SimdLevel : std::uint8_t {
  scalar,  ///< No more than the compiler may assume everywhere.
  avx2,    ///< AVX2 and F16C.
  avx512,  ///< AVX-512 F, BW and VL.
};

inline constexpr std::array simd_levels = {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512};

/// The highest level that this processor and its operating system support; found out once.
SimdLevel best_simd_level() noexcept;

/// "scalar", "avx2", "avx512".
std::string_view name_of(SimdLevel level) noexcept;

}  // namespace weir
