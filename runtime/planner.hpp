#pragma once
// The planner: from manifests to a plan that is proved to write every target byte exactly once.

#include <cstddef>
#include <span>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Whether bytes of type `source` may become bytes of type `target` on the way: equal types, and
/// the declared conversions f32 -> bf16 (round to nearest even) and bf16 -> f32 (exact).
bool convertible(ElementType source, ElementType target) noexcept;

/// A shard that takes part, and a manifest that says what it would say of itself: its own, or that
/// of the same rank of another replica, where they differ in replica numbers and tickets alone. So
/// the manifests of many equal replicas need not be in memory more than once.
struct Participant {
  ShardId shard;
  const Manifest* manifest = nullptr;  ///< Of the same side and rank. Borrowed.
};

/// So many pieces of replicas that ask for the same are planned one by one, so that even a small
/// model's sources end level. Beyond it they do anyway, and equal replicas share copies.
inline constexpr std::size_t pieces_apart_max = std::size_t{1} << 16;

/// Computes the plan that brings every piece of every rollout manifest from the trainer manifests.
///
/// Pure and deterministic: no clock, no randomness, and neither the order of the participants
/// matters nor whether they share manifests. Boxes are intersected through an index per tensor,
/// never all pairs, and replicas that say the same are proved once.
///
/// Rollout replicas that say the same, with more than `apart_max` pieces, share copies. Where the
/// trainers' replicas say the same, too, and divide their number, one list is made and trainer
/// replicas serve by it in turn; else as many lists as there are trainer replicas.
///
/// Where several source shards hold the same box, be it ranks of one replica or of several, the one
/// with the fewest bytes assigned so far (over all tensors) serves it; ties go to the smaller shard
/// id; the one that wrote to the target last is kept while it is ahead of that by at most 1/32 of
/// what a source serves on average, so that copies can be joined. Adjacent copies are merged, and
/// equal ones at even distances.
///
/// Errors (`invalid`), each naming tensor, box and shard and saying what to change:
/// empty side; two manifests of one shard; missing rank of a replica; shards of a replica that
/// disagree on the inventory or aliases; a replica that does not hold its whole inventory; unknown
/// name; shape mismatch; type mismatch; hole (a box that no shard of a replica holds); overlap (two
/// target pieces that claim the same bytes of a region); an alias on one side that is a tensor of
/// its own on the other; a manifest that does not pass `check`. `refused`: boxes that cut each
/// other into more parts, or strides that interleave more irregularly, than any layout's do.
/// Several pieces that hold the same canonical box, at a source or at a target, are no error: a
/// source may serve from either, a target gets each.
/// The plan's sources have the regions, tickets included, that their participants' manifests state.
Result<Plan> make_plan(std::span<const Participant> participants,
                       std::size_t apart_max = pieces_apart_max);
/// The same for shards that each have a manifest of their own.
Result<Plan> make_plan(std::span<const Manifest> manifests,
                       std::size_t apart_max = pieces_apart_max);

}  // namespace weir
