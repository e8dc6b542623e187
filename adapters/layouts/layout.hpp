#pragma once
// Layouts: how one engine, in one parallel configuration, keeps a model's tensors on its ranks.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/model/model.hpp"
#include "adapters/model/quantized_model.hpp"
#include "runtime/box.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// A layout as a person writes it: "megatron:tp=2,pp=2" or "fsdp2:dp=3,dtype=f32".
struct LayoutSpec {
  std::string name;  ///< The engine's: "hf", "fsdp2", "megatron", "vllm", "sglang".
  std::map<std::string, std::int64_t> options;  ///< Those that are whole numbers, as given.
  /// `layers=2-1-1-2`: decoder layers of each pipeline chunk, in the order of layer ids (virtual
  /// stages first, then stages). Empty: as the engine deals them out by itself.
  std::vector<std::int64_t> layers;
  /// `dtype=f32`: what floating-point parameters are kept in, where that is not the model's own
  /// type. Buffers, such as score biases of routers, keep theirs; codes become values.
  std::optional<ElementType> dtype;
  std::map<std::string, std::string> choices = {};  ///< Those that are words: `placement=linear`.
  /// `physical=0-1-2-3-0`: the logical expert in each physical slot, in every layer of experts; or
  /// `0-1-2/2-1-0`, a map for each of these layers (or for each layer whatever, the maps of dense
  /// ones being ignored); or `@FILE`, which is read when the text is parsed and holds a
  /// `physical_to_logical_map` as JSON. Empty: slot e holds expert e, and `redundant` further slots
  /// begin with expert 0 again.
  std::vector<std::vector<std::int64_t>> physical = {};
  /// `quant=fp8_block`: weights of projections are kept as codes with scales.
  std::optional<WeightQuant> quant = {};

  friend bool operator==(const LayoutSpec&, const LayoutSpec&) = default;
};

/// Errors (`invalid`): unknown layout (names the known ones), unknown option (names those that the
/// layout has), a value that is no whole number or out of its bounds, a word that the option does
/// not know, an option given twice, a file of maps that is none.
Result<LayoutSpec> parse_layout(std::string_view text);
/// The inverse: parses back to an equal spec. Options in key order, then choices in key order, then
/// layers, physical (whatever was in a file), dtype and quant.
std::string text_of(const LayoutSpec& spec);

/// Where a box of a canonical tensor lies in a local tensor: element (i, j, …) of the box is
/// element `offset + i * stride[0] + …` of the local tensor's storage (elements, not bytes).
struct LocalPiece {
  std::uint32_t tensor = 0;  ///< Index into `Model::tensors`.
  Box box;
  std::int64_t offset = 0;
  Dims stride;

  friend bool operator==(const LocalPiece&, const LocalPiece&) = default;
};

/// One tensor as the engine itself keeps it: its own name, its own local, padded shape, dense
/// row-major. Elements that no piece covers are padding and are zero. The shape may have more
/// dimensions than `rank_max`, and extents of zero (an empty tail of FSDP2).
struct LocalTensor {
  std::string name;
  ElementType type = ElementType::bf16;
  std::vector<std::int64_t> shape;
  std::vector<LocalPiece> pieces;
  /// Its elements are those of the canonical tensor less one, as Megatron-Core keeps the weights of
  /// norms. In manifests it is an encoding, which is converted on one side.
  bool less_one = false;
};

/// Something that the engine computes from what it was given, after the last of it has arrived:
/// latent attention's absorbed projections, for one. No piece covers it, and a hook of the engine
/// rebuilds it when it installs a version, never before the whole version is there.
struct DerivedTensor {
  std::string name;  ///< The engine's own.
  std::string from;  ///< The local tensor that it is computed from.

  friend bool operator==(const DerivedTensor&, const DerivedTensor&) = default;
};

/// Everything one rank keeps, in the engine's own order.
struct RankLayout {
  std::vector<LocalTensor> tensors;
  std::vector<DerivedTensor> derived = {};
  /// Canonical tensors that no rank of the layout keeps, sorted: indices into `Model::tensors`.
  /// They are all that belongs to some part of the model (its layers of MTP), or none of it.
  std::vector<std::uint32_t> left_out = {};
  /// Those of the others that have no elements, sorted: no piece shows that the layout has them.
  std::vector<std::uint32_t> empty = {};
  Inventory inventory = {};  ///< Of all tensors that are not left out.
};

/// How many ranks one replica of that layout has (the shards that hold one whole model), and how
/// many equal replicas the spec asks for (data parallelism: `dp` of megatron, `hsdp` of fsdp2).
struct LayoutSize {
  std::uint32_t ranks = 1;
  std::uint32_t replicas = 1;
};
Result<LayoutSize> size_of(const LayoutSpec& spec);

/// What rank `rank` of a replica keeps. Errors (`invalid`): the model does not fit the layout
/// (tp that does not divide the heads, layers that stages can't share equally, …), a family that
/// the layout does not know, tensors that are not those of the model's config, tensors of several
/// types in one fused tensor, a rank out of range, `quant`, and `dtype` of a model of codes (whose
/// layouts are of another model: see `Layout`); each says what to change.
Result<RankLayout> lay_out(const Model& model, const LayoutSpec& spec, std::uint32_t rank);

/// The same for many ranks: what does not depend on the rank is done once; and for any spec.
/// Borrows the model, which must outlive it. Immutable; `rank` may be called from several threads.
class Layout {
 public:
  /// Errors: those of `size_of` and `lay_out`, and of `quantized`.
  static Result<Layout> of(const Model& model, const LayoutSpec& spec);
  Layout(Layout&&) noexcept;
  Layout& operator=(Layout&&) noexcept;
  ~Layout();

  [[nodiscard]] const LayoutSize& size() const noexcept;
  /// The model whose tensors the pieces of ranks name, which is to be placed with them: the one
  /// that was given, or with `quant` that with codes and scales, or that of the values where
  /// `dtype` asks for them of a model of codes; these live as long as this.
  [[nodiscard]] const Model& model() const noexcept;
  /// Errors: those of `lay_out`; blocks of codes that the layout cuts, by local tensor.
  [[nodiscard]] Result<RankLayout> rank(std::uint32_t rank) const;

 private:
  struct Parts;
  explicit Layout(std::unique_ptr<const Parts> parts) noexcept;

  std::unique_ptr<const Parts> parts_;
};

/// Bytes that a local tensor takes, padding included.
std::uint64_t bytes_of(const LocalTensor& tensor) noexcept;

/// Local tensors laid one after another in one region, each aligned to 256 bytes: the manifest
/// (with one region of kind `kind`, without tickets) and each tensor's byte offset, in order.
/// Padding is part of the region, which must start zeroed: no piece covers it. A rank that keeps
/// nothing has a region of 256 bytes, because a region can't be empty.
struct PlacedShard {
  Manifest manifest;
  std::vector<std::uint64_t> offsets;
  std::uint64_t region_bytes = 0;
};
PlacedShard place(const Model& model, const RankLayout& layout, const ShardId& shard,
                  std::uint32_t replica_ranks, RegionKind kind);

}  // namespace weir
