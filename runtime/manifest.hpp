#pragma once
// Manifests: what one shard owns or needs, said in canonical space. The planner knows nothing else.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/box.hpp"
#include "runtime/digest.hpp"
#include "runtime/element_type.hpp"
#include "runtime/encoding.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Trainer shards own source memory, rollout shards own target memory.
enum class Side : std::uint8_t { trainer, rollout };

/// One process's part of the model. The `replica_ranks` shards with equal side and replica hold
/// one whole model together, and switch versions together.
struct ShardId {
  Side side = Side::trainer;
  std::uint32_t replica = 0;
  std::uint32_t rank = 0;

  friend bool operator==(const ShardId&, const ShardId&) noexcept = default;
  friend auto operator<=>(const ShardId&, const ShardId&) noexcept = default;
};

/// "trainer 0.3" (replica 0, rank 3), for messages.
std::string text_of(const ShardId& shard);

/// Buffers (router biases, running statistics) travel exactly as parameters do; the kind is kept
/// so that a report can say which were forgotten by whom.
enum class TensorKind : std::uint8_t { parameter, buffer };

/// A canonical tensor as one shard stores it: `shape` is the whole tensor's, `type` is that of the
/// elements in this shard's memory.
struct Tensor {
  std::string name;
  ElementType type = ElementType::bf16;
  Dims shape;
  TensorKind kind = TensorKind::parameter;
  /// How values are made of this shard's elements: 0, they are the values; i, by encoding i - 1 of
  /// the list that stands with the tensors (`Manifest::encodings`).
  std::uint32_t encoding = 0;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// A second name for the same bytes, such as a tied `lm_head.weight`. It has no pieces.
struct Alias {
  std::string name;
  std::string of;

  friend bool operator==(const Alias&, const Alias&) = default;
  friend auto operator<=>(const Alias&, const Alias&) = default;
};

/// A box of a canonical tensor and where it lies: element (i, j, …) of the box starts at byte
/// `offset + i * stride[0] + j * stride[1] + …` of region `region`.
/// Strides are positive, in any order (a transposed target has its small stride first).
struct Piece {
  std::uint32_t tensor = 0;  ///< Index into `Manifest::tensors`.
  std::uint32_t region = 0;  ///< Index into `Manifest::regions`.
  std::uint64_t offset = 0;  ///< Bytes.
  Box box;
  Dims stride;  ///< Bytes per step along each canonical dimension.

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// What kind of memory a region is: it decides which transports can reach it, and how.
enum class RegionKind : std::uint8_t {
  host_private,  ///< Memory of one process.
  host_shared,   ///< A memfd that other processes of the host can map.
  device,        ///< Memory of an accelerator.
};

std::string_view name_of(RegionKind kind) noexcept;

/// Registered memory as a peer sees it.
struct RegionInfo {
  RegionKind kind = RegionKind::host_private;
  std::uint64_t bytes = 0;
  /// By transport name ("shm"): what that transport on a peer needs in order to reach this region.
  /// Opaque to everyone else, and checked by the transport that reads it.
  struct Ticket {
    std::string transport;
    std::string bytes;
    friend bool operator==(const Ticket&, const Ticket&) = default;
  };
  std::vector<Ticket> tickets;

  friend bool operator==(const RegionInfo&, const RegionInfo&) = default;
};

/// All tensors of the whole model, as its engine counts them: their number and a digest over
/// their names, shapes and kinds. Every shard of a replica states the same one, so that the
/// planner can prove that the replica's shards hold a whole model and forgot nothing.
struct Inventory {
  std::uint64_t tensor_count = 0;
  Digest digest;

  friend bool operator==(const Inventory&, const Inventory&) noexcept = default;
};

/// The inventory of these tensors, in whatever order; types do not count, names must be distinct.
Inventory inventory_of(const std::vector<Tensor>& tensors);
/// The same for tensors that lie elsewhere.
Inventory inventory_of(std::vector<const Tensor*> tensors);

/// Limits that keep all arithmetic within 64 bits, and messages that quote a name readable.
inline constexpr std::uint64_t region_bytes_max = std::uint64_t{1} << 60;
inline constexpr std::size_t name_bytes_max = 1024;
/// Far more versions than memory holds of any model.
inline constexpr std::uint32_t slots_max = 64;
/// More than the ways in which one model is quantized.
inline constexpr std::size_t encodings_max = 64;

/// How many of the regions make up one slot, where the number of slots has been checked.
constexpr std::size_t regions_per_slot(std::size_t regions, std::uint32_t slots) noexcept {
  return regions / slots;
}

/// Everything a shard owns (trainer) or needs (rollout). A value; immutable once sent.
/// `tensors` lists those of which this shard holds a part, each once; an empty shard is allowed.
struct Manifest {
  ShardId shard;
  std::uint32_t replica_ranks = 1;
  Inventory inventory;
  std::vector<Tensor> tensors;
  std::vector<Alias> aliases;  ///< The whole model's: every shard of a replica states the same.
  std::vector<RegionInfo> regions;
  std::vector<Piece> pieces;
  /// The regions are this many sets of equal shape, one after another, each of which can hold one
  /// version: region i of slot s is number s * R + i, R being the number of regions of one slot.
  /// Pieces lie in slot 0, and stand for the same places of every slot.
  std::uint32_t slots = 1;
  std::vector<Encoding> encodings = {};  ///< Those that tensors name.

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// How the tensor, which is one of the manifest's, is encoded; null where it holds plain values.
inline const Encoding* encoding_of(const Manifest& manifest, const Tensor& tensor) noexcept {
  return tensor.encoding == 0 ? nullptr : &manifest.encodings[tensor.encoding - 1];
}

/// What any manifest, ours or a peer's, must satisfy on its own: known types and kinds, indices in
/// range, shapes whose byte count fits, boxes within shapes and not empty, strides of the box's
/// rank and positive, every byte of every piece inside its region (computed without overflow),
/// regions of at most `region_bytes_max`, from one to `slots_max` slots whose regions have the
/// kinds and sizes of slot 0's, pieces in regions of slot 0, names neither empty nor too long,
/// printable and distinct (aliases included), aliases that name a tensor and not another alias, at
/// most `encodings_max` encodings that fit the tensors that name them, scales (where they are
/// listed) of the type and shape that their codes ask for. Errors (`invalid`) name the shard, the
/// tensor and the box.
Result<void> check(const Manifest& manifest);

}  // namespace weir
