#include <algorithm>
#include <limits>

#include "adapters/layouts/layout.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

/// Enough for any vector instruction, and for the transfers of every device.
constexpr std::uint64_t alignment_bytes = 256;

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

/// By canonical tensor: its place in the manifest, or nowhere. The manifest lists tensors in the
/// model's order, whatever the engine's, so that shards of one model list what they share alike.
std::vector<std::uint32_t> list_tensors(const Model& model, const RankLayout& layout,
                                        std::vector<Tensor>& tensors) {
  // First each kept tensor's type, then its place.
  std::vector<std::uint32_t> places(model.tensors.size(), nowhere);
  std::size_t count = 0;
  const auto keep = [&](std::uint32_t canonical, ElementType type) {
    WEIR_ASSERT(canonical < places.size());
    const auto kept = static_cast<std::uint32_t>(type);
    WEIR_ASSERT(places[canonical] == nowhere || places[canonical] == kept);
    if (places[canonical] == nowhere) ++count;
    places[canonical] = kept;
  };
  for (const LocalTensor& local : layout.tensors) {
    for (const LocalPiece& piece : local.pieces) keep(piece.tensor, local.type);
  }
  for (const std::uint32_t tensor : layout.empty) keep(tensor, model.tensors[tensor].type);
  tensors.reserve(count);
  for (std::uint32_t canonical = 0; canonical < places.size(); ++canonical) {
    if (places[canonical] == nowhere) continue;
    tensors.push_back(model.tensors[canonical]);
    tensors.back().type = static_cast<ElementType>(places[canonical]);
    places[canonical] = static_cast<std::uint32_t>(tensors.size() - 1);
  }
  return places;
}

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
  manifest.inventory = layout.inventory;
  manifest.aliases = model.aliases;
  manifest.encodings = model.encodings;
  const std::vector<std::uint32_t> places = list_tensors(model, layout, manifest.tensors);
  std::size_t pieces = 0;
  for (const LocalTensor& local : layout.tensors) pieces += local.pieces.size();
  manifest.pieces.reserve(pieces);
  placement.offsets.reserve(layout.tensors.size());
  std::uint64_t end = 0;
  for (const LocalTensor& local : layout.tensors) {
    placement.offsets.push_back(end);
    for (const LocalPiece& piece : local.pieces) {
      const std::uint32_t tensor = places[piece.tensor];
      if (local.less_one) manifest.tensors[tensor].encoding = less_one_of(manifest.encodings);
      manifest.pieces.push_back(piece_in_bytes(piece, tensor, end, size_of(local.type)));
    }
    end += (bytes_of(local) + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  // A region can't be empty, not even that of a rank that keeps nothing.
  placement.region_bytes = std::max(end, alignment_bytes);
  manifest.regions.push_back({.kind = kind, .bytes = placement.region_bytes, .tickets = {}});
  return placement;
}

}  // namespace weir
