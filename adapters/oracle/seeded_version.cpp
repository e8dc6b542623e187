#include "adapters/oracle/seeded_version.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "runtime/assert.hpp"
#include "runtime/digest.hpp"

namespace weir::oracle {
namespace {

static_assert(std::endian::native == std::endian::little, "lanes are cut from little-endian words");

/// Elements are flipped eight bytes at a time: a word of a tensor holds 8 / size elements, and the
/// flips of its lanes come from one hash of the word's index.
constexpr std::size_t word_bytes = 8;

/// Bijective and well mixed: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Which bits flip, in every lane of a word.
struct Flips {
  std::uint64_t designated = 0;  ///< The same in all words of a version.
  std::uint64_t hashed = 0;      ///< Where bits of the hash are taken.
};

constexpr std::uint64_t all_lanes(std::uint64_t value, std::size_t lane_bytes) noexcept {
  std::uint64_t word = 0;
  for (std::size_t lane = 0; lane < word_bytes; lane += lane_bytes) word |= value << (8 * lane);
  return word;
}

Flips flips_of(ElementType type, std::uint64_t version) noexcept {
  const std::uint64_t pattern = 1 + (version - 1) % 3;
  const auto lanes = [type](std::uint64_t value) { return all_lanes(value, size_of(type)); };
  switch (type) {
    case ElementType::f32:
      return {lanes(pattern << 17), lanes(0x8ffff)};  // Of 23, and never bit 16.
    case ElementType::f16:
      return {lanes(pattern), lanes(0x7c)};  // Of ten bits of mantissa.
    case ElementType::bf16:
      return {lanes(pattern), lanes(0x0c)};  // Of seven.
    case ElementType::f8_e4m3:
      return {lanes(pattern), lanes(0x04)};  // Of three.
    case ElementType::f8_e5m2:
      return {lanes(pattern), lanes(0x80)};  // Of two, and the sign.
    case ElementType::i8:
    case ElementType::u8:
      return {lanes(pattern), lanes(0x0c)};
    case ElementType::i32:
    case ElementType::i64:
      return {lanes(pattern), lanes(0xfc)};
    case ElementType::boolean:
      return {lanes(version % 2), 0};
  }
  return {};
}

/// f8_e4m3 spends only the mantissa 111 of its top exponent on NaN, so that flipping mantissa bits
/// can make one of a finite number. Those lanes get their sign flipped instead: no other version
/// flips the sign, and of three versions in a row at most one would reach NaN.
std::uint64_t without_new_nans(std::uint64_t base, std::uint64_t flipped) noexcept {
  constexpr std::uint64_t magnitude = 0x7f7f7f7f7f7f7f7fULL;
  constexpr std::uint64_t sign = 0x8080808080808080ULL;
  constexpr std::uint64_t one = 0x0101010101010101ULL;
  const std::uint64_t nan = ((flipped & magnitude) + one) & sign;  // Only 0x7f carries into it.
  const std::uint64_t lanes = (nan >> 7) * 0xff;
  return (flipped & ~lanes) | ((base ^ sign) & lanes);
}

template <bool guard_nans>
void flip(const Flips& flips, std::uint64_t key, const VersionRun& run,
          std::span<const std::byte> base, std::span<std::byte> out) noexcept {
  const auto flipped = [&](std::uint64_t word_index, std::uint64_t word) {
    const std::uint64_t hash = mixed(key + word_index * 0x9e3779b97f4a7c15ULL);
    const std::uint64_t result = word ^ flips.designated ^ (hash & flips.hashed);
    return guard_nans ? without_new_nans(word, result) : result;
  };
  // A part of a word, at the head or the tail of the run.
  const auto flip_part = [&](std::uint64_t word_index, std::size_t at, std::size_t from,
                             std::size_t count) {
    std::array<std::byte, word_bytes> lanes{};
    std::memcpy(lanes.data() + from, base.data() + at, count);
    lanes = std::bit_cast<std::array<std::byte, word_bytes>>(
        flipped(word_index, std::bit_cast<std::uint64_t>(lanes)));
    std::memcpy(out.data() + at, lanes.data() + from, count);
  };

  const std::uint64_t first_byte =
      static_cast<std::uint64_t>(run.first_element) * size_of(run.type);
  std::uint64_t word_index = first_byte / word_bytes;
  std::size_t at = 0;
  if (const std::size_t from = first_byte % word_bytes; from != 0) {
    const std::size_t count = std::min(word_bytes - from, base.size());
    flip_part(word_index++, 0, from, count);
    at = count;
  }
  for (; base.size() - at >= word_bytes; at += word_bytes, ++word_index) {
    std::uint64_t word = 0;
    std::memcpy(&word, base.data() + at, word_bytes);
    word = flipped(word_index, word);
    std::memcpy(out.data() + at, &word, word_bytes);
  }
  if (at < base.size()) flip_part(word_index, at, 0, base.size() - at);
}

}  // namespace

std::uint64_t tensor_seed(std::string_view name) noexcept {
  return digest_of(std::as_bytes(std::span(name))).low;
}

void make_version(const VersionRun& run, std::span<const std::byte> base,
                  std::span<std::byte> out) {
  WEIR_ASSERT(base.size() == out.size() && base.size() % size_of(run.type) == 0);
  WEIR_ASSERT(run.first_element >= 0);
  if (base.empty()) return;
  if (run.version == 0) {
    std::memmove(out.data(), base.data(), base.size());
    return;
  }
  const Flips flips = flips_of(run.type, run.version);
  const std::uint64_t key = mixed(run.tensor_seed ^ mixed(run.version));
  if (run.type == ElementType::f8_e4m3) {
    flip<true>(flips, key, run, base, out);
  } else {
    flip<false>(flips, key, run, base, out);
  }
}

}  // namespace weir::oracle
