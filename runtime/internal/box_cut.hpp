#pragma once
// A box cut along the pieces of one shard that hold it.

#include <optional>
#include <utility>
#include <vector>

#include "runtime/box.hpp"
#include "runtime/manifest.hpp"

namespace weir::internal {

/// Calls `use(part, piece)` for disjoint parts that together fill `box`, each within its piece.
/// Returns a part that no piece holds, if there is one.
template <class Use>
std::optional<Box> cut(const Box& box, const std::vector<Piece>& pieces, const Use& use) {
  std::vector<std::pair<Box, std::size_t>> open = {{box, 0}};
  while (!open.empty()) {
    auto [rest, next] = open.back();
    open.pop_back();
    std::optional<Box> common;
    while (next < pieces.size() && !common) common = intersection(rest, pieces[next++].box);
    if (!common) return rest;
    use(*common, pieces[next - 1]);
    // What lies before and behind the common part along each dimension, narrowing from one to the
    // next, is the rest of the box.
    for (int dim = 0; dim < rest.start.rank(); ++dim) {
      Box before = rest;
      before.extent[dim] = common->start[dim] - rest.start[dim];
      Box behind = rest;
      behind.start[dim] = common->start[dim] + common->extent[dim];
      behind.extent[dim] = rest.start[dim] + rest.extent[dim] - behind.start[dim];
      for (const Box& side : {before, behind}) {
        if (side.extent[dim] > 0) open.emplace_back(side, next);
      }
      rest.start[dim] = common->start[dim];
      rest.extent[dim] = common->extent[dim];
    }
  }
  return std::nullopt;
}

/// A part of the box that none of the pieces holds, if there is one.
inline std::optional<Box> uncovered(const Box& box, const std::vector<Piece>& pieces) {
  return cut(box, pieces, [](const Box&, const Piece&) {});
}

}  // namespace weir::internal
