#include "runtime/internal/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
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

/// Eight f32 as bf16, each in a lane of 32 bits, by the rule of `bf16_of_f32`.
WEIR_INLINE __m256i bf16_of8(__m256 values) noexcept {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_blendv_epi8(_mm256_srli_epi32(up, 16),
                            _mm256_or_si256(upper, _mm256_set1_epi32(0x0040)), nans_of(values));
}

/// A unit of f32, f16 or bf16 from as many f32 as it holds: `part(i)` gives the i-th eight.
template <ElementType type, class Part>
WEIR_INLINE __m256i unit_of_floats(const Part& part) noexcept {
  if constexpr (type == f32) {
    return _mm256_castps_si256(part(0));
  } else if constexpr (type == f16) {
    constexpr int rounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm256_set_m128i(_mm256_cvtps_ph(part(1), rounding), _mm256_cvtps_ph(part(0), rounding));
  } else {
    // Packing works within the halves of a register: quarters come out as 0, 2, 1, 3.
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_of8(part(0)), bf16_of8(part(1))),
                                    0b11'01'10'00);
  }
}

/// Eight codes, each in a lane of 32 bits, by the rule of `f8_e4m3_of_f32`.
WEIR_INLINE __m256i f8_of8(__m256 quotients) noexcept {
  const __m256i bits = _mm256_castps_si256(quotients);
  const __m256i least_normal = _mm256_set1_epi32(0x3c80'0000);
  const __m256i size = _mm256_min_epu32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fff'ffff)),
                                        _mm256_set1_epi32(0x43e0'0000));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(size, 20), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(size, _mm256_add_epi32(odd, _mm256_set1_epi32(0x0007'ffff)));
  const __m256i normal =
      _mm256_sub_epi32(_mm256_srli_epi32(up, 20), _mm256_set1_epi32((127 - 7) << 3));
  // From 2^14 to 2^15 floats lie 2^-9 apart, as subnormal codes do: the addition rounds.
  const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(size), _mm256_set1_ps(0x1p14F));
  const __m256i subnormal =
      _mm256_sub_epi32(_mm256_castps_si256(sum), _mm256_castps_si256(_mm256_set1_ps(0x1p14F)));
  const __m256i code =
      _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(least_normal, size));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  return _mm256_blendv_epi8(_mm256_or_si256(code, sign), _mm256_set1_epi32(0x7f),
                            nans_of(quotients));
}

WEIR_INLINE __m256i i8_of8(__m256 quotients) noexcept {
  const __m256 within =
      _mm256_max_ps(_mm256_min_ps(quotients, _mm256_set1_ps(127)), _mm256_set1_ps(-127));
  const __m256i codes = _mm256_and_si256(_mm256_cvtps_epi32(within), _mm256_set1_epi32(0xff));
  return _mm256_andnot_si256(nans_of(quotients), codes);
}

/// The values of eight codes; of a code that is a NaN, some NaN.
template <ElementType type>
WEIR_INLINE __m256 values_of8(const std::byte* source) noexcept {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
  if constexpr (type == i8) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  } else {
    // f16 has the same form with one more bit of exponent and seven of mantissa; its exponents
    // count from -15 and not from -7, so that a code is 2^8 times what it means there.
    const __m128i wide = _mm_cvtepi8_epi16(codes);
    const __m128i size = _mm_and_si128(wide, _mm_set1_epi16(0x7f));
    const __m128i nan = _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_and_si128(wide, _mm_set1_epi16(-0x8000));
    const __m128i bits =
        _mm_blendv_epi8(_mm_or_si128(_mm_slli_epi16(size, 7), sign), _mm_set1_epi16(0x7e00), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(256));
  }
}

template <ElementType source_type, ElementType target_type>
struct Convert {
  static constexpr std::size_t source_bytes = size_of(source_type);
  static constexpr std::size_t target_bytes = size_of(target_type);

  static WEIR_INLINE __m256i unit_of(const std::byte* source) noexcept {
    const auto part = [source](std::size_t i)
                          WEIR_AVX2 { return load8<source_type>(source + 8 * source_bytes * i); };
    return unit_of_floats<target_type>(part);
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

  static WEIR_INLINE __m256i unit_of(const std::byte* source, float scale) noexcept {
    const auto part = [source, scale](std::size_t i) WEIR_AVX2 {
      const __m256 values =
          _mm256_mul_ps(values_of8<code_type>(source + 8 * i), _mm256_set1_ps(scale));
      return _mm256_castsi256_ps(_mm256_blendv_epi8(
          _mm256_castps_si256(values), _mm256_set1_epi32(0x7fc0'0000), nans_of(values)));
    };
    return unit_of_floats<target_type>(part);
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
  run_units<Halves<Dequantize<code_type, target_type>>>(target, source, count, scale);
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
  std::array<std::byte, 32> rest{};
  std::memcpy(rest.data(), source + at, bytes - at);
  a = larger<type>(larger<type>(a, b), larger<type>(c, d));
  a = larger<type>(a, sizes<type>(rest.data()));
  std::array<Bits, 32 / sizeof(Bits)> lanes;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes.data()), a);
  return *std::max_element(lanes.begin(), lanes.end());
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
