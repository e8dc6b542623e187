#pragma once
// Manifests over the tensors of files: `place` says what a rank holds, the file says where.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/manifest.hpp"

namespace weir {

/// A manifest in which every local tensor that has bytes is a region of its own, so that it holds
/// wherever in a file, or in which of several files, each tensor lies.
struct FileManifest {
  Manifest manifest;
  /// By region: the index of its local tensor in the rank's layout.
  std::vector<std::size_t> tensor_of_region;
};

/// The manifest of `place` for one rank of a single replica, moved into such regions.
FileManifest file_manifest(const Model& model, const RankLayout& layout, const ShardId& shard,
                           std::uint32_t replica_ranks);

}  // namespace weir
