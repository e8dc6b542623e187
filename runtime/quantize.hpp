#pragma once
// Weights as 8-bit codes and a scale: value = code * scale. One run of dense elements at a time,
// with a scale for each block or channel that its owner cuts a tensor into.
//
// A NaN or an infinity never vanishes: it makes the scale of its block NaN or infinite, and every
// code of that block then stands for NaN (a finite number over infinity is 0, and 0 times infinity
// is NaN). PyTorch's arithmetic has the same outcome in all the formulas below.
//
// All arithmetic is that of IEEE 754 in f32, each operation rounded to the nearest, ties to even:
// the same bits at every `SimdLevel`. On x86 that holds whatever the thread has set about rounding
// and subnormal numbers. GPU kernels may differ in the last bit of a scale, since not all of them
// divide exactly.
//
// Threading: any number of calls with disjoint targets at once. Neither side of a run needs to be
// aligned, they must not overlap, and the processor must have the level that is asked for.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/convert.hpp"
#include "runtime/element_type.hpp"
#include "runtime/simd_level.hpp"

namespace weir {

/// How the scale s of a block or channel comes from its largest absolute value, and codes from it.
/// Engines round differently, so each of these does what those who quantize the same thing do.
enum class Scaling : std::uint8_t {
  /// s = max(absmax, 1e-4) / 448; code = x * (1 / s). DeepGEMM's per_block_cast_to_fp8, as vLLM
  /// and SGLang have it for blocks of 128 x 128; slime's differs in the least absmax, 1e-10.
  /// (DeepSeek's act_quant, which is for activations, divides by s.)
  f8_block,
  /// The same with s rounded up to a power of two, 2^ceil(log2 s), as ue8m0 can hold it. By bits,
  /// as in SGLang, so that it is exact also where a rounded logarithm is not.
  f8_block_ue8m0,
  /// s = max(absmax / 448, 1 / (448 * 512)); code = x / s. vLLM's weights with a scale for each
  /// output channel. The least scale is what a channel of zeros gets.
  f8_channel,
  /// s = absmax / 127; code = x / s in [-127, 127]. vLLM's int8 weights with a scale for each
  /// output
  /// channel. Where s is 0, it is 2^-23 instead, as in compressed-tensors (which else differs: it
  /// uses [-128, 127] and absmax / 127.5).
  i8_channel,
};

/// The type of the codes: f8_e4m3 or i8.
constexpr ElementType code_type(Scaling scaling) noexcept {
  return scaling == Scaling::i8_channel ? ElementType::i8 : ElementType::f8_e4m3;
}

/// The code of the f8_e4m3 nearest to an f32 given by its bits, ties to even. That type has no
/// infinity: what is larger than 448 becomes 448 of the same sign. A NaN becomes 0x7f.
constexpr std::uint8_t f8_e4m3_of_f32(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t size = bits & 0x7fff'ffffU;
  if (size > 0x7f80'0000U) return 0x7f;
  std::uint32_t code = 0x7e;
  if (size < 0x3c80'0000U) {  // 2^-6, the smallest normal one
    code = internal::units_of_f32(size, -9);
  } else if (size < 0x43e0'0000U) {  // 448
    // Exponents count from -127 there and from -7 here.
    code = ((size + 0x0007'ffffU + ((size >> 20) & 1U)) >> 20) - ((127U - 7U) << 3);
  }
  return static_cast<std::uint8_t>(sign | code);
}

/// The bits of the f32 with the same value: exact. NaNs (0x7f and 0xff) become quiet ones.
constexpr std::uint32_t f32_of_f8_e4m3(std::uint8_t code) noexcept {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t size = code & 0x7fU;
  if (size == 0x7fU) return sign | 0x7fc0'0000U;
  if (size >= 8) return sign | ((size << 20) + ((127U - 7U) << 23));
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-9F);
}

/// The largest absolute value of `count` elements of `type` (f32, bf16 or f16) and of `so_far`,
/// which has the same form: NaN if one is a NaN, else infinity if one is infinite; 0 of none.
float absmax_run(ElementType type, const std::byte* source, std::size_t count, float so_far = 0,
                 SimdLevel level = best_simd_level()) noexcept;

/// The scale of a block or channel with this `absmax`: positive, infinite or (0x7fc00000) NaN.
float scale_of(Scaling scaling, float absmax) noexcept;

/// Codes of `count` elements of `source_type` (f32, bf16 or f16) with the given positive `scale`,
/// of the type that `code_type` says. A quotient beyond the codes' range becomes the largest code
/// of its sign; a NaN becomes 0x7f as f8_e4m3, and 0 as i8. Uses non-temporal stores for long runs.
void quantize_run(Scaling scaling, float scale, std::byte* target, ElementType source_type,
                  const std::byte* source, std::size_t count,
                  SimdLevel level = best_simd_level()) noexcept;

/// `code * scale`, rounded to f32 and then to the target's type (f32, bf16 or f16), of `count`
/// codes of type f8_e4m3 or i8. Every NaN comes out positive and quiet, without payload. Uses
/// non-temporal stores for long runs.
void dequantize_run(TypePair types, float scale, std::byte* target, const std::byte* source,
                    std::size_t count, SimdLevel level = best_simd_level()) noexcept;

}  // namespace weir
