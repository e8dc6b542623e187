#include "runtime/strided_copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/assert.hpp"
#include "runtime/convert.hpp"
#include "runtime/internal/elements.hpp"
#include "runtime/internal/kernels.hpp"
#include "runtime/internal/stream_copy.hpp"

namespace weir {
namespace {

std::string description(const Copy& copy) {
  return "copy of " + text_of(copy.extent) + " " + std::string(name_of(copy.source_type)) +
         " elements";
}

Result<void> check_side(const Copy& copy, bool source, std::uint64_t region_bytes) {
  const auto end = source ? byte_end(copy.source_offset, copy.extent, copy.source_stride,
                                     size_of(copy.source_type))
                          : byte_end(copy.target_offset, copy.extent, copy.target_stride,
                                     size_of(copy.target_type));
  if (end && *end <= region_bytes) return {};
  return failure(ErrorCode::invalid,
                 description(copy) + (source ? " reads up to byte " : " writes up to byte ") +
                     (end ? std::to_string(*end) : "more than 2^64") + " of a " +
                     (source ? "source" : "target") + " region that has " +
                     std::to_string(region_bytes) + "; plan and regions do not belong together");
}

/// A copy that writes more bytes than its target has writes some twice; refusing it also keeps
/// the number of elements, on which the time taken depends, within what memory allows.
Result<void> check_count(const Copy& copy, std::uint64_t target_region_bytes) {
  std::uint64_t bytes = size_of(copy.target_type);
  bool overflow = false;
  for (const std::int64_t extent : copy.extent.values()) {
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
  }
  if (!overflow && bytes <= target_region_bytes) return {};
  return failure(ErrorCode::invalid, description(copy) + " writes more bytes than its target has");
}

/// The loops of a copy, outermost first: no extent of 1, dense neighbours merged, target strides
/// falling. An inner run of bytes is what the last loop walks when both its strides are dense.
struct Loops {
  int rank = 0;
  std::array<std::size_t, rank_max> extent{};
  std::array<std::size_t, rank_max> source{};
  std::array<std::size_t, rank_max> target{};
};

Loops loops_of(const Copy& copy) noexcept {
  std::array<std::size_t, rank_max> order{};
  std::size_t count = 0;
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    if (copy.extent[dim] == 1) continue;
    // By insertion, which allocates nothing: there are four at most.
    std::size_t place = count++;
    order[place] = static_cast<std::size_t>(dim);
    for (; place > 0; --place) {
      const auto before = static_cast<int>(order[place - 1]);
      if (copy.target_stride[before] >= copy.target_stride[dim]) break;
      std::swap(order[place], order[place - 1]);
    }
  }
  Loops loops;
  for (std::size_t i = 0; i < count; ++i) {
    const auto dim = static_cast<int>(order[i]);
    const auto extent = static_cast<std::size_t>(copy.extent[dim]);
    const auto source = static_cast<std::size_t>(copy.source_stride[dim]);
    const auto target = static_cast<std::size_t>(copy.target_stride[dim]);
    const auto last = static_cast<std::size_t>(loops.rank) - 1;
    if (loops.rank > 0 && loops.source[last] == extent * source &&
        loops.target[last] == extent * target) {
      loops.extent[last] *= extent;
      loops.source[last] = source;
      loops.target[last] = target;
      continue;
    }
    const auto next = static_cast<std::size_t>(loops.rank++);
    loops.extent[next] = extent;
    loops.source[next] = source;
    loops.target[next] = target;
  }
  return loops;
}

/// Calls `body(source, target)` for every index of the loops but the last `inner` ones.
template <class Body>
void for_outer(const Loops& loops, int inner, const std::byte* source, std::byte* target,
               const Body& body) noexcept {
  const int outer = loops.rank - inner;
  if (outer <= 0) return body(source, target);
  std::array<std::size_t, rank_max> index{};
  for (;;) {
    body(source, target);
    int dim = outer - 1;
    for (; dim >= 0; --dim) {
      const auto d = static_cast<std::size_t>(dim);
      source += loops.source[d];
      target += loops.target[d];
      if (++index[d] < loops.extent[d]) break;
      source -= loops.source[d] * loops.extent[d];
      target -= loops.target[d] * loops.extent[d];
      index[d] = 0;
    }
    if (dim < 0) return;
  }
}

/// How elements become elements: of one type, or converted.
template <class Bits>
struct Keep {
  using Source = Bits;
  using Target = Bits;
  static Target one(Source bits) noexcept { return bits; }
  static void run(std::byte* target, const std::byte* source, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(Bits);
    if (bytes >= stream_run_bytes_min) {
      stream_copy(target, source, bytes);
    } else {
      std::memcpy(target, source, bytes);
    }
  }
};

template <class From, class To>
struct Change {
  using Source = typename From::Bits;
  using Target = typename To::Bits;
  static Target one(Source bits) noexcept { return To::narrow(From::widen(bits)); }
};

template <class Kind>
void move_one(std::byte* target, const std::byte* source) noexcept {
  typename Kind::Source from;
  std::memcpy(&from, source, sizeof from);
  const typename Kind::Target to = Kind::one(from);
  std::memcpy(target, &to, sizeof to);
}

/// The last two loops of a copy whose last loop is not dense on both sides, in tiles, so that a
/// transpose uses every cache line it fetches while it has it.
template <class Kind>
void move_plane(const Loops& loops, const std::byte* source, std::byte* target) noexcept {
  constexpr std::size_t tile = 32;
  const auto b = static_cast<std::size_t>(loops.rank) - 1;
  const std::size_t a = b - 1;
  for (std::size_t i0 = 0; i0 < loops.extent[a]; i0 += tile) {
    const std::size_t i1 = std::min(i0 + tile, loops.extent[a]);
    for (std::size_t j0 = 0; j0 < loops.extent[b]; j0 += tile) {
      const std::size_t j1 = std::min(j0 + tile, loops.extent[b]);
      for (std::size_t i = i0; i < i1; ++i) {
        const std::byte* from = source + i * loops.source[a] + j0 * loops.source[b];
        std::byte* to = target + i * loops.target[a] + j0 * loops.target[b];
        for (std::size_t j = j0; j < j1; ++j) {
          move_one<Kind>(to, from);
          from += loops.source[b];
          to += loops.target[b];
        }
      }
    }
  }
}

/// Brings the loop with the smallest source stride next to the last, where tiles meet both.
void pair_for_tiles(Loops& loops) noexcept {
  const auto last = static_cast<std::size_t>(loops.rank) - 1;
  std::size_t smallest = 0;
  for (std::size_t dim = 1; dim < last; ++dim) {
    if (loops.source[dim] < loops.source[smallest]) smallest = dim;
  }
  for (std::size_t dim = smallest; dim + 1 < last; ++dim) {
    std::swap(loops.extent[dim], loops.extent[dim + 1]);
    std::swap(loops.source[dim], loops.source[dim + 1]);
    std::swap(loops.target[dim], loops.target[dim + 1]);
  }
}

/// `run` does what `Kind` does to one element, to a dense run.
template <class Kind>
void move_all(Loops loops, internal::ConvertRun run, const std::byte* source,
              std::byte* target) noexcept {
  if (loops.rank == 0) return move_one<Kind>(target, source);
  const auto last = static_cast<std::size_t>(loops.rank) - 1;
  if (loops.source[last] == sizeof(typename Kind::Source) &&
      loops.target[last] == sizeof(typename Kind::Target)) {
    const std::size_t count = loops.extent[last];
    for_outer(loops, 1, source, target,
              [count, run](const std::byte* from, std::byte* to) { run(to, from, count); });
  } else if (loops.rank == 1) {
    for_outer(loops, 0, source, target,
              [](const std::byte* from, std::byte* to) { move_one<Kind>(to, from); });
  } else {
    pair_for_tiles(loops);
    for_outer(loops, 2, source, target, [&loops](const std::byte* from, std::byte* to) {
      move_plane<Kind>(loops, from, to);
    });
  }
}

template <class Bits>
void move_kept(const Loops& loops, const std::byte* source, std::byte* target) noexcept {
  move_all<Keep<Bits>>(loops, Keep<Bits>::run, source, target);
}

void move_kept(const Loops& loops, std::size_t element_bytes, const std::byte* source,
               std::byte* target) noexcept {
  switch (element_bytes) {
    case 1:
      return move_kept<std::uint8_t>(loops, source, target);
    case 2:
      return move_kept<std::uint16_t>(loops, source, target);
    case 4:
      return move_kept<std::uint32_t>(loops, source, target);
    default:
      return move_kept<std::uint64_t>(loops, source, target);
  }
}

template <class From>
void move_changed(const Loops& loops, ElementType target_type, internal::ConvertRun run,
                  const std::byte* source, std::byte* target) noexcept {
  using internal::Bf16;
  using internal::F16;
  using internal::F32;
  switch (target_type) {
    case ElementType::f32:
      return move_all<Change<From, F32>>(loops, run, source, target);
    case ElementType::f16:
      return move_all<Change<From, F16>>(loops, run, source, target);
    default:
      return move_all<Change<From, Bf16>>(loops, run, source, target);
  }
}

void move_changed(const Loops& loops, TypePair types, const std::byte* source,
                  std::byte* target) noexcept {
  const auto& kernels = internal::kernels_of(best_simd_level());
  const auto run =
      kernels.convert[internal::float_index(types.source)][internal::float_index(types.target)];
  switch (types.source) {
    case ElementType::f32:
      return move_changed<internal::F32>(loops, types.target, run, source, target);
    case ElementType::f16:
      return move_changed<internal::F16>(loops, types.target, run, source, target);
    default:
      return move_changed<internal::Bf16>(loops, types.target, run, source, target);
  }
}

}  // namespace

Result<void> check_bounds(const Copy& copy, std::uint64_t source_region_bytes,
                          std::uint64_t target_region_bytes) {
  if (copy.source_stride.rank() != copy.extent.rank() ||
      copy.target_stride.rank() != copy.extent.rank()) {
    return failure(ErrorCode::invalid, description(copy) + " has strides of another rank");
  }
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    if (copy.extent[dim] <= 0 || copy.source_stride[dim] <= 0 || copy.target_stride[dim] <= 0) {
      return failure(ErrorCode::invalid,
                     description(copy) + " has an extent or a stride that is not positive");
    }
  }
  if (size_of(copy.source_type) == 0 || size_of(copy.target_type) == 0) {
    return failure(ErrorCode::invalid, description(copy) + " has an unknown element type");
  }
  if (copy.source_type != copy.target_type &&
      !conversion_exists(copy.source_type, copy.target_type)) {
    return failure(ErrorCode::invalid, description(copy) + " can't be converted to " +
                                           std::string(name_of(copy.target_type)));
  }
  if (Result<void> read = check_side(copy, true, source_region_bytes); !read) return read;
  if (Result<void> write = check_side(copy, false, target_region_bytes); !write) return write;
  return check_count(copy, target_region_bytes);
}

void copy_strided(const Copy& copy, std::span<const std::byte> source,
                  std::span<std::byte> target) noexcept {
  const Loops loops = loops_of(copy);
  const std::byte* from = source.data() + copy.source_offset;
  std::byte* to = target.data() + copy.target_offset;
  if (copy.source_type == copy.target_type) {
    move_kept(loops, size_of(copy.source_type), from, to);
  } else {
    move_changed(loops, {.source = copy.source_type, .target = copy.target_type}, from, to);
  }
  stream_fence();
}

Copy slice(const Copy& copy, int dim, std::int64_t begin, std::int64_t end) noexcept {
  Copy part = copy;
  part.extent[dim] = end - begin;
  part.source_offset += static_cast<std::uint64_t>(begin * copy.source_stride[dim]);
  part.target_offset += static_cast<std::uint64_t>(begin * copy.target_stride[dim]);
  return part;
}

std::vector<Copy> split(const Copy& copy, std::uint64_t part_bytes_max) {
  const auto size = static_cast<std::int64_t>(size_of(copy.target_type));
  const std::int64_t wanted = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::min<std::uint64_t>(part_bytes_max, INT64_MAX)) / size, 1,
      INT64_MAX);
  std::vector<Copy> parts;
  std::vector<Copy> open{copy};
  while (!open.empty()) {
    Copy part = open.back();
    open.pop_back();
    const std::int64_t count = element_count(part.extent);
    const auto extents = part.extent.values();
    const auto outermost = std::find_if(extents.begin(), extents.end(),
                                        [](std::int64_t extent) { return extent > 1; });
    if (count <= wanted || outermost == extents.end()) {
      parts.push_back(part);
      continue;
    }
    // Cut into equal shares of the outermost dimension; its elements are cut further in turn.
    const int dim = static_cast<int>(outermost - extents.begin());
    const std::int64_t extent = part.extent[dim];
    const std::int64_t shares = std::min(extent, (count + wanted - 1) / wanted);
    for (std::int64_t share = shares; share > 0; --share) {
      const std::int64_t start =
          extent / shares * (share - 1) + std::min(share - 1, extent % shares);
      const std::int64_t end = extent / shares * share + std::min(share, extent % shares);
      open.push_back(slice(part, dim, start, end));
    }
  }
  return parts;
}

}  // namespace weir
