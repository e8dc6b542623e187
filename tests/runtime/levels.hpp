#pragma once
// Runs of elements in random places, and kernels run over them at each level that the machine has.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/simd_level.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weir {

inline std::vector<SimdLevel> levels_here() {
  std::vector<SimdLevel> levels;
  for (const SimdLevel level : simd_levels) {
    if (level <= best_simd_level()) levels.push_back(level);
  }
  return levels;
}

/// While it lives, this thread rounds downwards and takes subnormal numbers for zero, where that
/// can be set.
class OddArithmetic {
 public:
#if defined(__x86_64__)
  OddArithmetic() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040U | 0x2000U);
  }
  ~OddArithmetic() {
    _mm_setcsr(before_);
  }
#else
  OddArithmetic() = default;
#endif
  OddArithmetic(const OddArithmetic&) = delete;
  OddArithmetic& operator=(const OddArithmetic&) = delete;

 private:
  unsigned before_ = 0;
};

struct Run {
  const std::byte* source = nullptr;  ///< Of random bits.
  std::size_t count = 0;              ///< Of elements.
  std::size_t target_bytes = 0;
  std::size_t target_skew = 0;  ///< Where it begins after a multiple of 64.
};

/// Calls `use` with runs of every short length and some long ones, at any alignment.
template <class Use>
void for_each_run(std::mt19937_64& random, std::size_t source_bytes, std::size_t target_bytes,
                  const Use& use) {
  for (std::size_t count = 0; count < 9000; count += count < 140 ? 1 : 1 + random() % 2500) {
    // Half of them on the target's own grid, which streaming needs.
    const std::size_t skew = random() % 64;
    const std::size_t source_skew = random() % 64;
    std::vector<std::byte> source(count * source_bytes + source_skew);
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    use(Run{.source = source.data() + source_skew,
            .count = count,
            .target_bytes = count * target_bytes,
            .target_skew = random() % 2 == 0 ? skew : skew / target_bytes * target_bytes});
  }
}

/// Runs `kernel(target, level)` at each level, also in odd arithmetic: it must write `expected`,
/// and nothing else.
template <class Kernel>
void require_at_every_level(const Run& run, const std::vector<std::byte>& expected,
                            const Kernel& kernel) {
  constexpr std::size_t guard = 64;
  constexpr std::byte untouched{0xa5};
  std::vector<std::byte> memory(run.target_bytes + 4 * guard);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const target = memory.data() + (guard - address % guard) + guard + run.target_skew;
  for (const SimdLevel level : levels_here()) {
    for (const bool odd : {false, true}) {
      std::ranges::fill(memory, untouched);
      if (odd) {
        const OddArithmetic arithmetic;
        kernel(target, level);
      } else {
        kernel(target, level);
      }
      INFO(name_of(level) << ", " << run.count << " elements, skew " << run.target_skew
                          << (odd ? ", odd arithmetic" : ""));
      const bool right =
          run.target_bytes == 0 || std::memcmp(target, expected.data(), run.target_bytes) == 0;
      REQUIRE(right);
      const auto guarded = [](const std::byte* begin, const std::byte* end) {
        return std::all_of(begin, end, [](std::byte byte) { return byte == untouched; });
      };
      REQUIRE(guarded(memory.data(), target));
      REQUIRE(guarded(target + run.target_bytes, memory.data() + memory.size()));
    }
  }
}

}  // namespace weir
