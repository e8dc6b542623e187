#include "runtime/internal/stream_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weir {

#if defined(__x86_64__)
namespace {

constexpr std::size_t line_bytes = 64;

/// Each of these copies `lines` whole cache lines to a target that is aligned to one.
void stream_sse2(std::byte* target, const std::byte* source, std::size_t lines) noexcept {
  for (; lines > 0; --lines, target += line_bytes, source += line_bytes) {
    const auto* from = reinterpret_cast<const __m128i*>(source);
    auto* to = reinterpret_cast<__m128i*>(target);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
}

__attribute__((target("avx2"))) void stream_avx2(std::byte* target, const std::byte* source,
                                                 std::size_t lines) noexcept {
  for (; lines > 0; --lines, target += line_bytes, source += line_bytes) {
    const auto* from = reinterpret_cast<const __m256i*>(source);
    auto* to = reinterpret_cast<__m256i*>(target);
    const __m256i a = _mm256_loadu_si256(from);
    const __m256i b = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
  }
}

__attribute__((target("avx512f"))) void stream_avx512(std::byte* target, const std::byte* source,
                                                      std::size_t lines) noexcept {
  for (; lines >= 4; lines -= 4, target += 4 * line_bytes, source += 4 * line_bytes) {
    auto* to = reinterpret_cast<__m512i*>(target);
    const __m512i a = _mm512_loadu_si512(source);
    const __m512i b = _mm512_loadu_si512(source + line_bytes);
    const __m512i c = _mm512_loadu_si512(source + 2 * line_bytes);
    const __m512i d = _mm512_loadu_si512(source + 3 * line_bytes);
    _mm512_stream_si512(to, a);
    _mm512_stream_si512(to + 1, b);
    _mm512_stream_si512(to + 2, c);
    _mm512_stream_si512(to + 3, d);
  }
  for (; lines > 0; --lines, target += line_bytes, source += line_bytes) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target), _mm512_loadu_si512(source));
  }
}

using StreamLines = void (*)(std::byte*, const std::byte*, std::size_t) noexcept;

StreamLines widest() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return stream_avx512;
  if (__builtin_cpu_supports("avx2")) return stream_avx2;
  return stream_sse2;
}

}  // namespace

void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  static const StreamLines stream_lines = widest();
  const std::size_t skew = (~reinterpret_cast<std::uintptr_t>(target) + 1) & (line_bytes - 1);
  const std::size_t head = skew < bytes ? skew : bytes;
  std::memcpy(target, source, head);
  const std::size_t lines = (bytes - head) / line_bytes;
  stream_lines(target + head, source + head, lines);
  const std::size_t done = head + lines * line_bytes;
  std::memcpy(target + done, source + done, bytes - done);
}

void stream_fence() noexcept {
  _mm_sfence();
}

#else

// Other processors' memcpy streams by itself where that pays.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  std::memcpy(target, source, bytes);
}

void stream_fence() noexcept {}

#endif

}  // namespace weir
