#include "runtime/simd_level.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weir {
namespace {

#if defined(__x86_64__)
SimdLevel found_level() noexcept {
  // Not every compiler's __builtin_cpu_supports knows "f16c". Its registers are those of AVX2.
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1U << 29)) != 0;
  __builtin_cpu_init();
  if (!f16c || !__builtin_cpu_supports("avx2")) return SimdLevel::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  return avx512 ? SimdLevel::avx512 : SimdLevel::avx2;
}
#else
SimdLevel found_level() noexcept {
  return SimdLevel::scalar;
}
#endif

}  // namespace

SimdLevel best_simd_level() noexcept {
  static const SimdLevel level = found_level();
  return level;
}

std::string_view name_of(SimdLevel level) noexcept {
  constexpr std::array<std::string_view, simd_levels.size()> names = {"scalar", "avx2", "avx512"};
  return names[static_cast<std::size_t>(level)];
}

}  // namespace weir
