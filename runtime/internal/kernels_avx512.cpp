#include "runtime/internal/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

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

/// Sixteen f32 as f16 or bf16, by the rules of `f16_of_f32` and `bf16_of_f32`.
template <ElementType type>
WEIR_INLINE __m256i narrow16(__m512 values) noexcept {
  if constexpr (type == f16) {
    return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i rounded =
        _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, upper, _mm512_set1_epi32(0x0040));
    return _mm512_cvtepi32_epi16(rounded);
  }
}

/// A line of f32, f16 or bf16 from as many f32 as it holds: `part(i)` gives the i-th sixteen.
template <ElementType type, class Part>
WEIR_INLINE __m512i line_of_floats(const Part& part) noexcept {
  if constexpr (type == f32) {
    return _mm512_castps_si512(part(0));
  } else {
    return _mm512_inserti64x4(_mm512_castsi256_si512(narrow16<type>(part(0))),
                              narrow16<type>(part(1)), 1);
  }
}

/// Sixteen codes, by the rule of `f8_e4m3_of_f32`.
WEIR_INLINE __m128i f8_of16(__m512 quotients) noexcept {
  const __m512i bits = _mm512_castps_si512(quotients);
  const __m512i least_normal = _mm512_set1_epi32(0x3c80'0000);
  const __m512i size = _mm512_min_epu32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fff'ffff)),
                                        _mm512_set1_epi32(0x43e0'0000));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(size, 20), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(size, _mm512_add_epi32(odd, _mm512_set1_epi32(0x0007'ffff)));
  const __m512i normal =
      _mm512_sub_epi32(_mm512_srli_epi32(up, 20), _mm512_set1_epi32((127 - 7) << 3));
  // From 2^14 to 2^15 floats lie 2^-9 apart, as subnormal codes do: the addition rounds.
  const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(size), _mm512_set1_ps(0x1p14F));
  const __m512i subnormal =
      _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(_mm512_set1_ps(0x1p14F)));
  const __m512i code =
      _mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(size, least_normal), subnormal);
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
  const __mmask16 nan = _mm512_cmp_ps_mask(quotients, quotients, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi8(
      _mm512_mask_mov_epi32(_mm512_or_si512(code, sign), nan, _mm512_set1_epi32(0x7f)));
}

WEIR_INLINE __m128i i8_of16(__m512 quotients) noexcept {
  const __mmask16 number = _mm512_cmp_ps_mask(quotients, quotients, _CMP_ORD_Q);
  const __m512 within =
      _mm512_max_ps(_mm512_min_ps(quotients, _mm512_set1_ps(127)), _mm512_set1_ps(-127));
  return _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(number, within));
}

/// The values of sixteen codes; of a code that is a NaN, some NaN.
template <ElementType type>
WEIR_INLINE __m512 values_of16(const std::byte* source) noexcept {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  if constexpr (type == i8) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  } else {
    // f16 has the same form with one more bit of exponent and seven of mantissa; its exponents
    // count from -15 and not from -7, so that a code is 2^8 times what it means there.
    const __m256i wide = _mm256_cvtepi8_epi16(codes);
    const __m256i size = _mm256_and_si256(wide, _mm256_set1_epi16(0x7f));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(size, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_and_si256(wide, _mm256_set1_epi16(-0x8000));
    const __m256i bits = _mm256_mask_mov_epi16(_mm256_or_si256(_mm256_slli_epi16(size, 7), sign),
                                               nan, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(256));
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
    return line_of_floats<target_type>(part);
  }
};

template <ElementType source_type, ElementType code_type, Division division>
struct Quantize {
  static constexpr std::size_t source_bytes = size_of(source_type);
  static constexpr std::size_t target_bytes = 1;

  /// `divisor` is the scale, or its reciprocal, which is multiplied by.
  static WEIR_INLINE __m128i part(const std::byte* source, float divisor) noexcept {
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
    __m512i codes = _mm512_castsi128_si512(part(source, divisor));
    codes = _mm512_inserti32x4(codes, part(source + step, divisor), 1);
    codes = _mm512_inserti32x4(codes, part(source + 2 * step, divisor), 2);
    return _mm512_inserti32x4(codes, part(source + 3 * step, divisor), 3);
  }
};

template <ElementType code_type, ElementType target_type>
struct Dequantize {
  static constexpr std::size_t source_bytes = 1;
  static constexpr std::size_t target_bytes = size_of(target_type);

  static WEIR_INLINE __m512i line(const std::byte* source, float scale) noexcept {
    const auto part = [source, scale](std::size_t i) WEIR_AVX512 {
      const __m512 values =
          _mm512_mul_ps(values_of16<code_type>(source + 16 * i), _mm512_set1_ps(scale));
      const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
      return _mm512_castsi512_ps(
          _mm512_mask_mov_epi32(_mm512_castps_si512(values), nan, _mm512_set1_epi32(0x7fc0'0000)));
    };
    return line_of_floats<target_type>(part);
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
  run_units<Lines<Dequantize<code_type, target_type>>>(target, source, count, scale);
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
  std::array<std::byte, 64> rest{};
  std::memcpy(rest.data(), source + at, bytes - at);
  a = larger<type>(a, rest.data());
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
