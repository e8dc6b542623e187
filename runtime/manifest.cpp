#include "runtime/manifest.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/internal/quoted.hpp"

namespace weir {

std::string text_of(const ShardId& shard) {
  return (shard.side == Side::trainer ? "trainer " : "rollout ") + std::to_string(shard.replica) +
         "." + std::to_string(shard.rank);
}

std::string_view name_of(RegionKind kind) noexcept {
  switch (kind) {
    case RegionKind::host_private:
      return "private";
    case RegionKind::host_shared:
      return "memfd";
    case RegionKind::device:
      return "device";
  }
  return "unknown";
}

Inventory inventory_of(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> pointers;
  pointers.reserve(tensors.size());
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  return inventory_of(std::move(pointers));
}

Inventory inventory_of(std::vector<const Tensor*> tensors) {
  const auto before = [](const Tensor* a, const Tensor* b) { return a->name < b->name; };
  if (!std::is_sorted(tensors.begin(), tensors.end(), before)) {
    std::sort(tensors.begin(), tensors.end(), before);
  }
  Digester digester;
  for (const Tensor* tensor : tensors) {
    digester.add(tensor->name);
    digester.add(static_cast<std::uint64_t>(tensor->kind));
    digester.add(static_cast<std::uint64_t>(tensor->shape.rank()));
    for (const std::int64_t extent : tensor->shape.values()) {
      digester.add(static_cast<std::uint64_t>(extent));
    }
  }
  return {tensors.size(), digester.finish()};
}

namespace {

using internal::quoted;

tl::unexpected<Error> invalid(const Manifest& manifest, const std::string& text) {
  return failure(ErrorCode::invalid, text_of(manifest.shard) + ": " + text);
}

Result<void> check_name(const Manifest& manifest, std::string_view name) {
  if (name.empty()) return invalid(manifest, "a tensor or alias has an empty name: give it one");
  if (name.size() > name_bytes_max) {
    return invalid(manifest, "the name that begins " + quoted(name.substr(0, 32)) + " has " +
                                 std::to_string(name.size()) + " bytes: shorten it to at most " +
                                 std::to_string(name_bytes_max));
  }
  bool printable = true;
  for (const char c : name) printable &= static_cast<unsigned char>(c) >= 32 && c != 127;
  if (!printable) {
    return invalid(manifest, "a name has control characters in it: leave them out");
  }
  return {};
}

Result<void> check_shard(const Manifest& manifest) {
  if (manifest.shard.side != Side::trainer && manifest.shard.side != Side::rollout) {
    return invalid(manifest, "unknown side: use trainer or rollout");
  }
  if (manifest.shard.rank >= manifest.replica_ranks) {
    return invalid(manifest, "its rank is not below replica_ranks, which is " +
                                 std::to_string(manifest.replica_ranks) + ": correct one of them");
  }
  for (const RegionInfo& region : manifest.regions) {
    if (static_cast<int>(region.kind) > static_cast<int>(RegionKind::device)) {
      return invalid(manifest, "a region has an unknown kind: use private, memfd or device");
    }
    if (region.bytes > region_bytes_max) {
      return invalid(manifest, "a region of " + std::to_string(region.bytes) +
                                   " bytes is over the limit of " +
                                   std::to_string(region_bytes_max) + ": correct its size");
    }
  }
  return {};
}

Result<void> check_slots(const Manifest& manifest) {
  if (manifest.slots == 0 || manifest.slots > slots_max) {
    return invalid(manifest, "states " + std::to_string(manifest.slots) +
                                 " slots: state from 1 to " + std::to_string(slots_max));
  }
  if (manifest.regions.size() % manifest.slots != 0) {
    return invalid(manifest, "lists " + std::to_string(manifest.regions.size()) + " regions for " +
                                 std::to_string(manifest.slots) +
                                 " slots: list as many for each slot");
  }
  const std::size_t in_slot = regions_per_slot(manifest.regions.size(), manifest.slots);
  for (std::size_t i = in_slot; i < manifest.regions.size(); ++i) {
    const RegionInfo& first = manifest.regions[i % in_slot];
    if (manifest.regions[i].kind != first.kind || manifest.regions[i].bytes != first.bytes) {
      return invalid(manifest, "region " + std::to_string(i) + " differs in kind or size from " +
                                   "region " + std::to_string(i % in_slot) +
                                   ", which it stands for in another slot: make them equal");
    }
  }
  return {};
}

/// Whether the bytes of every part of that shape can be counted in 63 bits, whatever the type and
/// whatever the order of multiplication.
bool countable(const Dims& shape) {
  std::int64_t bytes = 8;
  for (const std::int64_t extent : shape.values()) {
    if (extent < 0) return false;
    if (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  return true;
}

Result<void> check_tensors(const Manifest& manifest) {
  for (const Tensor& tensor : manifest.tensors) {
    if (auto good = check_name(manifest, tensor.name); !good) return good;
    if (static_cast<int>(tensor.type) >= element_type_count) {
      return invalid(manifest, quoted(tensor.name) + " has an unknown element type");
    }
    if (static_cast<int>(tensor.kind) > static_cast<int>(TensorKind::buffer)) {
      return invalid(manifest, quoted(tensor.name) + " is neither parameter nor buffer");
    }
    if (!countable(tensor.shape)) {
      return invalid(manifest, quoted(tensor.name) + " has the impossible shape " +
                                   text_of(tensor.shape) + ": correct its extents");
    }
  }
  return {};
}

Result<void> check_scales(const Manifest& manifest, const Tensor& codes, const Encoding& encoding,
                          const std::vector<const Tensor*>& by_name) {
  const std::string name = codes.name + encoding.scales_suffix;
  const auto found = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [](const Tensor* tensor, const std::string& other) { return tensor->name < other; });
  if (found == by_name.end() || (*found)->name != name) return {};
  const Tensor& scales = **found;
  const Dims shape = scales_shape(encoding, codes.shape);
  if (scales.type == ElementType::f32 && scales.shape == shape && scales.encoding == 0) return {};
  return invalid(manifest, quoted(name) + " is " + std::string(name_of(scales.type)) + " " +
                               text_of(scales.shape) + ", but " + quoted(codes.name) + " " +
                               text_of(codes.shape) + ", which is " + text_of(encoding) +
                               ", needs f32 " + text_of(shape));
}

Result<void> check_encodings(const Manifest& manifest) {
  if (manifest.encodings.size() > encodings_max) {
    return invalid(manifest, "lists " + std::to_string(manifest.encodings.size()) +
                                 " encodings: list at most " + std::to_string(encodings_max));
  }
  for (const Encoding& encoding : manifest.encodings) {
    if (encoding.kind != Encoding::Kind::scaled) continue;
    if (auto good = check_name(manifest, encoding.scales_suffix); !good) return good;
  }
  std::vector<const Tensor*> by_name;
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.encoding > manifest.encodings.size()) {
      return invalid(manifest, quoted(tensor.name) + " has encoding " +
                                   std::to_string(tensor.encoding) + ", but only " +
                                   std::to_string(manifest.encodings.size()) + " are listed");
    }
    if (!manifest.encodings.empty()) by_name.push_back(&tensor);
  }
  std::sort(by_name.begin(), by_name.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  for (const Tensor* tensor : by_name) {
    const Encoding* encoding = encoding_of(manifest, *tensor);
    if (encoding == nullptr) continue;
    if (auto good = check(*encoding, tensor->type, tensor->shape); !good) {
      return invalid(manifest, quoted(tensor->name) + " " + good.error().text);
    }
    if (encoding->kind != Encoding::Kind::scaled) continue;
    if (auto good = check_scales(manifest, *tensor, *encoding, by_name); !good) return good;
  }
  return {};
}

/// Tensors' and aliases' names together: each may be there once.
Result<void> check_names_distinct(const Manifest& manifest) {
  std::vector<std::string_view> names;
  names.reserve(manifest.tensors.size() + manifest.aliases.size());
  for (const Tensor& tensor : manifest.tensors) names.emplace_back(tensor.name);
  for (const Alias& alias : manifest.aliases) names.emplace_back(alias.name);
  if (!std::is_sorted(names.begin(), names.end())) std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return invalid(manifest, "the name " + quoted(*twice) + " is there twice: list each once");
  }
  return {};
}

Result<void> check_aliases(const Manifest& manifest) {
  for (const Alias& alias : manifest.aliases) {
    if (auto good = check_name(manifest, alias.name); !good) return good;
    if (auto good = check_name(manifest, alias.of); !good) return good;
  }
  std::vector<std::string_view> names;
  names.reserve(manifest.aliases.size());
  for (const Alias& alias : manifest.aliases) names.emplace_back(alias.name);
  std::sort(names.begin(), names.end());
  for (const Alias& alias : manifest.aliases) {
    if (std::binary_search(names.begin(), names.end(), std::string_view(alias.of))) {
      return invalid(manifest, "alias " + quoted(alias.name) + " is of " + quoted(alias.of) +
                                   ", an alias itself: name the tensor that it stands for");
    }
  }
  return {};
}

Result<void> check_piece(const Manifest& manifest, const Piece& piece) {
  if (piece.tensor >= manifest.tensors.size()) {
    return invalid(manifest, "a piece is of tensor " + std::to_string(piece.tensor) +
                                 ", but only " + std::to_string(manifest.tensors.size()) +
                                 " are listed");
  }
  const Tensor& tensor = manifest.tensors[piece.tensor];
  const auto bad = [&](const std::string& text) {
    return invalid(manifest, "piece " + text_of(piece.box) + " of " + quoted(tensor.name) + " " +
                                 text_of(tensor.shape) + " " + text);
  };
  if (piece.box.start.rank() != piece.box.extent.rank() || !fits(piece.box, tensor.shape)) {
    return bad("does not lie within the tensor: correct the box or the shape");
  }
  const auto positive = [](std::int64_t value) { return value > 0; };
  const auto extents = piece.box.extent.values();
  if (!std::all_of(extents.begin(), extents.end(), positive)) {
    return bad("is empty: leave it out");
  }
  const auto strides = piece.stride.values();
  if (piece.stride.rank() != tensor.shape.rank() ||
      !std::all_of(strides.begin(), strides.end(), positive)) {
    return bad("needs one positive stride per dimension");
  }
  if (piece.region >= manifest.regions.size()) {
    return bad("is in region " + std::to_string(piece.region) + ", but only " +
               std::to_string(manifest.regions.size()) + " are listed");
  }
  if (piece.region >= regions_per_slot(manifest.regions.size(), manifest.slots)) {
    return bad("is in region " + std::to_string(piece.region) +
               ", which is not one of the first slot: name the region there that it stands for");
  }
  const std::uint64_t bytes = manifest.regions[piece.region].bytes;
  const auto end = byte_end(piece.offset, piece.box.extent, piece.stride, size_of(tensor.type));
  if (!end || *end > bytes) {
    return bad("reaches past the " + std::to_string(bytes) + " bytes of region " +
               std::to_string(piece.region) + ": correct its offset, its strides or the region");
  }
  return {};
}

}  // namespace

Result<void> check(const Manifest& manifest) {
  for (const auto part : {check_shard, check_slots, check_tensors, check_aliases,
                          check_names_distinct, check_encodings}) {
    if (auto good = part(manifest); !good) return good;
  }
  for (const Piece& piece : manifest.pieces) {
    if (auto good = check_piece(manifest, piece); !good) return good;
  }
  return {};
}

}  // namespace weir
