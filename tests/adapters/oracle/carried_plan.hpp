#pragma once
// Shards in this process's memory, filled as the reference says, and a plan's copies carried out
// between them by a plain loop, element by element.

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/oracle/internal/narrowing.hpp"
#include "adapters/oracle/oracle.hpp"
#include "adapters/oracle/reference.hpp"
#include "runtime/planner.hpp"
#include "tests/adapters/oracle/random_models.hpp"

namespace weir::oracle {

/// One shard: its rank as the reference sees it, its manifest and its memory.
struct Shard {
  RankMemory memory;
  Manifest manifest;
  std::vector<std::byte> region;
  std::vector<int> writes;  ///< How often each byte was written.
};

using Shards = std::map<ShardId, std::unique_ptr<Shard>>;
using Canonical = std::vector<std::vector<std::byte>>;

/// Adds all shards of all replicas of one side. False where the layout refuses the model, or keeps
/// other values than the model's: those are made on one side, and no plan carries them.
inline bool add_side(Shards& shards, const Model& model, const Canonical& canonical, Side side,
                     const LayoutSpec& spec, std::uint32_t replicas) {
  const auto size = size_of(spec);
  if (!size) return false;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    for (std::uint32_t rank = 0; rank < size->ranks; ++rank) {
      const auto layout = lay_out(model, spec, rank);
      if (!layout) return false;
      const ShardId id{side, replica, rank};
      PlacedShard placement = place(model, *layout, id, size->ranks, RegionKind::host_private);
      if (!placement.manifest.encodings.empty()) return false;
      auto shard = std::unique_ptr<Shard>(new Shard{{model, spec, rank, {}, {}, {}}, {}, {}, {}});
      for (std::size_t i = 0; i < layout->tensors.size(); ++i) {
        shard->memory.places.push_back({layout->tensors[i].name, placement.offsets[i]});
      }
      shard->memory.canonical = [&canonical](std::size_t tensor) {
        return std::span(canonical[tensor]);
      };
      shard->manifest = std::move(placement.manifest);
      shard->region.resize(placement.region_bytes);
      shard->writes.resize(placement.region_bytes);
      shards[id] = std::move(shard);
    }
  }
  return true;
}

/// One element after another, as `Copy` is defined.
inline void carry_out(const Copy& copy, const Shard& source, Shard& target) {
  if (copy.source_region != 0 || copy.target_region != 0) FAIL("a region that there is not");
  const std::size_t from = size_of(copy.source_type);
  const std::size_t to = size_of(copy.target_type);
  Dims index = Dims::filled(copy.extent.rank(), 0);
  for (std::int64_t i = 0; i < element_count(copy.extent); ++i) {
    std::uint64_t source_at = copy.source_offset;
    std::uint64_t target_at = copy.target_offset;
    for (int dim = 0; dim < copy.extent.rank(); ++dim) {
      source_at += static_cast<std::uint64_t>(index[dim] * copy.source_stride[dim]);
      target_at += static_cast<std::uint64_t>(index[dim] * copy.target_stride[dim]);
    }
    if (source_at + from > source.region.size()) FAIL("reads outside its source");
    if (target_at + to > target.region.size()) FAIL("writes outside its target");
    const auto read = std::span(source.region).subspan(source_at, from);
    const auto write = std::span(target.region).subspan(target_at, to);
    if (copy.source_type == copy.target_type) {
      std::copy(read.begin(), read.end(), write.begin());
    } else {
      internal::convert(copy.source_type, copy.target_type, read, write);
    }
    for (std::size_t byte = 0; byte < to; ++byte) ++target.writes[target_at + byte];
    for (int dim = copy.extent.rank() - 1; dim >= 0 && ++index[dim] == copy.extent[dim]; --dim) {
      index[dim] = 0;
    }
  }
}

/// Bytes of the rank that are not padding, by the oracle's rows.
inline std::uint64_t needed_bytes(const RankMemory& memory) {
  std::uint64_t bytes = 0;
  const auto locals = rank_of(memory.model, memory.spec, memory.rank);
  REQUIRE(locals.has_value());
  for (const LocalTensor& local : *locals) {
    for (const Row& row : local.rows) {
      if (row.tensor == padding) continue;
      bytes += static_cast<std::uint64_t>(local.columns) * size_of(local.type);
    }
  }
  return bytes;
}

inline Canonical random_bytes(const Model& model, Dice& dice) {
  Canonical canonical;
  for (const Tensor& tensor : model.tensors) {
    auto& bytes = canonical.emplace_back(static_cast<std::size_t>(element_count(tensor.shape)) *
                                         size_of(tensor.type));
    // No bit that makes a float infinite or NaN.
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(dice.between(0, 255) & 0xbf);
  }
  return canonical;
}

}  // namespace weir::oracle
