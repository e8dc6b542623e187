#pragma once
// The boxes in which a pattern's shards hold each tensor, indexed.

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
  /// `wanted`: by tensor number, whether to index it.
  BoxIndex(const Roster& roster, const Pattern& pattern, const PatternTensors& tensors,
           const std::vector<bool>& wanted);

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

  /// Where the entries from `begin` to `end` cut `box` into one part each, one behind the other
  /// along `dim`, as those of nearly every layout do: writes them to the empty `cover`, as `Cutter`
  /// would with more pains. Else returns false and leaves it empty.
  bool cut_along(int dim, std::uint32_t begin, std::uint32_t end, const Box& box,
                 Cover& cover) const;

  std::vector<Range> ranges_;  ///< By tensor number.
  std::vector<Entry> entries_;
  /// By entry: the largest end along the main dimension among it and those before it.
  std::vector<std::int64_t> reach_;
  std::vector<Holder> holders_;
};

/// Enough for any layout: a tensor cut by rows among 4096 shards and by columns among 16.
inline constexpr std::size_t cover_parts_max = std::size_t{1} << 16;

}  // namespace weir::internal
