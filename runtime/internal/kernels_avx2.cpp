#include "runtime/internal/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <type_traits>

#include "runtime/internal/vector_run.hpp"

// Attributes of each function, and no options of the file: what this file instantiates of other
// headers must run on every processor, since the linker may choose it for all.
#define WEIR_AVX2 __attribute__((target("avx2,f16c")))
#define WEIR_INLINE WEIR_AVX2 __attribute__((always_inline)) inline

namespace weir::internal {
namespace {

using enum ElementType;

WEIR_INLINE __m256i load256(const std::byte* source) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
}

/// All bits of each lane that holds a NaN.
WEIR_INLINE __m256i nans_of(__m256 values) noexcept {
  return _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
}

/// Eight elements as f32.
template <ElementType type>
WEIR_INLINE __m256 load8(const std::byte* source) noexcept {
  if constexpr (type == f32) {
    return _mm256_castsi256_ps(load256(source));
  } else {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    if constexpr (type == f16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

/// Eight f32 as bf16, each in a lane of 32 bits, by the rule of `bf16_of_f32`. Where there are only
/// NaNs without payload in the lower half, rounding leaves them what they are.
template <bool any_nan>
WEIR_INLINE __m256i bf16_of8(__m256 values) noexcept {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i rounded = _mm256_srli_epi32(up, 16);
  if constexpr (!any_nan) return rounded;
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x0040)),
                            nans_of(values));
}

/// A unit of f32, f16 or bf16 from as many f32 as it holds: `part(i)` gives the i-th eight.
template <ElementType type, bool any_nan, class Part>
WEIR_INLINE __m256i unit_of_floats(const Part& part) noexcept {
  if constexpr (type == f32) {
    return _mm256_castps_si256(part(0));
  } else if constexpr (type == f16) {
    constexpr int rounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm256_set_m128i(_mm256_cvtps_ph(part(1), rounding), _mm256_cvtps_ph(part(0), rounding));
  } else {
    // Packing works within the halves of a register: quarters come out as 0, 2, 1, 3.
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi32(bf16_of8<any_nan>(part(0)), bf16_of8<any_nan>(part(1))), 0b11'01'10'00);
  }
}

/// Eight codes, each in a lane of 32 bits, by the rule of `f8_e4m3_of_f32`.
WEIR_INLINE __m256i f8_of8(__m256 quotients) noexcept {
  const __m256i bits = _mm256_castps_si256(quotients);
  const __m256i size = _mm256_min_epu32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fff'ffff)),
                                        _mm256_set1_epi32(0x43e0'0000));
  // 2^e, the power of two below, but for subnormal codes 2^-6. Around 2^(e + 20) floats lie
  // 2^(e - 3) apart, as codes do around the number: adding that rounds to a code, and counts in
  // the last bits of the sum how many steps of 2^(e - 3) there are.
  const __m256i power = _mm256_max_epi32(_mm256_and_si256(size, _mm256_set1_epi32(0x7f80'0000)),
                                         _mm256_set1_epi32(0x3c80'0000));
  // The code is 8 * (e + 6) more than these. Bits from 20 on are 8 * (e + 20 + 127), which is that
  // and 8 * 141 too many: 0x98 makes up for them, as far as the last byte goes, and is even.
  const __m256i above = _mm256_add_epi32(power, _mm256_set1_epi32((20 << 23) + 0x98));
  const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(size), _mm256_castsi256_ps(above));
  const __m256i code = _mm256_add_epi32(_mm256_castps_si256(sum), _mm256_srli_epi32(above, 20));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  const __m256i signed_code =
      _mm256_or_si256(sign, _mm256_and_si256(code, _mm256_set1_epi32(0x7f)));
  return _mm256_blendv_epi8(signed_code, _mm256_set1_epi32(0x7f), nans_of(quotients));
}

WEIR_INLINE __m256i i8_of8(__m256 quotients) noexcept {
  const __m256 within =
      _mm256_max_ps(_mm256_min_ps(quotients, _mm256_set1_ps(127)), _mm256_set1_ps(-127));
  const __m256i codes = _mm256_and_si256(_mm256_cvtps_epi32(within), _mm256_set1_epi32(0xff));
  return _mm256_andnot_si256(nans_of(quotients), codes);
}

/// The values of eight codes, but those of f8_e4m3 over 256; of a code that is a NaN, some NaN.
template <ElementType type>
WEIR_INLINE __m256 values_of8(const std::byte* source) noexcept {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
  if constexpr (type == i8) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  } else {
    // f16 has the same form with one more bit of exponent and seven of mantissa. Its exponents
    // count from -15 and not from -7.
    const __m128i wide = _mm_cvtepi8_epi16(codes);
    const __m128i size = _mm_and_si128(wide, _mm_set1_epi16(0x7f));
    const __m128i nan = _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7f));
    const __m128i shifted = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(-0x4080));
    // With all bits set it is a NaN.
    return _mm256_cvtph_ps(_mm_or_si128(shifted, nan));
  }
}

template <ElementType source_type, ElementType target_type>
struct Convert {
  static constexpr std::size_t source_bytes = size_of(source_type);
  static constexpr std::size_t target_bytes = size_of(target_type);

  static WEIR_INLINE __m256i unit_of(const std::byte* source) noexcept {
    const auto part = [source](std::size_t i)
                          WEIR_AVX2 { return load8<source_type>(source + 8 * source_bytes * i); };
    return unit_of_floats<target_type, true>(part);
  }
};

template <ElementType source_type, ElementType code_type, Division division>
struct Quantize {
  static constexpr std::size_t source_bytes = size_of(source_type);
  static constexpr std::size_t target_bytes = 1;

  /// `divisor` is the scale, or its reciprocal, which is multiplied by.
  static WEIR_INLINE __m256i part(const std::byte* source, float divisor) noexcept {
    const __m256 values = load8<source_type>(source);
    const __m256 quotients = division == Division::exact
                                 ? _mm256_div_ps(values, _mm256_set1_ps(divisor))
                                 : _mm256_mul_ps(values, _mm256_set1_ps(divisor));
    if constexpr (code_type == i8) {
      return i8_of8(quotients);
    } else {
      return f8_of8(quotients);
    }
  }
  static WEIR_INLINE __m256i unit_of(const std::byte* source, float divisor) noexcept {
    constexpr std::size_t step = 8 * source_bytes;
    const __m256i low = _mm256_packus_epi32(part(source, divisor), part(source + step, divisor));
    const __m256i high =
        _mm256_packus_epi32(part(source + 2 * step, divisor), part(source + 3 * step, divisor));
    // Packing works within the halves of a register: fours come out as 0, 2, 4, 6, 1, 3, 5, 7.
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
};

template <ElementType code_type, ElementType target_type>
struct Dequantize {
  static constexpr std::size_t source_bytes = 1;
  static constexpr std::size_t target_bytes = size_of(target_type);

  /// `factor` is the scale, 256 times of it for f8_e4m3.
  static WEIR_INLINE __m256i unit_of(const std::byte* source, float factor) noexcept {
    const auto part = [source, factor](std::size_t i) WEIR_AVX2 {
      const __m256 values =
          _mm256_mul_ps(values_of8<code_type>(source + 8 * i), _mm256_set1_ps(factor));
      return _mm256_castsi256_ps(_mm256_blendv_epi8(
          _mm256_castps_si256(values), _mm256_set1_epi32(0x7fc0'0000), nans_of(values)));
    };
    return unit_of_floats<target_type, false>(part);
  }
};

/// The loops over units of half a line of the target, as `run_units` wants them.
template <class Step>
struct Halves : Step {
  static constexpr std::size_t unit = 32 / Step::target_bytes;

  template <class... Scale>
  WEIR_AVX2 static void store(std::byte* target, const std::byte* source, std::size_t units,
                              Scale... scale) noexcept {
    for (; units > 0; --units, target += 32, source += unit * Step::source_bytes) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), Step::unit_of(source, scale...));
    }
  }
  template <class... Scale>
  WEIR_AVX2 static void stream(std::byte* target, const std::byte* source, std::size_t units,
                               Scale... scale) noexcept {
    for (; units > 0; --units, target += 32, source += unit * Step::source_bytes) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(target), Step::unit_of(source, scale...));
    }
  }
};

template <ElementType source_type, ElementType target_type>
void convert(std::byte* target, const std::byte* source, std::size_t count) noexcept {
  run_units<Halves<Convert<source_type, target_type>>>(target, source, count);
}

template <ElementType source_type, ElementType code_type, Division division>
void quantize(float scale, std::byte* target, const std::byte* source, std::size_t count) noexcept {
  const float divisor = division == Division::exact ? scale : 1.0F / scale;
  run_units<Halves<Quantize<source_type, code_type, division>>>(target, source, count, divisor);
}

template <ElementType code_type, ElementType target_type>
void dequantize(float scale, std::byte* target, const std::byte* source,
                std::size_t count) noexcept {
  const float factor = code_type == i8 ? scale : scale * 256;
  // Products with the smallest codes may be finite where this factor is not.
  if (std::isinf(factor)) {
    return scalar_kernels.dequantize[code_index(code_type)][float_index(target_type)](
        scale, target, source, count);
  }
  run_units<Halves<Dequantize<code_type, target_type>>>(target, source, count, factor);
}

template <ElementType type>
WEIR_INLINE __m256i larger(__m256i a, __m256i b) noexcept {
  return type == f32 ? _mm256_max_epu32(a, b) : _mm256_max_epu16(a, b);
}

/// The elements' bits without sign.
template <ElementType type>
WEIR_INLINE __m256i sizes(const std::byte* source) noexcept {
  return _mm256_and_si256(load256(source),
                          type == f32 ? _mm256_set1_epi32(0x7fff'ffff) : _mm256_set1_epi16(0x7fff));
}

template <ElementType type>
WEIR_AVX2 std::uint32_t absmax(const std::byte* source, std::size_t count) noexcept {
  using Bits = std::conditional_t<type == f32, std::uint32_t, std::uint16_t>;
  const std::size_t bytes = count * sizeof(Bits);
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  __m256i c = a;
  __m256i d = a;
  std::size_t at = 0;
  for (; at + 128 <= bytes; at += 128) {
    a = larger<type>(a, sizes<type>(source + at));
    b = larger<type>(b, sizes<type>(source + at + 32));
    c = larger<type>(c, sizes<type>(source + at + 64));
    d = larger<type>(d, sizes<type>(source + at + 96));
  }
  for (; at + 32 <= bytes; at += 32) a = larger<type>(a, sizes<type>(source + at));
  a = larger<type>(larger<type>(a, b), larger<type>(c, d));
  if (at < bytes) {
    std::array<std::byte, 32> rest{};
    std::memcpy(rest.data(), source + at, bytes - at);
    a = larger<type>(a, sizes<type>(rest.data()));
  }
  // Halves against each other, as long as there are two.
  a = larger<type>(a, _mm256_permute2x128_si256(a, a, 1));
  a = larger<type>(a, _mm256_bsrli_epi128(a, 8));
  a = larger<type>(a, _mm256_bsrli_epi128(a, 4));
  if constexpr (type != f32) a = larger<type>(a, _mm256_bsrli_epi128(a, 2));
  return static_cast<Bits>(_mm256_cvtsi256_si32(a));
}

template <Division division>
constexpr std::array<std::array<ScaledRun, code_types>, float_types> quantizers() {
  return {{{quantize<f32, f8_e4m3, division>, quantize<f32, i8, division>},
           {quantize<f16, f8_e4m3, division>, quantize<f16, i8, division>},
           {quantize<bf16, f8_e4m3, division>, quantize<bf16, i8, division>}}};
}

}  // namespace

constexpr Kernels avx2_kernels = {
    .convert = {{{nullptr, convert<f32, f16>, convert<f32, bf16>},
                 {convert<f16, f32>, nullptr, convert<f16, bf16>},
                 {convert<bf16, f32>, convert<bf16, f16>, nullptr}}},
    .absmax = {absmax<f32>, absmax<f16>, absmax<bf16>},
    .quantize = {quantizers<Division::exact>(), quantizers<Division::by_reciprocal>()},
    .dequantize = {{{dequantize<f8_e4m3, f32>, dequantize<f8_e4m3, f16>, dequantize<f8_e4m3, bf16>},
                    {dequantize<i8, f32>, dequantize<i8, f16>, dequantize<i8, bf16>}}}};

}  // namespace weir::internal

#undef WEIR_INLINE
#undef WEIR_AVX2
#endif
