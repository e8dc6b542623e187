#include "runtime/internal/copy_form.hpp"

namespace weir::internal {
namespace {

struct Loop {
  std::int64_t extent = 1;
  std::int64_t source_stride = 0;
  std::int64_t target_stride = 0;
};

Loop loop_of(const Copy& copy, int dim) noexcept {
  return {copy.extent[dim], copy.source_stride[dim], copy.target_stride[dim]};
}

/// Replaces the copy's loops, outermost first.
void set_loops(Copy& copy, const Loop* loops, int count) noexcept {
  copy.extent = Dims::filled(count, 0);
  copy.source_stride = copy.extent;
  copy.target_stride = copy.extent;
  for (int dim = 0; dim < count; ++dim) {
    copy.extent[dim] = loops[dim].extent;
    copy.source_stride[dim] = loops[dim].source_stride;
    copy.target_stride[dim] = loops[dim].target_stride;
  }
}

/// Whether `second` has the loops of `first`, from its dimension `from` on against `second_from`.
bool same_loops(const Copy& first, int from, const Copy& second, int second_from) noexcept {
  for (int dim = from; dim < first.extent.rank(); ++dim) {
    const int other = dim - from + second_from;
    if (first.extent[dim] != second.extent[other] ||
        first.source_stride[dim] != second.source_stride[other] ||
        first.target_stride[dim] != second.target_stride[other]) {
      return false;
    }
  }
  return true;
}

/// Both have the same loops, but for the extent of one, which `second` continues.
bool join_along(Copy& first, const Copy& second, std::int64_t source_step,
                std::int64_t target_step) noexcept {
  const int rank = first.extent.rank();
  if (second.extent.rank() != rank) return false;
  for (int dim = 0; dim < rank; ++dim) {
    const Loop loop = loop_of(first, dim);
    if (loop.source_stride * loop.extent != source_step ||
        loop.target_stride * loop.extent != target_step) {
      continue;
    }
    Copy alike = second;
    alike.extent[dim] = loop.extent;
    if (!same_loops(first, 0, alike, 0)) continue;
    first.extent[dim] += second.extent[dim];
    normalize(first);
    return true;
  }
  return false;
}

/// `first` repeats what `second` does once, and `second` is its next repetition.
bool join_next(Copy& first, const Copy& second, std::int64_t source_step,
               std::int64_t target_step) noexcept {
  if (first.extent.rank() != second.extent.rank() + 1) return false;
  const Loop outer = loop_of(first, 0);
  if (outer.source_stride * outer.extent != source_step ||
      outer.target_stride * outer.extent != target_step || !same_loops(first, 1, second, 0)) {
    return false;
  }
  ++first.extent[0];
  normalize(first);
  return true;
}

/// Both do the same at different places: twice in a loop around it.
bool join_pair(Copy& first, const Copy& second, std::int64_t source_step,
               std::int64_t target_step) noexcept {
  const int rank = first.extent.rank();
  if (rank != second.extent.rank() || rank == rank_max || !same_loops(first, 0, second, 0)) {
    return false;
  }
  if (rank > 0 && target_step <= first.target_stride[0]) return false;
  Loop loops[rank_max] = {{2, source_step, target_step}};
  for (int dim = 0; dim < rank; ++dim) loops[dim + 1] = loop_of(first, dim);
  set_loops(first, loops, rank + 1);
  normalize(first);
  return true;
}

}  // namespace

void normalize(Copy& copy) noexcept {
  Loop loops[rank_max];
  int count = 0;
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    if (copy.extent[dim] == 1) continue;
    // Insertion by falling target stride; no two are equal, or a byte would be written twice.
    const Loop loop = loop_of(copy, dim);
    int place = count++;
    for (; place > 0 && loops[place - 1].target_stride < loop.target_stride; --place) {
      loops[place] = loops[place - 1];
    }
    loops[place] = loop;
  }
  int merged = 0;
  for (int i = 0; i < count; ++i) {
    const Loop& inner = loops[i];
    if (merged > 0 && loops[merged - 1].source_stride == inner.source_stride * inner.extent &&
        loops[merged - 1].target_stride == inner.target_stride * inner.extent) {
      loops[merged - 1] = {loops[merged - 1].extent * inner.extent, inner.source_stride,
                           inner.target_stride};
    } else {
      loops[merged++] = inner;
    }
  }
  set_loops(copy, loops, merged);
}

bool join(Copy& first, const Copy& second) noexcept {
  if (first.source != second.source || first.source_region != second.source_region ||
      first.target_region != second.target_region || first.source_type != second.source_type ||
      first.target_type != second.target_type) {
    return false;
  }
  if (second.source_offset <= first.source_offset || second.target_offset <= first.target_offset) {
    return false;
  }
  const auto source_step = static_cast<std::int64_t>(second.source_offset - first.source_offset);
  const auto target_step = static_cast<std::int64_t>(second.target_offset - first.target_offset);
  return join_along(first, second, source_step, target_step) ||
         join_next(first, second, source_step, target_step) ||
         join_pair(first, second, source_step, target_step);
}

}  // namespace weir::internal
