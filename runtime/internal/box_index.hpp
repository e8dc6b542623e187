#pragma once
// The boxes in which a pattern's shards hold each tensor, indexed, and the proof of coverage.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/box.hpp"
#include "runtime/internal/catalog.hpp"
#include "runtime/internal/roster.hpp"
#include "runtime/result.hpp"

namespace weir::internal {

/// A piece that holds a box: its shard's rank, and its index in that shard's manifest.
struct Holder {
  std::uint32_t rank = 0;
  std::uint32_t piece = 0;
  ElementType type = ElementType::bf16;
};

/// A box cut into parts so that each lies within at least one indexed box. The parts are disjoint
/// and fill the box: they arise from it by cutting alone. Reused from one cover to the next.
struct Cover {
  struct Part {
    Box box;
    std::uint32_t entries_begin = 0;  ///< The entries that hold this part: a range of `entries`.
    std::uint32_t entries_end = 0;
  };
  std::vector<Part> parts;
  std::vector<std::uint32_t> entries;

  std::vector<std::uint32_t> candidates;  ///< Scratch of `BoxIndex::cover`.
  std::vector<std::int64_t> edges;        ///< Scratch of `BoxIndex::cover`.
};

/// Immutable once built. Borrows nothing.
class BoxIndex {
 public:
  BoxIndex(const Roster& roster, const Pattern& pattern, const PatternTensors& tensors);

  /// Writes to `cover` how the indexed boxes of `tensor` cover `box` (not empty). Returns a box
  /// within it that none of them covers, if there is one; the cover is then undefined.
  /// Errors: `refused` where the boxes cut each other into more than `cover_parts_max` parts.
  Result<std::optional<Box>> cover(TensorNumber tensor, const Box& box, Cover& cover) const;

  /// Those that hold the box of an entry, by rank and then in the manifest's order.
  [[nodiscard]] std::span<const Holder> holders(std::uint32_t entry) const {
    const Entry& found = entries_[entry];
    return std::span(holders_).subspan(found.holders_begin,
                                       found.holders_end - found.holders_begin);
  }

 private:
  /// A distinct box of one tensor.
  struct Entry {
    Box box;
    std::uint32_t holders_begin = 0;
    std::uint32_t holders_end = 0;
  };
  /// A tensor's entries are sorted by their start along its main dimension, the one with the most
  /// distinct starts: there the boxes that meet a given one are found by bisection.
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    int main_dim = 0;
  };

  class Cutter;

  std::vector<Range> ranges_;  ///< By tensor number.
  std::vector<Entry> entries_;
  /// By entry: the largest end along the main dimension among it and those before it.
  std::vector<std::int64_t> reach_;
  std::vector<Holder> holders_;
};

/// Enough for any layout: a tensor cut by rows among 4096 shards and by columns among 16.
inline constexpr std::size_t cover_parts_max = std::size_t{1} << 16;

/// Proves that the pattern's shards together hold the whole of every tensor that they list.
/// Errors (`invalid`): a hole, by tensor, box and replica.
Result<void> check_whole(const Roster& roster, const Pattern& pattern, const Catalog& catalog,
                         const PatternTensors& tensors, const BoxIndex& index);

}  // namespace weir::internal
