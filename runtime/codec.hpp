#pragma once
// Manifests and plans as bytes (Cap'n Proto, `schemas/`): what crosses a process border.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// A message larger than this is refused before it is read. A piece of a matrix takes 64 bytes, so
/// this is room for four million of them in one shard, which is also the limit on their number.
inline constexpr std::size_t message_bytes_max = std::size_t{256} << 20;

/// The canonical encoding: equal values give equal bytes.
std::string encode(const Manifest& manifest);
/// Bytes from anywhere, aligned or not; any bytes at all are safe to pass. The result has passed
/// `check`. Errors: `refused` (over a limit of size, nesting or count), `invalid`.
Result<Manifest> decode_manifest(std::span<const std::byte> bytes);

/// A plan, or one with only the parts that its receiver needs (its digest is the whole plan's).
std::string encode(const Plan& plan);
/// As above. What it guarantees: indices in range, known types, ranks and counts within limits,
/// positive extents and strides. Offsets are checked against real regions when a fetch is prepared.
Result<Plan> decode_plan(std::span<const std::byte> bytes);

}  // namespace weir
