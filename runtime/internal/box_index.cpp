#include "runtime/internal/box_index.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
namespace weir::internal {
namespace {

bool contains(const Box& outer, const Box& inner) noexcept {
  for (int dim = 0; dim < inner.start.rank(); ++dim) {
    if (inner.start[dim] < outer.start[dim] ||
        inner.start[dim] + inner.extent[dim] > outer.start[dim] + outer.extent[dim]) {
      return false;
    }
  }
  return true;
}

bool meet(const Box& a, const Box& b) noexcept {
  for (int dim = 0; dim < a.start.rank(); ++dim) {
    if (a.start[dim] >= b.start[dim] + b.extent[dim] ||
        b.start[dim] >= a.start[dim] + a.extent[dim]) {
      return false;
    }
  }
  return true;
}

/// A piece on its way into the index.
struct Record {
  TensorNumber tensor = 0;
  Holder holder;
  const Box* box = nullptr;
};

/// The dimension along which the boxes have the most distinct starts; the first of equals.
int main_dim_of(std::span<const Record> records, std::vector<std::int64_t>& scratch) {
  const Dims& first = records.front().box->start;
  int main_dim = 0;
  std::size_t most = 1;
  for (int dim = 0; dim < first.rank(); ++dim) {
    const auto starts_alike = [&](const Record& r) { return r.box->start[dim] == first[dim]; };
    if (std::all_of(records.begin(), records.end(), starts_alike)) continue;
    scratch.clear();
    for (const Record& record : records) scratch.push_back(record.box->start[dim]);
    std::sort(scratch.begin(), scratch.end());
    const auto distinct =
        static_cast<std::size_t>(std::unique(scratch.begin(), scratch.end()) - scratch.begin());
    if (distinct > most) {
      most = distinct;
      main_dim = dim;
    }
  }
  return main_dim;
}

}  // namespace

BoxIndex::BoxIndex(const Roster& roster, const Pattern& pattern, const PatternTensors& tensors,
                   const std::vector<bool>& wanted) {
  // Records by tensor, each tensor's by rank and piece: counted first, then put in place.
  std::vector<std::uint32_t> next(tensors.listed.size() + 1);
  for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
    for (const Piece& piece : roster.model_of(pattern, rank).pieces) {
      const TensorNumber tensor = tensors.numbers[rank][piece.tensor];
      if (wanted[tensor]) ++next[tensor + 1];
    }
  }
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<Record> records(next.back());
  for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
    const Manifest& manifest = roster.model_of(pattern, rank);
    for (std::uint32_t i = 0; i < manifest.pieces.size(); ++i) {
      const Piece& piece = manifest.pieces[i];
      const TensorNumber tensor = tensors.numbers[rank][piece.tensor];
      if (!wanted[tensor]) continue;
      const ElementType type = manifest.tensors[piece.tensor].type;
      records[next[tensor]++] = {tensor, {rank, i, type}, &piece.box};
    }
  }

  ranges_.resize(tensors.listed.size());
  holders_.reserve(records.size());
  std::vector<std::int64_t> scratch;
  for (std::size_t begin = 0; begin < records.size();) {
    const TensorNumber tensor = records[begin].tensor;
    const std::span<Record> group(records.data() + begin, next[tensor] - begin);
    begin = next[tensor];
    Range& range = ranges_[tensor];
    range.begin = static_cast<std::uint32_t>(entries_.size());
    range.main_dim = main_dim_of(group, scratch);
    const auto before = [dim = range.main_dim](const Record& a, const Record& b) {
      if (a.box->start[dim] != b.box->start[dim]) return a.box->start[dim] < b.box->start[dim];
      if (const auto order = *a.box <=> *b.box; order != 0) return order < 0;
      return std::pair(a.holder.rank, a.holder.piece) < std::pair(b.holder.rank, b.holder.piece);
    };
    if (!std::is_sorted(group.begin(), group.end(), before)) {
      std::sort(group.begin(), group.end(), before);
    }
    std::int64_t reach = 0;
    for (const Record& record : group) {
      if (entries_.size() == range.begin || entries_.back().box != *record.box) {
        const auto holder = static_cast<std::uint32_t>(holders_.size());
        entries_.push_back({*record.box, holder, holder});
        if (record.box->start.rank() > 0) {
          reach = std::max(reach,
                           record.box->start[range.main_dim] + record.box->extent[range.main_dim]);
        }
        reach_.push_back(reach);
      }
      holders_.push_back(record.holder);
      ++entries_.back().holders_end;
    }
    range.end = static_cast<std::uint32_t>(entries_.size());
  }
}

/// Cuts one box. A part that lies within an entry is done; another is cut at an edge of an entry
/// that crosses it, which halves the edges left in that dimension each time, and so ends.
class BoxIndex::Cutter {
 public:
  Cutter(const BoxIndex& index, Cover& cover) : index_(index), cover_(cover) {}

  /// `cover.candidates` from `begin` on: the entries that meet `box`. Returns false at the first
  /// hole, or when there are too many parts. Leaves no more candidates than it found.
  bool cut(const Box& box, std::size_t begin) {
    const std::size_t end = cover_.candidates.size();
    if (begin == end) {
      hole_ = box;
      return false;
    }
    if (finish(box, begin)) return cover_.parts.size() <= cover_parts_max;
    const Edge edge = best_edge(box, begin);
    Box low = box;
    low.extent[edge.dim] = edge.at - box.start[edge.dim];
    Box high = box;
    high.start[edge.dim] = edge.at;
    high.extent[edge.dim] -= low.extent[edge.dim];
    for (const Box* half : {&low, &high}) {
      for (std::size_t i = begin; i < end; ++i) {
        const std::uint32_t entry = cover_.candidates[i];
        if (meet(box_of(entry), *half)) cover_.candidates.push_back(entry);
      }
      if (!cut(*half, end)) return false;
      cover_.candidates.resize(end);
    }
    return true;
  }

  [[nodiscard]] const std::optional<Box>& hole() const noexcept { return hole_; }

 private:
  struct Edge {
    int dim = -1;
    std::int64_t at = 0;
    std::size_t crossed = 0;  ///< Candidates that the cut would divide: fewer make fewer parts.
    std::size_t choices = 0;  ///< Edges of that dimension within the box: more divide more evenly.
  };

  [[nodiscard]] const Box& box_of(std::uint32_t entry) const { return index_.entries_[entry].box; }

  [[nodiscard]] std::span<const std::uint32_t> candidates(std::size_t begin) const {
    return std::span<const std::uint32_t>(cover_.candidates).subspan(begin);
  }

  bool finish(const Box& box, std::size_t begin) {
    const std::size_t first = cover_.entries.size();
    for (const std::uint32_t entry : candidates(begin)) {
      if (contains(box_of(entry), box)) cover_.entries.push_back(entry);
    }
    if (cover_.entries.size() == first) return false;
    cover_.parts.push_back({box, static_cast<std::uint32_t>(first),
                            static_cast<std::uint32_t>(cover_.entries.size())});
    return true;
  }

  /// The middle edge of the dimension whose middle edge divides the fewest candidates.
  Edge best_edge(const Box& box, std::size_t begin) {
    std::vector<std::int64_t>& edges = cover_.edges;
    Edge best;
    for (int dim = 0; dim < box.start.rank(); ++dim) {
      const std::int64_t start = box.start[dim];
      const std::int64_t end = start + box.extent[dim];
      edges.clear();
      for (const std::uint32_t entry : candidates(begin)) {
        const std::int64_t entry_start = box_of(entry).start[dim];
        const std::int64_t entry_end = entry_start + box_of(entry).extent[dim];
        if (entry_start > start) edges.push_back(entry_start);
        if (entry_end < end) edges.push_back(entry_end);
      }
      if (edges.empty()) continue;
      const auto middle = edges.begin() + static_cast<std::ptrdiff_t>(edges.size() / 2);
      std::nth_element(edges.begin(), middle, edges.end());
      Edge edge{dim, *middle, 0, edges.size()};
      for (const std::uint32_t entry : candidates(begin)) {
        const std::int64_t entry_start = box_of(entry).start[dim];
        const std::int64_t entry_end = entry_start + box_of(entry).extent[dim];
        if (entry_start < edge.at && edge.at < entry_end) ++edge.crossed;
      }
      if (best.dim < 0 || edge.crossed < best.crossed ||
          (edge.crossed == best.crossed && edge.choices > best.choices)) {
        best = edge;
      }
    }
    return best;
  }

  const BoxIndex& index_;
  Cover& cover_;
  std::optional<Box> hole_;
};

bool BoxIndex::cut_along(int dim, std::uint32_t begin, std::uint32_t end, const Box& box,
                         Cover& cover) const {
  if (end == begin + 1 && contains(entries_[begin].box, box)) {
    cover.entries.push_back(begin);
    cover.parts.push_back({box, 0, 1});
    return true;
  }
  if (box.start.rank() == 0 || end - begin > cover_parts_max) return false;
  Box part = box;  // What the entry at hand holds of the box; then what is left behind it.
  const std::int64_t box_end = box.start[dim] + box.extent[dim];
  for (std::uint32_t entry = begin; entry < end; ++entry) {
    const Box& held = entries_[entry].box;
    const std::int64_t held_end = held.start[dim] + held.extent[dim];
    const bool meets =
        entry == begin ? held.start[dim] <= part.start[dim] : held.start[dim] == part.start[dim];
    part.extent[dim] = std::min(held_end, box_end) - part.start[dim];
    if (!meets || part.extent[dim] <= 0 || !contains(held, part)) break;
    const auto place = static_cast<std::uint32_t>(cover.entries.size());
    cover.entries.push_back(entry);
    cover.parts.push_back({part, place, place + 1});
    part.start[dim] += part.extent[dim];
    if (entry + 1 == end && part.start[dim] == box_end) return true;
  }
  cover.entries.clear();
  cover.parts.clear();
  return false;
}

Result<std::optional<Box>> BoxIndex::cover(TensorNumber tensor, const Box& box,
                                           Cover& cover) const {
  cover.parts.clear();
  cover.entries.clear();
  const Range& range = ranges_[tensor];
  std::uint32_t begin = range.begin;
  std::uint32_t end = range.end;
  if (box.start.rank() > 0) {
    // Entries before `begin` end too soon, entries from `end` on start too late.
    const int dim = range.main_dim;
    const auto reach = reach_.begin();
    begin = static_cast<std::uint32_t>(
        std::upper_bound(reach + range.begin, reach + range.end, box.start[dim]) - reach);
    const auto first = entries_.begin();
    const auto starts_before = [&](const Entry& entry) {
      return entry.box.start[dim] < box.start[dim] + box.extent[dim];
    };
    end = static_cast<std::uint32_t>(
        std::partition_point(first + begin, first + range.end, starts_before) - first);
  }
  if (cut_along(range.main_dim, begin, end, box, cover)) return std::nullopt;
  cover.candidates.clear();
  for (std::uint32_t entry = begin; entry < end; ++entry) {
    if (meet(entries_[entry].box, box)) cover.candidates.push_back(entry);
  }
  Cutter cutter(*this, cover);
  if (cutter.cut(box, 0)) return std::nullopt;
  if (cutter.hole()) return cutter.hole();
  return failure(ErrorCode::refused, "its pieces cut each other into more than " +
                                         std::to_string(cover_parts_max) +
                                         " parts: describe it by fewer, larger pieces");
}

}  // namespace weir::internal
