#pragma once
// The slow oracle of small floating-point types: what each code means, by the definition of such a
// type, and the code nearest to a number, looked for among all of them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/element_type.hpp"

namespace weir {

/// The codes of one type whose sign bit is 0, and what they mean. Not for NaNs.
class CodeTable {
 public:
  /// f16, bf16 or f8_e4m3.
  explicit CodeTable(ElementType type)
      : bits_(type == ElementType::f8_e4m3 ? 8 : 16),
        mantissa_bits_(type == ElementType::f16    ? 10
                       : type == ElementType::bf16 ? 7
                                                   : 3) {
    const int exponent_bits = bits_ - 1 - mantissa_bits_;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    // Of f8_e4m3, 0x7f is NaN, and all before it are numbers. Of the others the highest exponent
    // means infinity, which here has the value that it would have as a number: that is where
    // rounding to infinity begins at half the way.
    const std::uint32_t codes =
        bits_ == 8 ? 0x7f : ((1U << exponent_bits) - 1) * (1U << mantissa_bits_) + 1;
    for (std::uint32_t code = 0; code < codes; ++code) {
      const auto exponent = static_cast<int>(code >> mantissa_bits_);
      const auto mantissa = static_cast<int>(code & ((1U << mantissa_bits_) - 1));
      const int implied = exponent > 0 ? 1 << mantissa_bits_ : 0;
      values_.push_back(
          std::ldexp(implied + mantissa, std::max(exponent, 1) - bias - mantissa_bits_));
    }
  }

  /// From 0, rising; the last one of f16 and bf16 stands for infinity.
  [[nodiscard]] const std::vector<double>& values() const { return values_; }
  [[nodiscard]] std::uint32_t sign_bit() const { return 1U << (bits_ - 1); }
  [[nodiscard]] bool has_infinity() const { return bits_ == 16; }
  /// Whether a code, with its sign, is a NaN.
  [[nodiscard]] bool is_nan(std::uint32_t code) const {
    return (code & (sign_bit() - 1)) >= values_.size();
  }
  /// The value of a code that is no NaN.
  [[nodiscard]] double value(std::uint32_t code) const {
    const std::uint32_t size = code & (sign_bit() - 1);
    const bool infinite = has_infinity() && size + 1 == values_.size();
    const double value = infinite ? HUGE_VAL : values_[size];
    return (code & sign_bit()) != 0 ? -value : value;
  }

  /// The nearest code; of two that are, the even one. The largest one if all are smaller.
  [[nodiscard]] std::uint32_t nearest(double number) const {
    const double size = std::abs(number);
    const auto above = std::lower_bound(values_.begin(), values_.end(), size);
    auto code = static_cast<std::uint32_t>(above - values_.begin());
    if (above == values_.end()) {
      --code;
    } else if (*above != size) {
      const double up = *above - size;
      const double down = size - values_[code - 1];
      if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return code | (std::signbit(number) ? sign_bit() : 0);
  }

 private:
  int bits_;
  int mantissa_bits_;
  std::vector<double> values_;
};

/// Made once for each type.
inline const CodeTable& code_table(ElementType type) {
  static const CodeTable f16(ElementType::f16);
  static const CodeTable bf16(ElementType::bf16);
  static const CodeTable f8(ElementType::f8_e4m3);
  return type == ElementType::f16 ? f16 : type == ElementType::bf16 ? bf16 : f8;
}

/// The bits of an element of f32, f16 or bf16 as another of these types. NaNs keep their sign and
/// as much of the upper payload as there is place for, and become quiet where `quiet` says so.
inline std::uint32_t converted(ElementType source, std::uint32_t bits, ElementType target) {
  const bool single = source == ElementType::f32;
  const int mantissa_bits = single ? 23 : source == ElementType::f16 ? 10 : 7;
  const bool negative = bits >> (single ? 31 : 15) != 0;
  const bool nan =
      single ? std::isnan(std::bit_cast<float>(bits)) : code_table(source).is_nan(bits);
  if (nan) {
    const std::uint32_t payload = (bits & ((1U << mantissa_bits) - 1)) << (23 - mantissa_bits);
    const std::uint32_t quiet =
        source == ElementType::bf16 && target == ElementType::f32 ? 0 : 1U << 22;
    const std::uint32_t wide = (negative ? 0xff80'0000U : 0x7f80'0000U) | quiet | payload;
    if (target == ElementType::f32) return wide;
    if (target == ElementType::bf16) return wide >> 16;
    return (negative ? 0xfc00U : 0x7c00U) | (wide & 0x007f'ffffU) >> 13;
  }
  const double value =
      single ? static_cast<double>(std::bit_cast<float>(bits)) : code_table(source).value(bits);
  if (target != ElementType::f32) return code_table(target).nearest(value);
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));  // Exact.
}

}  // namespace weir
