#include "runtime/internal/kernels.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/internal/elements.hpp"
#include "runtime/quantize.hpp"

namespace weir::internal {
namespace {

template <class Source, class Target>
void convert(std::byte* target, const std::byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = load<typename Source::Bits>(source + i * sizeof(typename Source::Bits));
    store(target + i * sizeof(typename Target::Bits), Target::narrow(Source::widen(bits)));
  }
}

template <class Source>
std::uint32_t absmax(const std::byte* source, std::size_t count) noexcept {
  using Bits = typename Source::Bits;
  constexpr auto size_mask = static_cast<Bits>(std::numeric_limits<Bits>::max() >> 1);
  Bits largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = load<Bits>(source + i * sizeof(Bits));
    largest = std::max(largest, static_cast<Bits>(bits & size_mask));
  }
  return largest;
}

struct F8 {
  static std::uint8_t code_of(float quotient) noexcept {
    return f8_e4m3_of_f32(std::bit_cast<std::uint32_t>(quotient));
  }
  static float value_of(std::uint8_t code) noexcept {
    return std::bit_cast<float>(f32_of_f8_e4m3(code));
  }
};

struct I8 {
  static std::uint8_t code_of(float quotient) noexcept {
    if (quotient != quotient) return 0;
    const float within = std::clamp(quotient, -127.0F, 127.0F);
    // One and a half times 2^23, where the numbers that there are lie 1 apart: the sum is rounded
    // to a whole number, and its last eight bits are that number's.
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(within + 0x1.8p23F));
  }
  static float value_of(std::uint8_t code) noexcept {
    return static_cast<float>(static_cast<std::int8_t>(code));
  }
};

template <class Source, class Code, Division division>
void quantize(float scale, std::byte* target, const std::byte* source, std::size_t count) noexcept {
  const float reciprocal = 1.0F / scale;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = load<typename Source::Bits>(source + i * sizeof(typename Source::Bits));
    const auto value = std::bit_cast<float>(Source::widen(bits));
    store(target + i,
          Code::code_of(division == Division::exact ? value / scale : value * reciprocal));
  }
}

template <class Code, class Target>
void dequantize(float scale, std::byte* target, const std::byte* source,
                std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float value = Code::value_of(load<std::uint8_t>(source + i)) * scale;
    const std::uint32_t bits =
        value == value ? std::bit_cast<std::uint32_t>(value) : std::uint32_t{0x7fc0'0000};
    store(target + i * sizeof(typename Target::Bits), Target::narrow(bits));
  }
}

template <Division division>
constexpr std::array<std::array<ScaledRun, code_types>, float_types> quantizers() {
  return {{{quantize<F32, F8, division>, quantize<F32, I8, division>},
           {quantize<F16, F8, division>, quantize<F16, I8, division>},
           {quantize<Bf16, F8, division>, quantize<Bf16, I8, division>}}};
}

}  // namespace

constexpr Kernels scalar_kernels = {
    .convert = {{{nullptr, convert<F32, F16>, convert<F32, Bf16>},
                 {convert<F16, F32>, nullptr, convert<F16, Bf16>},
                 {convert<Bf16, F32>, convert<Bf16, F16>, nullptr}}},
    .absmax = {absmax<F32>, absmax<F16>, absmax<Bf16>},
    .quantize = {quantizers<Division::exact>(), quantizers<Division::by_reciprocal>()},
    .dequantize = {{{dequantize<F8, F32>, dequantize<F8, F16>, dequantize<F8, Bf16>},
                    {dequantize<I8, F32>, dequantize<I8, F16>, dequantize<I8, Bf16>}}}};

const Kernels& kernels_of(SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return avx512_kernels;
  if (level == SimdLevel::avx2) return avx2_kernels;
#else
  static_cast<void>(level);
#endif
  return scalar_kernels;
}

}  // namespace weir::internal
