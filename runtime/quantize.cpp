#include "runtime/quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/internal/elements.hpp"
#include "runtime/internal/kernels.hpp"
#include "runtime/internal/stream_copy.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weir {
namespace {

using internal::code_index;
using internal::Division;
using internal::float_index;
using internal::kernels_of;

#if defined(__x86_64__)
/// While it lives, this thread rounds to nearest and knows subnormal numbers, as IEEE 754 has it.
/// Libraries built for speed turn that off in whole processes. What is computed meanwhile must be
/// behind a call that the compiler does not see through, or it may be moved out.
class UsualArithmetic {
 public:
  UsualArithmetic() noexcept : before_(_mm_getcsr()) {
    if (before_ != usual()) _mm_setcsr(usual());
  }
  ~UsualArithmetic() {
    if (before_ != usual()) _mm_setcsr(before_);
  }
  UsualArithmetic(const UsualArithmetic&) = delete;
  UsualArithmetic& operator=(const UsualArithmetic&) = delete;

 private:
  /// Flags of exceptions and what is masked stay; rounding and the two about subnormals are 0.
  [[nodiscard]] unsigned usual() const noexcept { return before_ & ~0xe040U; }

  unsigned before_;
};
#else
class UsualArithmetic {};
#endif

/// 2^ceil(log2(scale)) of a normal number; infinity stays.
float rounded_up_to_power_of_two(float scale) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  return std::bit_cast<float>((bits + 0x007f'ffffU) & 0xff80'0000U);
}

[[gnu::noinline]] float usual_scale_of(Scaling scaling, float absmax) noexcept {
  if (std::isnan(absmax)) return std::bit_cast<float>(0x7fc0'0000U);
  switch (scaling) {
    case Scaling::f8_block:
      return std::max(absmax, 1e-4F) / 448.0F;
    case Scaling::f8_block_ue8m0:
      return rounded_up_to_power_of_two(std::max(absmax, 1e-4F) / 448.0F);
    case Scaling::f8_channel:
      return std::max(absmax / 448.0F, 1.0F / (448.0F * 512.0F));
    case Scaling::i8_channel:
      break;
  }
  const float scale = absmax / 127.0F;
  return scale == 0 ? 0x1p-23F : scale;
}

}  // namespace

float absmax_run(ElementType type, const std::byte* source, std::size_t count, float so_far,
                 SimdLevel level) noexcept {
  const std::uint32_t largest = kernels_of(level).absmax[float_index(type)](source, count);
  std::uint32_t bits = largest;
  if (type == ElementType::f16) bits = f32_of_f16(static_cast<std::uint16_t>(largest));
  if (type == ElementType::bf16) bits = f32_of_bf16(static_cast<std::uint16_t>(largest));
  return std::bit_cast<float>(std::max(bits, std::bit_cast<std::uint32_t>(so_far)));
}

float scale_of(Scaling scaling, float absmax) noexcept {
  [[maybe_unused]] const UsualArithmetic arithmetic;
  return usual_scale_of(scaling, absmax);
}

void quantize_run(Scaling scaling, float scale, std::byte* target, ElementType source_type,
                  const std::byte* source, std::size_t count, SimdLevel level) noexcept {
  const bool block = scaling == Scaling::f8_block || scaling == Scaling::f8_block_ue8m0;
  const auto division = block ? Division::by_reciprocal : Division::exact;
  [[maybe_unused]] const UsualArithmetic arithmetic;
  kernels_of(level).quantize[static_cast<std::size_t>(division)][float_index(source_type)]
                            [code_index(code_type(scaling))](scale, target, source, count);
  if (count >= internal::stream_target_bytes_min) stream_fence();
}

void dequantize_run(TypePair types, float scale, std::byte* target, const std::byte* source,
                    std::size_t count, SimdLevel level) noexcept {
  [[maybe_unused]] const UsualArithmetic arithmetic;
  kernels_of(level).dequantize[code_index(types.source)][float_index(types.target)](scale, target,
                                                                                    source, count);
  if (count * size_of(types.target) >= internal::stream_target_bytes_min) stream_fence();
}

}  // namespace weir
