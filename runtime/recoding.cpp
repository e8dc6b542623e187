#include "runtime/recoding.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "runtime/assert.hpp"
#include "runtime/convert.hpp"
#include "runtime/quantize.hpp"

namespace weir {
namespace {

/// A piece, and where its region's memory begins.
struct Placed {
  const Piece* piece = nullptr;
  std::byte* memory = nullptr;
  std::size_t element_bytes = 0;

  /// The element at the start of `box`, which lies within the piece.
  [[nodiscard]] std::byte* at(const Box& box) const noexcept {
    std::byte* address = memory + piece->offset;
    for (int dim = 0; dim < box.start.rank(); ++dim) {
      address += (box.start[dim] - piece->box.start[dim]) * piece->stride[dim];
    }
    return address;
  }
  /// Elements of `box` behind one another along its last dimension: as many as lie densely.
  [[nodiscard]] std::int64_t run(const Box& box) const noexcept {
    const int last = box.extent.rank() - 1;
    if (last < 0) return 1;
    const bool dense = piece->stride[last] == static_cast<std::int64_t>(element_bytes);
    return dense ? box.extent[last] : 1;
  }
};

Placed placed(const Piece& piece, std::span<Region* const> regions, ElementType type) noexcept {
  return {&piece, regions[piece.region]->bytes().data(), size_of(type)};
}

/// Calls `use(box)` for the runs of a box that are `run` elements of its last dimension each.
template <class Use>
void for_each_run(const Box& box, std::int64_t run, const Use& use) noexcept {
  const std::int64_t runs = element_count(box.extent) / run;
  Box at{box.start, Dims::filled(box.start.rank(), 1)};
  const int last = box.start.rank() - 1;
  if (last >= 0) at.extent[last] = run;
  for (std::int64_t i = 0; i < runs; ++i) {
    use(at);
    for (int dim = last; dim >= 0; --dim) {
      at.start[dim] += dim == last ? run : 1;
      if (at.start[dim] < box.start[dim] + box.extent[dim]) break;
      at.start[dim] = box.start[dim];
    }
  }
}

/// Also where both types are the same.
void convert_or_copy(TypePair types, std::byte* target, const std::byte* source,
                     std::size_t count) noexcept {
  if (types.source != types.target) return convert_run(types, target, source, count);
  std::memcpy(target, source, count * size_of(types.source));
}

/// Adds or takes 1 from `count` elements of one floating-point type and makes another of them.
void shift_run(const Recoding& recoding, std::byte* target, const std::byte* source,
               std::size_t count) noexcept {
  std::array<float, 256> values{};
  const float plus = recoding.encodes ? -1.0F : 1.0F;
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  while (count > 0) {
    const std::size_t now = std::min(count, values.size());
    convert_or_copy({recoding.source_type, ElementType::f32}, bytes, source, now);
    for (std::size_t i = 0; i < now; ++i) values[i] += plus;
    convert_or_copy({ElementType::f32, recoding.target_type}, target, bytes, now);
    source += now * size_of(recoding.source_type);
    target += now * size_of(recoding.target_type);
    count -= now;
  }
}

/// A block's place among the scales.
Box place_in_grid(const Recoding& recoding, std::int64_t number) noexcept {
  const Dims grid = scales_shape(recoding.encoding, recoding.shape);
  Box place = Box::whole(Dims::filled(grid.rank(), 1));
  for (int dim = grid.rank() - 1; dim >= 0; --dim) {
    place.start[dim] = number % grid[dim];
    number /= grid[dim];
  }
  return place;
}

/// By the form of the blocks: those who keep a scale for each channel have another rule.
Scaling scaling_of(const Recoding& recoding) noexcept {
  if (recoding.target_type == ElementType::i8) return Scaling::i8_channel;
  if (recoding.encoding.power_of_two) return Scaling::f8_block_ue8m0;
  const auto block = recoding.encoding.block.values();
  const bool channels = !block.empty() && block.back() == 0;
  return channels ? Scaling::f8_channel : Scaling::f8_block;
}

/// One block at a time, between the regions of one slot on each side.
class Recoder {
 public:
  Recoder(const Recoding& recoding, std::span<Region* const> sources,
          std::span<Region* const> targets) noexcept
      : recoding_(recoding), scaling_(scaling_of(recoding)), sources_(sources), targets_(targets) {}

  void block(std::int64_t number) noexcept {
    const Box box = box_of(recoding_, number);
    float scale = 0;
    if (recoding_.encoding.kind == Encoding::Kind::scaled) {
      scale = recoding_.encodes ? make_scale(box, number) : read_scale(number);
    }
    for (const Piece& target : recoding_.target) {
      const auto wanted = intersection(box, target.box);
      if (!wanted) continue;
      for (const Piece& source : recoding_.source) {
        const auto common = intersection(*wanted, source.box);
        if (common) recode_box(*common, source, target, scale);
        if (common == wanted) break;  // Further copies of the same elements have the same values.
      }
    }
  }

 private:
  /// Of the block's values, and written wherever it belongs.
  float make_scale(const Box& box, std::int64_t number) noexcept {
    float most = 0;
    for (const Piece& source : recoding_.source) {
      const auto common = intersection(box, source.box);
      if (!common) continue;
      const Placed values = placed(source, sources_, recoding_.source_type);
      const std::int64_t run = values.run(*common);
      for_each_run(*common, run, [&](const Box& at) {
        most =
            absmax_run(recoding_.source_type, values.at(at), static_cast<std::size_t>(run), most);
      });
    }
    const float scale = scale_of(scaling_, most);
    const Box place = place_in_grid(recoding_, number);
    for (const Piece& piece : recoding_.scales) {
      if (!intersection(place, piece.box)) continue;
      std::memcpy(placed(piece, targets_, ElementType::f32).at(place), &scale, sizeof scale);
    }
    return scale;
  }

  [[nodiscard]] float read_scale(std::int64_t number) const noexcept {
    const Box place = place_in_grid(recoding_, number);
    for (const Piece& piece : recoding_.scales) {
      if (!intersection(place, piece.box)) continue;
      float scale = 0;
      std::memcpy(&scale, placed(piece, sources_, ElementType::f32).at(place), sizeof scale);
      return scale;
    }
    WEIR_ASSERT(false);  // The conversion was made only because each block's scale is there.
    return 0;
  }

  void recode_box(const Box& box, const Piece& from, const Piece& to, float scale) noexcept {
    const Placed source = placed(from, sources_, recoding_.source_type);
    const Placed target = placed(to, targets_, recoding_.target_type);
    const std::int64_t run = std::min(source.run(box), target.run(box));
    const auto count = static_cast<std::size_t>(run);
    for_each_run(box, run, [&](const Box& at) {
      if (recoding_.encoding.kind == Encoding::Kind::plus_one) {
        shift_run(recoding_, target.at(at), source.at(at), count);
      } else if (recoding_.encodes) {
        quantize_run(scaling_, scale, target.at(at), recoding_.source_type, source.at(at), count);
      } else {
        dequantize_run({recoding_.source_type, recoding_.target_type}, scale, target.at(at),
                       source.at(at), count);
      }
    });
  }

  const Recoding& recoding_;
  Scaling scaling_;
  std::span<Region* const> sources_;
  std::span<Region* const> targets_;
};

Result<void> check_pieces(const std::vector<Piece>& pieces, ElementType type,
                          std::span<Region* const> regions) {
  for (const Piece& piece : pieces) {
    if (piece.region < regions.size()) {
      const auto end = byte_end(piece.offset, piece.box.extent, piece.stride, size_of(type));
      if (end && *end <= regions[piece.region]->bytes().size()) continue;
    }
    return failure(ErrorCode::invalid,
                   "a piece " + text_of(piece.box) +
                       " to be recoded lies outside its region: regions and manifests do not "
                       "belong together");
  }
  return {};
}

}  // namespace

Box box_of(const Recoding& recoding, std::int64_t block) noexcept {
  return elements_of(recoding.encoding, recoding.shape, place_in_grid(recoding, block));
}

std::uint64_t target_bytes(const Recoding& recoding) noexcept {
  std::uint64_t elements = 0;
  for (const Piece& piece : recoding.target) {
    elements += static_cast<std::uint64_t>(element_count(piece.box.extent));
  }
  std::uint64_t bytes = elements * size_of(recoding.target_type);
  if (!recoding.encodes) return bytes;
  for (const Piece& piece : recoding.scales) {
    bytes += static_cast<std::uint64_t>(element_count(piece.box.extent)) * sizeof(float);
  }
  return bytes;
}

Result<void> check_bounds(const Recoding& recoding, std::span<Region* const> sources,
                          std::span<Region* const> targets) {
  auto good = check_pieces(recoding.source, recoding.source_type, sources);
  if (good) good = check_pieces(recoding.target, recoding.target_type, targets);
  if (good) {
    good = check_pieces(recoding.scales, ElementType::f32, recoding.encodes ? targets : sources);
  }
  return good;
}

void recode(const Recoding& recoding, std::size_t begin, std::size_t end,
            std::span<Region* const> sources, std::span<Region* const> targets) noexcept {
  WEIR_ASSERT(begin <= end && end <= recoding.blocks.size());
  Recoder recoder(recoding, sources, targets);
  for (std::size_t i = begin; i < end; ++i) recoder.block(recoding.blocks[i]);
}

}  // namespace weir
