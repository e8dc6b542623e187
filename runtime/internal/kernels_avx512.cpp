#include "runtime/internal/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>

#include "runtime/internal/vector_run.hpp"

// Attributes of each function, and no options of the file: what this file instantiates of other
// headers must run on every processor, since the linker may choose it for all.
#define WEIR_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define WEIR_INLINE WEIR_AVX512 __attribute__((always_inline)) inline

#if !defined(__clang__)
// GCC 12's own header for AVX-512 makes a value that is undefined by design out of itself (bug
// 105593), and warns wherever that is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace weir::internal {
namespace {

using enum ElementType;

/// Sixteen elements as f32.
template <ElementType type>
WEIR_INLINE __m512 load16(const std::byte* source) noexcept {
  if constexpr (type == f32) {
    return _mm512_loadu_ps(source);
  } else {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    if constexpr (type == f16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
}

/// The words at odd places (or at even ones) of two registers, one after the other.
template <bool odd>
WEIR_INLINE __m512i every_second_word(__m512i low, __m512i high) noexcept {
  // Word i of the result comes from word 2i of the two together; from 2i + 1 with `odd`.
  const __m512i even_places = _mm512_setr_epi32(0x0002'0000, 0x0006'0004, 0x000a'0008, 0x000e'000c,
                                                0x0012'0010, 0x0016'0014, 0x001a'0018, 0x001e'001c,
                                                0x0022'0020, 0x0026'0024, 0x002a'0028, 0x002e'002c,
                                                0x0032'0030, 0x0036'0034, 0x003a'0038, 0x003e'003c);
  const __m512i places =
      odd ? _mm512_or_si512(even_places, _mm512_set1_epi32(0x0001'0001)) : even_places;
  return _mm512_permutex2var_epi16(low, places, high);
}

/// Sixteen f32 with a bf16 in the upper half of each, by the rule of `bf16_of_f32`. Where there
/// are only NaNs without payload in the lower half, rounding leaves them what they are.
template <bool any_nan>
WEIR_INLINE __m512i upper_bf16_of16(__m512 values) noexcept {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  if constexpr (!any_nan) return up;
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x0040'0000));
}

/// A line of f32, f16 or bf16 from as many f32 as it holds: `part(i)` gives the i-th sixteen.
template <ElementType type, bool any_nan, class Part>
WEIR_INLINE __m512i line_of_floats(const Part& part) noexcept {
  if constexpr (type == f32) {
    return _mm512_castps_si512(part(0));
  } else if constexpr (type == f16) {
    constexpr int rounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(part(0), rounding)),
                              _mm512_cvtps_ph(part(1), rounding), 1);
  } else {
    return every_second_word<true>(upper_bf16_of16<any_nan>(part(0)),
                                   upper_bf16_of16<any_nan>(part(1)));
  }
}

/// The last byte of each of sixteen becomes the code, by the rule of `f8_e4m3_of_f32`.
WEIR_INLINE __m512i f8_of16(__m512 quotients) noexcept {
  const __m512i bits = _mm512_castps_si512(quotients);
  const __m512i size = _mm512_min_epu32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fff'ffff)),
                                        _mm512_set1_epi32(0x43e0'0000));
  // 2^e, the power of two below, but for subnormal codes 2^-6. Around 2^(e + 20) floats lie
  // 2^(e - 3) apart, as codes do around the number: adding that rounds to a code, and counts in
  // the last bits of the sum how many steps of 2^(e - 3) there are.
  const __m512i power = _mm512_max_epi32(_mm512_and_si512(size, _mm512_set1_epi32(0x7f80'0000)),
                                         _mm512_set1_epi32(0x3c80'0000));
  // The code is 8 * (e + 6) more than these. Bits from 20 on are 8 * (e + 20 + 127), which is that
  // and 8 * 141 too many: 0x98 makes up for them, as far as the last byte goes, and is even.
  const __m512i above = _mm512_add_epi32(power, _mm512_set1_epi32((20 << 23) + 0x98));
  const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(size), _mm512_castsi512_ps(above));
  const __m512i code = _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_srli_epi32(above, 20));
  // Bit by bit: the sign where the last argument is 1, else the code.
  const __m512i with_sign = _mm512_ternarylogic_epi32(code, _mm512_srli_epi32(bits, 24),
                                                      _mm512_set1_epi32(0x80), 0b11'01'10'00);
  const __mmask16 nan = _mm512_cmp_ps_mask(quotients, quotients, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(with_sign, nan, _mm512_set1_epi32(0x7f));
}

WEIR_INLINE __m512i i8_of16(__m512 quotients) noexcept {
  const __mmask16 number = _mm512_cmp_ps_mask(quotients, quotients, _CMP_ORD_Q);
  const __m512 within =
      _mm512_max_ps(_mm512_min_ps(quotients, _mm512_set1_ps(127)), _mm512_set1_ps(-127));
  return _mm512_maskz_cvtps_epi32(number, within);
}

/// The values of sixteen codes, but those of f8_e4m3 over 256; of a code that is a NaN, some NaN.
template <ElementType type>
WEIR_INLINE __m512 values_of16(const std::byte* source) noexcept {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  if constexpr (type == i8) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  } else {
    // f16 has the same form with one more bit of exponent and seven of mantissa. Its exponents
    // count from -15 and not from -7.
    const __m256i wide = _mm256_cvtepi8_epi16(codes);
    const __m256i size = _mm256_and_si256(wide, _mm256_set1_epi16(0x7f));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(size, _mm256_set1_epi16(0x7f));
    const __m256i shifted =
        _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080));
    return _mm512_cvtph_ps(_mm256_mask_mov_epi16(shifted, nan, _mm256_set1_epi16(0x7e00)));
  }
}

template <ElementType source_type, ElementType target_type>
struct Convert {
  static constexpr std::size_t source_bytes = size_of(source_type);
  static constexpr std::size_t target_bytes = size_of(target_type);

  static WEIR_INLINE __m512i line(const std::byte* source) noexcept {
    const auto part = [source](std::size_t i) WEIR_AVX512 {
      return load16<source_type>(source + 16 * source_bytes * i);
    };
    return line_of_floats<target_type, true>(part);
  }
};

template <ElementType source_type, ElementType code_type, Division division>
struct Quantize {
  static constexpr std::size_t source_bytes = size_of(source_type);
  static constexpr std::size_t target_bytes = 1;

  /// `divisor` is the scale, or its reciprocal, which is multiplied by.
  static WEIR_INLINE __m512i part(const std::byte* source, float divisor) noexcept {
    const __m512 values = load16<source_type>(source);
    const __m512 quotients = division == Division::exact
                                 ? _mm512_div_ps(values, _mm512_set1_ps(divisor))
                                 : _mm512_mul_ps(values, _mm512_set1_ps(divisor));
    if constexpr (code_type == i8) {
      return i8_of16(quotients);
    } else {
      return f8_of16(quotients);
    }
  }
  static WEIR_INLINE __m512i line(const std::byte* source, float divisor) noexcept {
    constexpr std::size_t step = 16 * source_bytes;
    const __m512i low =
        every_second_word<false>(part(source, divisor), part(source + step, divisor));
    const __m512i high = every_second_word<false>(part(source + 2 * step, divisor),
                                                  part(source + 3 * step, divisor));
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(low)),
                              _mm512_cvtepi16_epi8(high), 1);
  }
};

template <ElementType code_type, ElementType target_type>
struct Dequantize {
  static constexpr std::size_t source_bytes = 1;
  static constexpr std::size_t target_bytes = size_of(target_type);

  /// `factor` is the scale, 256 times of it for f8_e4m3.
  static WEIR_INLINE __m512i line(const std::byte* source, float factor) noexcept {
    const auto part = [source, factor](std::size_t i) WEIR_AVX512 {
      const __m512 values =
          _mm512_mul_ps(values_of16<code_type>(source + 16 * i), _mm512_set1_ps(factor));
      const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
      return _mm512_castsi512_ps(
          _mm512_mask_mov_epi32(_mm512_castps_si512(values), nan, _mm512_set1_epi32(0x7fc0'0000)));
    };
    return line_of_floats<target_type, false>(part);
  }
};

/// The loops over whole lines of the target, as `run_units` wants them.
template <class Step>
struct Lines : Step {
  static constexpr std::size_t unit = 64 / Step::target_bytes;

  template <class... Scale>
  WEIR_AVX512 static void store(std::byte* target, const std::byte* source, std::size_t lines,
                                Scale... scale) noexcept {
    for (; lines > 0; --lines, target += 64, source += unit * Step::source_bytes) {
      _mm512_storeu_si512(target, Step::line(source, scale...));
    }
  }
  template <class... Scale>
  WEIR_AVX512 static void stream(std::byte* target, const std::byte* source, std::size_t lines,
                                 Scale... scale) noexcept {
    for (; lines > 0; --lines, target += 64, source += unit * Step::source_bytes) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target), Step::line(source, scale...));
    }
  }
};

template <ElementType source_type, ElementType target_type>
void convert(std::byte* target, const std::byte* source, std::size_t count) noexcept {
  run_units<Lines<Convert<source_type, target_type>>>(target, source, count);
}

template <ElementType source_type, ElementType code_type, Division division>
void quantize(float scale, std::byte* target, const std::byte* source, std::size_t count) noexcept {
  const float divisor = division == Division::exact ? scale : 1.0F / scale;
  run_units<Lines<Quantize<source_type, code_type, division>>>(target, source, count, divisor);
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
  run_units<Lines<Dequantize<code_type, target_type>>>(target, source, count, factor);
}

/// The larger of each pair, of elements' bits without sign.
template <ElementType type>
WEIR_INLINE __m512i larger(__m512i largest, const std::byte* source) noexcept {
  const __m512i bits = _mm512_loadu_si512(source);
  if constexpr (type == f32) {
    return _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fff'ffff)));
  } else {
    return _mm512_max_epu16(largest, _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff)));
  }
}

template <ElementType type>
WEIR_AVX512 std::uint32_t absmax(const std::byte* source, std::size_t count) noexcept {
  const std::size_t bytes = count * size_of(type);
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  std::size_t at = 0;
  for (; at + 256 <= bytes; at += 256) {
    a = larger<type>(a, source + at);
    b = larger<type>(b, source + at + 64);
    c = larger<type>(c, source + at + 128);
    d = larger<type>(d, source + at + 192);
  }
  for (; at + 64 <= bytes; at += 64) a = larger<type>(a, source + at);
  if (at < bytes) {
    std::array<std::byte, 64> rest{};
    std::memcpy(rest.data(), source + at, bytes - at);
    a = larger<type>(a, rest.data());
  }
  if constexpr (type == f32) {
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d)));
  } else {
    const __m512i all = _mm512_max_epu16(_mm512_max_epu16(a, b), _mm512_max_epu16(c, d));
    return _mm512_reduce_max_epu32(_mm512_max_epu32(
        _mm512_and_si512(all, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32(all, 16)));
  }
}

template <Division division>
constexpr std::array<std::array<ScaledRun, code_types>, float_types> quantizers() {
  return {{{quantize<f32, f8_e4m3, division>, quantize<f32, i8, division>},
           {quantize<f16, f8_e4m3, division>, quantize<f16, i8, division>},
           {quantize<bf16, f8_e4m3, division>, quantize<bf16, i8, division>}}};
}

}  // namespace

constexpr Kernels avx512_kernels = {
    .convert = {{{nullptr, convert<f32, f16>, convert<f32, bf16>},
                 {convert<f16, f32>, nullptr, convert<f16, bf16>},
                 {convert<bf16, f32>, convert<bf16, f16>, nullptr}}},
    .absmax = {absmax<f32>, absmax<f16>, absmax<bf16>},
    .quantize = {quantizers<Division::exact>(), quantizers<Division::by_reciprocal>()},
    .dequantize = {{{dequantize<f8_e4m3, f32>, dequantize<f8_e4m3, f16>, dequantize<f8_e4m3, bf16>},
                    {dequantize<i8, f32>, dequantize<i8, f16>, dequantize<i8, bf16>}}}};

}  // namespace weir::internal

#undef WEIR_INLINE
#undef WEIR_AVX512
#endif
