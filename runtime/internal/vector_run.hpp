#pragma once
// What is left of a run when a vector loop does whole units: its beginning, its end, and runs that
// are shorter than one unit. Nothing here needs vector instructions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/internal/kernels.hpp"

namespace weir::internal {

/// Runs `Loop` over `count` elements. `Loop` has the constants `source_bytes` and `target_bytes` of
/// an element and `unit`, the elements that it does at once, and two functions of (target, source,
/// units, scale...): `store` for any target, `stream` past the cache, for one aligned to its units.
/// The end is done by a unit that reaches back over what is done already: it writes the same bytes.
template <class Loop, class... Scale>
void run_units(std::byte* target, const std::byte* source, std::size_t count,
               Scale... scale) noexcept {
  constexpr std::size_t line_bytes = 64;
  constexpr std::size_t line = line_bytes / Loop::target_bytes;
  static_assert(line % Loop::unit == 0);
  if (count == 0) return;
  if (count < Loop::unit) {
    std::array<std::byte, Loop::unit * Loop::source_bytes> from{};
    std::array<std::byte, Loop::unit * Loop::target_bytes> to;
    std::memcpy(from.data(), source, count * Loop::source_bytes);
    Loop::store(to.data(), from.data(), 1, scale...);
    std::memcpy(target, to.data(), count * Loop::target_bytes);
    return;
  }
  std::size_t done = 0;
  const std::size_t skew = (~reinterpret_cast<std::uintptr_t>(target) + 1) & (line_bytes - 1);
  const bool alignable = skew % Loop::target_bytes == 0;
  if (alignable && count * Loop::target_bytes >= stream_target_bytes_min) {
    Loop::store(target, source, line / Loop::unit, scale...);
    done = skew / Loop::target_bytes;
    const std::size_t units = (count - done) / Loop::unit;
    Loop::stream(target + done * Loop::target_bytes, source + done * Loop::source_bytes, units,
                 scale...);
    done += units * Loop::unit;
  } else {
    const std::size_t units = count / Loop::unit;
    Loop::store(target, source, units, scale...);
    done = units * Loop::unit;
  }
  if (done == count) return;
  const std::size_t last = count - Loop::unit;
  Loop::store(target + last * Loop::target_bytes, source + last * Loop::source_bytes, 1, scale...);
}

}  // namespace weir::internal
