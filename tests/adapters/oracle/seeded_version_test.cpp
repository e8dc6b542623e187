#include "adapters/oracle/seeded_version.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "adapters/oracle/internal/narrowing.hpp"

namespace weir::oracle {
namespace {

// Goal: versions can't be taken for one another, and what an element becomes depends on nothing but
// its tensor, place and version. Method: all values that a small type has, random ones of the wide
// types, decoded here by the formats' definitions.

constexpr ElementType all_types[] = {ElementType::f32,     ElementType::f16,     ElementType::bf16,
                                     ElementType::f8_e4m3, ElementType::f8_e5m2, ElementType::i8,
                                     ElementType::u8,      ElementType::i32,     ElementType::i64,
                                     ElementType::boolean};

using Bytes = std::vector<std::byte>;

/// Every value of types of up to two bytes (of one byte, 16 times), random bits of wider ones.
Bytes values_of(ElementType type) {
  const std::size_t count = size_of(type) == 2 ? 65536 : 4096;
  std::mt19937_64 random(7);
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = size_of(type) <= 2 ? i : random();
    if (type == ElementType::boolean) bits &= 1;
    std::memcpy(bytes.data() + i * size_of(type), &bits, size_of(type));
  }
  return bytes;
}

Bytes version_of(ElementType type, std::uint64_t version, const Bytes& base) {
  Bytes out(base.size());
  make_version({type, version, tensor_seed("a tensor"), 0}, base, out);
  return out;
}

std::uint64_t bits_at(const Bytes& bytes, ElementType type, std::size_t element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + element * size_of(type), size_of(type));
  return bits;
}

/// Elements that are bit for bit the same.
std::size_t equal_elements(ElementType type, const Bytes& a, const Bytes& b) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.size() / size_of(type); ++i) {
    equal += bits_at(a, type, i) == bits_at(b, type, i) ? 1 : 0;
  }
  return equal;
}

/// The value of a float of any of the five formats, by sign, exponent and mantissa.
double value_of(ElementType type, std::uint64_t bits) {
  struct Format {
    int exponent_bits, mantissa_bits;
  };
  const Format format = type == ElementType::f32       ? Format{8, 23}
                        : type == ElementType::f16     ? Format{5, 10}
                        : type == ElementType::bf16    ? Format{8, 7}
                        : type == ElementType::f8_e4m3 ? Format{4, 3}
                                                       : Format{5, 2};
  const auto mantissa = static_cast<std::int64_t>(bits & ((1U << format.mantissa_bits) - 1));
  const auto exponent =
      static_cast<int>((bits >> format.mantissa_bits) & ((1U << format.exponent_bits) - 1));
  const bool negative = ((bits >> (format.mantissa_bits + format.exponent_bits)) & 1) == 1;
  const int top = (1 << format.exponent_bits) - 1;
  const std::int64_t one = std::int64_t{1} << format.mantissa_bits;
  if (type == ElementType::f8_e4m3) {
    if (exponent == top && mantissa == one - 1) return std::nan("");  // The only ones, no infinity.
  } else if (exponent == top) {
    return mantissa == 0 ? HUGE_VAL : std::nan("");
  }
  const int bias = top / 2;
  const double magnitude =
      exponent == 0
          ? std::ldexp(static_cast<double>(mantissa), 1 - bias - format.mantissa_bits)
          : std::ldexp(static_cast<double>(one + mantissa), exponent - bias - format.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

bool floating(ElementType type) {
  return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16 ||
         type == ElementType::f8_e4m3 || type == ElementType::f8_e5m2;
}

}  // namespace

TEST_CASE("version 0 is the base", "[oracle]") {
  for (const ElementType type : all_types) {
    const Bytes base = values_of(type);
    CHECK(version_of(type, 0, base) == base);
  }
}

TEST_CASE("every element differs between neighbouring versions and from the base", "[oracle]") {
  for (const ElementType type : all_types) {
    INFO(name_of(type));
    const Bytes base = values_of(type);
    std::vector<Bytes> versions;
    for (std::uint64_t version = 0; version <= 8; ++version) {
      versions.push_back(version_of(type, version, base));
    }
    for (std::size_t v = 1; v < versions.size(); ++v) {
      INFO("version " << v);
      CHECK(equal_elements(type, versions[v], versions[v - 1]) == 0);
      if (type == ElementType::boolean) continue;
      CHECK(equal_elements(type, versions[v], base) == 0);
      if (v >= 2) CHECK(equal_elements(type, versions[v], versions[v - 2]) == 0);
      // Three apart, each hashed bit agrees half the time; there is at least one.
      const std::size_t count = base.size() / size_of(type);
      if (v >= 4) CHECK(equal_elements(type, versions[v], versions[v - 3]) < count * 6 / 10);
    }
  }
}

TEST_CASE("a bool stays a bool and is flipped in odd versions", "[oracle]") {
  const Bytes base = values_of(ElementType::boolean);
  const Bytes odd = version_of(ElementType::boolean, 5, base);
  CHECK(equal_elements(ElementType::boolean, odd, base) == 0);
  for (const std::byte value : odd) REQUIRE(std::to_integer<int>(value) <= 1);
  CHECK(version_of(ElementType::boolean, 6, base) == base);
}

TEST_CASE("finite floats stay finite and near", "[oracle]") {
  for (const ElementType type : all_types) {
    if (!floating(type)) continue;
    INFO(name_of(type));
    const double bound = type == ElementType::f8_e4m3   ? 0.88
                         : type == ElementType::f8_e5m2 ? 0.75
                                                        : 0.13;
    const double smallest = type == ElementType::f32 || type == ElementType::bf16 ? 0x1p-126
                            : type == ElementType::f8_e4m3                        ? 0x1p-6
                                                                                  : 0x1p-14;
    const Bytes base = values_of(type);
    for (std::uint64_t version = 1; version <= 7; ++version) {
      const Bytes changed = version_of(type, version, base);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < base.size() / size_of(type); ++i) {
        const double before = std::abs(value_of(type, bits_at(base, type, i)));
        const double after = std::abs(value_of(type, bits_at(changed, type, i)));
        if (!std::isfinite(before)) continue;
        wrong += std::isfinite(after) ? 0 : 1;
        if (before >= smallest) wrong += std::abs(after - before) <= bound * before ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("integers change by less than the stated bound", "[oracle]") {
  const auto largest_flip = [](ElementType type) {
    const Bytes base = values_of(type);
    std::uint64_t largest = 0;
    for (std::uint64_t version = 1; version <= 4; ++version) {
      const Bytes changed = version_of(type, version, base);
      for (std::size_t i = 0; i < base.size() / size_of(type); ++i) {
        largest = std::max(largest, bits_at(base, type, i) ^ bits_at(changed, type, i));
      }
    }
    return largest;
  };
  CHECK(largest_flip(ElementType::i8) == 15);
  CHECK(largest_flip(ElementType::u8) == 15);
  CHECK(largest_flip(ElementType::i32) == 255);
  CHECK(largest_flip(ElementType::i64) == 255);
}

TEST_CASE("f32 versions still differ in every element once rounded to bf16", "[oracle]") {
  Bytes base = values_of(ElementType::f32);
  for (std::size_t i = 0; i < base.size(); i += 4) {
    base[i + 3] &= std::byte{0xbf};  // Exponents below that of infinity.
    if (i % 16 == 0) std::memcpy(base.data() + i, "\x00\x80", 2);  // Ties, where rounding is rude.
    if (i % 16 == 4) std::memcpy(base.data() + i, "\xff\xff", 2);
  }
  std::vector<Bytes> narrowed;
  for (std::uint64_t version = 0; version <= 7; ++version) {
    narrowed.emplace_back(base.size() / 2);
    internal::convert(ElementType::f32, ElementType::bf16,
                      version_of(ElementType::f32, version, base), narrowed.back());
  }
  for (std::size_t v = 1; v < narrowed.size(); ++v) {
    CHECK(equal_elements(ElementType::bf16, narrowed[v], narrowed[v - 1]) == 0);
    CHECK(equal_elements(ElementType::bf16, narrowed[v], narrowed[0]) == 0);
  }
}

TEST_CASE("an element does not depend on how its tensor is cut into runs", "[oracle]") {
  std::mt19937_64 random(11);
  for (const ElementType type : all_types) {
    INFO(name_of(type));
    Bytes base = values_of(type);
    base.resize(1000 * size_of(type));
    const Bytes whole = version_of(type, 3, base);
    for (int round = 0; round < 50; ++round) {
      Bytes parts = base;  // Changed in place, run by run.
      for (std::size_t at = 0; at < 1000;) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 40, 1000 - at);
        const auto run = std::span(parts).subspan(at * size_of(type), count * size_of(type));
        make_version({type, 3, tensor_seed("a tensor"), static_cast<std::int64_t>(at)}, run, run);
        at += count;
      }
      REQUIRE(parts == whole);
    }
  }
}

TEST_CASE("the same bytes become others in another tensor or at another place", "[oracle]") {
  const Bytes base(65536);  // All zeros: only what is flipped is left.
  const auto made = [&](const char* tensor, std::int64_t first) {
    Bytes out(base.size());
    make_version({ElementType::bf16, 1, tensor_seed(tensor), first}, base, out);
    return out;
  };
  // Two hashed bits: a quarter of 32768 elements agree by chance.
  CHECK(equal_elements(ElementType::bf16, made("a", 0), made("b", 0)) < 9000);
  CHECK(equal_elements(ElementType::bf16, made("a", 0), made("a", 4)) < 9000);
  CHECK(equal_elements(ElementType::bf16, made("a", 0), made("a", 1)) < 9000);
  CHECK(made("a", 8) == made("a", 8));
}

TEST_CASE("no bytes become no bytes", "[oracle]") {
  make_version({ElementType::bf16, 1, 0, 5}, {}, {});
  SUCCEED();
}

}  // namespace weir::oracle
