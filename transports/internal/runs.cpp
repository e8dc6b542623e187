#include "transports/internal/runs.hpp"

#include <algorithm>
#include <utility>

#include "runtime/strided_copy.hpp"

namespace weir {
namespace {

/// The dimensions that are walked at all, from the smallest source stride to the largest.
struct Order {
  std::array<int, rank_max> dims{};
  std::size_t count = 0;
};

Order inner_first(const Copy& copy) {
  Order order;
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    if (copy.extent[dim] > 1) order.dims[order.count++] = dim;
  }
  // By insertion: there are four at most.
  for (std::size_t i = 1; i < order.count; ++i) {
    for (std::size_t j = i; j > 0; --j) {
      if (copy.source_stride[order.dims[j]] >= copy.source_stride[order.dims[j - 1]]) break;
      std::swap(order.dims[j], order.dims[j - 1]);
    }
  }
  return order;
}

std::uint64_t source_stride(const Copy& copy, int dim) {
  return static_cast<std::uint64_t>(copy.source_stride[dim]);
}

}  // namespace

std::optional<Runs> direct_runs(const Copy& copy) {
  if (copy.source_type != copy.target_type) return std::nullopt;
  Runs runs{.source_offset = copy.source_offset,
            .target_offset = copy.target_offset,
            .run_bytes = size_of(copy.source_type)};
  const Order order = inner_first(copy);
  std::size_t inner = 0;
  for (; inner < order.count; ++inner) {
    const int dim = order.dims[inner];
    if (source_stride(copy, dim) != runs.run_bytes) break;
    if (static_cast<std::uint64_t>(copy.target_stride[dim]) != runs.run_bytes) break;
    runs.run_bytes *= static_cast<std::uint64_t>(copy.extent[dim]);
  }
  runs.rank = static_cast<std::uint32_t>(order.count - inner);
  for (std::size_t i = inner; i < order.count; ++i) {
    const std::size_t loop = order.count - 1 - i;
    runs.extent[loop] = static_cast<std::uint64_t>(copy.extent[order.dims[i]]);
    runs.source_stride[loop] = source_stride(copy, order.dims[i]);
    runs.target_stride[loop] = static_cast<std::uint64_t>(copy.target_stride[order.dims[i]]);
  }
  return runs;
}

PackedCopy pack(const Copy& copy, std::uint64_t gap_bytes_max) {
  PackedCopy packed{.runs = {}, .from_packed = copy};
  packed.from_packed.source_offset = 0;
  Runs& runs = packed.runs;
  runs.source_offset = copy.source_offset;
  runs.run_bytes = size_of(copy.source_type);
  // Inner dimensions become part of the run as long as the gaps are small; the rest are loops.
  const Order order = inner_first(copy);
  std::size_t inner = 0;
  for (; inner < order.count; ++inner) {
    const int dim = order.dims[inner];
    if (source_stride(copy, dim) > runs.run_bytes + gap_bytes_max) break;
    runs.run_bytes += source_stride(copy, dim) * static_cast<std::uint64_t>(copy.extent[dim] - 1);
  }
  runs.rank = static_cast<std::uint32_t>(order.count - inner);
  std::uint64_t packed_stride = runs.run_bytes;
  for (std::size_t i = inner; i < order.count; ++i) {
    const int dim = order.dims[i];
    const std::size_t loop = order.count - 1 - i;
    runs.extent[loop] = static_cast<std::uint64_t>(copy.extent[dim]);
    runs.source_stride[loop] = source_stride(copy, dim);
    runs.target_stride[loop] = packed_stride;
    packed.from_packed.source_stride[dim] = static_cast<std::int64_t>(packed_stride);
    packed_stride *= runs.extent[loop];
  }
  return packed;
}

std::vector<Copy> cut_to_fit(const Copy& copy, std::uint64_t gap_bytes_max,
                             std::uint64_t buffer_bytes) {
  std::vector<Copy> parts;
  std::vector<Copy> open{copy};
  while (!open.empty()) {
    const Copy part = open.back();
    open.pop_back();
    const std::uint64_t bytes = pack(part, gap_bytes_max).runs.bytes();
    if (bytes <= buffer_bytes) {
      parts.push_back(part);
      continue;
    }
    // Along the dimension with the largest stride, as many steps at once as fit.
    const Order order = inner_first(part);
    const int widest = order.dims[order.count - 1];
    const std::int64_t extent = part.extent[widest];
    const double share = static_cast<double>(buffer_bytes) / static_cast<double>(bytes);
    const std::int64_t chunk = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(share * static_cast<double>(extent)), 1, extent - 1);
    // The last chunk goes on the stack first, so that the parts come out in order.
    for (std::int64_t start = (extent - 1) / chunk * chunk; start >= 0; start -= chunk) {
      open.push_back(slice(part, widest, start, std::min(extent, start + chunk)));
    }
  }
  return parts;
}

}  // namespace weir
