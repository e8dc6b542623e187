#pragma once
// Which side converts what: where trainers keep tensors in another form than rollouts need, either
// the source makes that form on the way to its slots, or the target makes it of what it received.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What lies between the memory that trains and the memory that generates. Where two manifests of a
/// shard differ, `conversion_between` says what makes the second of the first.
struct ConversionSides {
  /// For each manifest of live weights: what that shard publishes, in one slot. Equal to it if no
  /// tensor is converted at the source: live memory can then be published as it is.
  std::vector<Manifest> published;
  /// For each manifest of an engine's memory: what that shard receives, in one slot. Equal to it if
  /// no tensor is converted at the target.
  std::vector<Manifest> received;
  std::uint64_t tensors_at_source = 0;
  std::uint64_t tensors_at_target = 0;
};

/// For each tensor that `live` (all trainer shards) and `engines` (all rollout shards) keep in
/// different forms, the side that converts it:
/// - the source, where the form that is needed has fewer bytes (f32 to bf16, bf16 to codes and
///   scales), or as many;
/// - the target, where it has more, and where some source shard holds only a part of a block, whose
///   scale it then can't know.
/// Values are rounded once whichever side it is, so the bytes that arrive are the same.
///
/// Manifests that are made have one region, with pieces of whole blocks behind one another in the
/// order in which the shard's own lie. `make_plan` of what is published and received brings the
/// one to the other. Aliases stay aliases.
///
/// Tensors of one name are taken for one; those that aliases tie are left to the plan, which
/// refuses them where their encodings differ.
///
/// Errors (`invalid`), by tensor: two different encodings of it; a manifest that does not pass
/// `check`. What can't be converted is told by `conversion_between`.
Result<ConversionSides> choose_conversion_sides(std::span<const Manifest> live,
                                                std::span<const Manifest> engines);

}  // namespace weir
