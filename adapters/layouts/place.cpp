#include <algorithm>
#include <limits>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/layout.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

/// Enough for any vector instruction, and for the transfers of every device.
constexpr std::uint64_t alignment_bytes = 256;

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

/// The manifest's table of tensors while it grows.
class TensorTable {
 public:
  TensorTable(const Model& model, std::vector<Tensor>& tensors)
      : model_(model), tensors_(tensors), places_(model.tensors.size(), nowhere) {}

  /// The place of a canonical tensor in the manifest, where this shard keeps it as `type`.
  std::uint32_t place_of(std::uint32_t canonical, ElementType type) {
    WEIR_ASSERT(canonical < places_.size());
    std::uint32_t& place = places_[canonical];
    if (place == nowhere) {
      place = static_cast<std::uint32_t>(tensors_.size());
      tensors_.push_back(model_.tensors[canonical]);
      tensors_.back().type = type;
    }
    WEIR_ASSERT(tensors_[place].type == type);
    return place;
  }

 private:
  const Model& model_;
  std::vector<Tensor>& tensors_;
  std::vector<std::uint32_t> places_;
};

Piece piece_in_bytes(const LocalPiece& local, std::uint32_t tensor, std::uint64_t tensor_offset,
                     std::size_t element_bytes) {
  Piece piece{.tensor = tensor,
              .offset = tensor_offset + static_cast<std::uint64_t>(local.offset) * element_bytes,
              .box = local.box,
              .stride = local.stride};
  for (int dim = 0; dim < piece.stride.rank(); ++dim) {
    piece.stride[dim] *= static_cast<std::int64_t>(element_bytes);
  }
  return piece;
}

/// The number of the encoding that says so, which is added where it is not there.
std::uint32_t less_one_of(std::vector<Encoding>& encodings) {
  const Encoding encoding{.kind = Encoding::Kind::plus_one};
  const auto found = std::ranges::find(encodings, encoding);
  const auto number = static_cast<std::uint32_t>(found - encodings.begin()) + 1;
  if (found == encodings.end()) encodings.push_back(encoding);
  return number;
}

}  // namespace

PlacedShard place(const Model& model, const RankLayout& layout, const ShardId& shard,
                  std::uint32_t replica_ranks, RegionKind kind) {
  PlacedShard placement;
  Manifest& manifest = placement.manifest;
  manifest.shard = shard;
  manifest.replica_ranks = replica_ranks;
  manifest.inventory =
      layout.inventory ? *layout.inventory : inventory_without(model, layout.left_out);
  manifest.aliases = model.aliases;
  manifest.encodings = model.encodings;
  TensorTable table(model, manifest.tensors);
  std::uint64_t end = 0;
  for (const LocalTensor& local : layout.tensors) {
    placement.offsets.push_back(end);
    for (const LocalPiece& piece : local.pieces) {
      const std::uint32_t tensor = table.place_of(piece.tensor, local.type);
      if (local.less_one) manifest.tensors[tensor].encoding = less_one_of(manifest.encodings);
      manifest.pieces.push_back(piece_in_bytes(piece, tensor, end, size_of(local.type)));
    }
    end += (bytes_of(local) + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  // A tensor without elements has no piece anywhere, and yet the model has it.
  for (std::uint32_t index = 0; index < model.tensors.size(); ++index) {
    const Tensor& tensor = model.tensors[index];
    if (std::ranges::binary_search(layout.left_out, index)) continue;
    if (element_count(tensor.shape) == 0) table.place_of(index, tensor.type);
  }
  // A region can't be empty, not even that of a rank that keeps nothing.
  placement.region_bytes = std::max(end, alignment_bytes);
  manifest.regions.push_back({.kind = kind, .bytes = placement.region_bytes, .tickets = {}});
  return placement;
}

}  // namespace weir
