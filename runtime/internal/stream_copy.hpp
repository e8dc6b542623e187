#pragma once
// Copies of long runs past the cache: a store that does not first read the line it overwrites
// saves a third of the memory traffic.

#include <cstddef>

namespace weir {

/// Runs at least this long are worth streaming: below it, the partial lines at both ends (which
/// take ordinary stores) weigh too much. Measured on a Xeon with AVX-512.
inline constexpr std::size_t stream_run_bytes_min = 512;

/// Copies with non-temporal stores, by the widest ones that this processor has. The ranges must
/// not overlap. The bytes are visible to other threads only after `stream_fence`.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

/// Orders all earlier streamed stores of this thread before everything it does next.
void stream_fence() noexcept;

}  // namespace weir
