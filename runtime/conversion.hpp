#pragma once
// Conversions: what one shard does with its own memory so that the same tensors lie there in
// another form, such as quantized. A source converts live weights on the way to a slot, a target
// what it has received on the way to its engine's memory; plans only ever copy.

#include <cstdint>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/recoding.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What brings every byte of a manifest's pieces from those of another one.
struct Conversion {
  std::vector<Copy> copies;  ///< Of what is only copied, or cast; their `source` does not count.
  std::vector<Recoding> recodings;
};

/// What makes the pieces of `to` from those of `from`, two manifests of one shard: floating-point
/// types are cast, plain values are encoded as `to` says, codes of `from` become values where `to`
/// has those. Proved: every element of `to` has a source, and every block that is encoded has all
/// of its values, without which its scale can't be known. Pieces of `to` must not overlap.
///
/// The scale of a block is made of the source's own values: f32 -> f8_e4m3 is rounded once. The
/// formulas are those of `runtime/convert.hpp`.
///
/// Errors (`invalid`), by shard, tensor and box: a tensor or box of `to` that `from` does not hold;
/// a block that this shard holds only a part of (then convert on the other side); types that can't
/// be converted; two different encodings; a manifest that does not pass `check`.
Result<Conversion> conversion_between(const Manifest& from, const Manifest& to);

/// Bytes that are written.
std::uint64_t target_bytes(const Conversion& conversion) noexcept;

}  // namespace weir
