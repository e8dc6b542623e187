#pragma once
// The planner: from manifests to a plan that is proved to write every target byte exactly once.

#include <span>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Whether bytes of type `source` may become bytes of type `target` on the way: equal types, and
/// the declared conversions f32 -> bf16 (round to nearest even) and bf16 -> f32 (exact).
bool convertible(ElementType source, ElementType target) noexcept;

/// Computes the plan that brings every piece of every rollout manifest from the trainer manifests.
///
/// Pure and deterministic: no clock, no randomness, and the order of `manifests` does not matter.
/// Boxes are intersected through an index per tensor, never all pairs, and replicas that say the
/// same are proved once. Where several source shards hold the same box, be it ranks of one replica
/// or of several, the one with the fewest bytes assigned so far (over all tensors) serves it; ties
/// go to the smaller shard id; the one that wrote to the target last is kept while it is ahead of
/// that by at most 1/64 of what a source serves on average, so that copies can be joined. Adjacent
/// copies are merged, and equal ones at even distances.
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
Result<Plan> make_plan(std::span<const Manifest> manifests);

}  // namespace weir
