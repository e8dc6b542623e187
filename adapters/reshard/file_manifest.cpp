#include "adapters/reshard/file_manifest.hpp"

#include <algorithm>
#include <utility>

#include "runtime/assert.hpp"

namespace weir {

FileManifest file_manifest(const Model& model, const RankLayout& layout, const ShardId& shard,
                           std::uint32_t replica_ranks) {
  PlacedShard placed = place(model, layout, shard, replica_ranks, RegionKind::host_private);
  FileManifest result;
  result.manifest = std::move(placed.manifest);
  result.manifest.regions.clear();

  std::vector<std::uint32_t> region_of_tensor(layout.tensors.size(), 0);
  for (std::size_t index = 0; index < layout.tensors.size(); ++index) {
    const std::uint64_t bytes = bytes_of(layout.tensors[index]);
    if (bytes == 0) continue;
    region_of_tensor[index] = static_cast<std::uint32_t>(result.tensor_of_region.size());
    result.tensor_of_region.push_back(index);
    result.manifest.regions.push_back(
        {.kind = RegionKind::host_private, .bytes = bytes, .tickets = {}});
  }

  for (Piece& piece : result.manifest.pieces) {
    // The last tensor that starts at or before the piece holds it: those without bytes start
    // where the next one does.
    const auto after = std::upper_bound(placed.offsets.begin(), placed.offsets.end(), piece.offset);
    WEIR_ASSERT(after != placed.offsets.begin());
    const auto index = static_cast<std::size_t>(after - placed.offsets.begin()) - 1;
    piece.offset -= placed.offsets[index];
    piece.region = region_of_tensor[index];
  }
  return result;
}

}  // namespace weir
