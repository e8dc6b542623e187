#pragma once
// The model of simulated worlds: one matrix, cut into rows by its trainers and into columns by its
// rollouts, so that every rollout shard needs bytes of every trainer shard. Each element names the
// version and its place, so that any byte that is wrong shows where it came from.

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/manifest.hpp"

namespace weir::sim {

struct MatrixModel {
  std::int64_t rows = 12;
  std::int64_t columns = 12;

  [[nodiscard]] Tensor tensor() const {
    return {"matrix", ElementType::i32, {rows, columns}, TensorKind::parameter};
  }

  /// Rank `rank` of `ranks` has an equal share; both sizes are multiples of the rank counts.
  [[nodiscard]] Box box_of(const ShardId& shard, std::uint32_t ranks) const {
    const int cut = shard.side == Side::trainer ? 0 : 1;
    Box box = Box::whole({rows, columns});
    box.extent[cut] /= ranks;
    box.start[cut] = box.extent[cut] * shard.rank;
    return box;
  }

  [[nodiscard]] std::uint64_t bytes_of(const ShardId& shard, std::uint32_t ranks) const {
    return 4 * static_cast<std::uint64_t>(element_count(box_of(shard, ranks).extent));
  }

  /// The shard's box, dense, at the start of each slot's one region.
  [[nodiscard]] Manifest manifest_of(const ShardId& shard, std::uint32_t ranks,
                                     std::uint32_t slots = 1) const {
    Manifest manifest;
    manifest.shard = shard;
    manifest.replica_ranks = ranks;
    manifest.inventory = inventory_of({tensor()});
    manifest.tensors = {tensor()};
    manifest.slots = slots;
    manifest.regions.assign(slots, {RegionKind::host_private, bytes_of(shard, ranks), {}});
    const Box box = box_of(shard, ranks);
    manifest.pieces = {{0, 0, 0, box, dense_strides(box.extent, 4)}};
    return manifest;
  }

  [[nodiscard]] static std::int32_t value(std::uint64_t version, std::int64_t row,
                                          std::int64_t column) {
    return static_cast<std::int32_t>(version) * 10'000 + static_cast<std::int32_t>(row) * 100 +
           static_cast<std::int32_t>(column);
  }

  /// Calls `visit(element number in the shard, row, column)` for every element of the shard.
  template <class Visit>
  void for_each(const ShardId& shard, std::uint32_t ranks, const Visit& visit) const {
    const Box box = box_of(shard, ranks);
    std::size_t element = 0;
    for (std::int64_t row = 0; row < box.extent[0]; ++row) {
      for (std::int64_t column = 0; column < box.extent[1]; ++column) {
        visit(element++, box.start[0] + row, box.start[1] + column);
      }
    }
  }

  /// Elements with an odd number, or those with an even one: half of the work of an update.
  void fill_half(const ShardId& shard, std::uint32_t ranks, std::uint64_t version, bool odd,
                 std::span<std::byte> memory) const {
    for_each(shard, ranks, [&](std::size_t element, std::int64_t row, std::int64_t column) {
      if ((element % 2 == 1) != odd) return;
      const std::int32_t number = value(version, row, column);
      std::memcpy(memory.data() + 4 * element, &number, 4);
    });
  }

  /// Step `step` of `steps` that fill the memory from its first byte on. Returns how many bytes are
  /// filled then.
  std::uint64_t fill_step(const ShardId& shard, std::uint32_t ranks, std::uint64_t version,
                          std::uint64_t step, std::uint64_t steps,
                          std::span<std::byte> memory) const {
    const std::uint64_t elements = bytes_of(shard, ranks) / 4;
    const std::uint64_t begin = elements * step / steps;
    const std::uint64_t end = elements * (step + 1) / steps;
    for_each(shard, ranks, [&](std::size_t element, std::int64_t row, std::int64_t column) {
      if (element < begin || element >= end) return;
      const std::int32_t number = value(version, row, column);
      std::memcpy(memory.data() + 4 * element, &number, 4);
    });
    return 4 * end;
  }

  void fill(const ShardId& shard, std::uint32_t ranks, std::uint64_t version,
            std::span<std::byte> memory) const {
    fill_half(shard, ranks, version, false, memory);
    fill_half(shard, ranks, version, true, memory);
  }

  [[nodiscard]] bool holds(const ShardId& shard, std::uint32_t ranks, std::uint64_t version,
                           std::span<const std::byte> memory) const {
    bool same = true;
    for_each(shard, ranks, [&](std::size_t element, std::int64_t row, std::int64_t column) {
      const std::int32_t number = value(version, row, column);
      same = same && std::memcmp(memory.data() + 4 * element, &number, 4) == 0;
    });
    return same;
  }
};

}  // namespace weir::sim
