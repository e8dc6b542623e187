#pragma once
// Proves that the shards of a replica together hold whole tensors.

#include "runtime/internal/catalog.hpp"
#include "runtime/internal/roster.hpp"
#include "runtime/result.hpp"

namespace weir::internal {

/// Proves that the pattern's shards together hold the whole of every tensor that they list: by one
/// pass over their pieces where each rank goes on where an earlier one ended, as in most layouts,
/// and through an index of boxes for the tensors that are cut otherwise.
/// Errors (`invalid`): a hole, by tensor, box and replica. `refused`: as `BoxIndex::cover`.
Result<void> check_whole(const Roster& roster, const Pattern& pattern, const Catalog& catalog,
                         const PatternTensors& tensors);

}  // namespace weir::internal
