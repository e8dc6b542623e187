#pragma once
// Numbers that a seed decides, the same on every machine: randomness as an argument, so that a seed
// and a commit replay a whole run.

#include <cstddef>
#include <cstdint>

#include "runtime/assert.hpp"

namespace weir {

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014),
/// which gives the same numbers everywhere. Not for secrets. Threading: one thread at a time.
/// Bounds are met by remainder: the bias is below bound / 2^64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  /// From 0 to `bound` - 1; a bound of 0 is a bug.
  std::size_t below(std::size_t bound) {
    WEIR_ASSERT(bound > 0);
    return static_cast<std::size_t>(next() % bound);
  }
  /// From `least` to `most`, both included; `least` greater than `most` is a bug.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    WEIR_ASSERT(least <= most);
    const std::uint64_t span = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
    const std::uint64_t step = span + 1 == 0 ? next() : next() % (span + 1);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(least) + step);
  }
  /// True `numerator` times out of `denominator`.
  bool chance(std::uint64_t numerator, std::uint64_t denominator) {
    return below(denominator) < numerator;
  }

 private:
  std::uint64_t state_;
};

}  // namespace weir
