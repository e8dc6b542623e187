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

/// Blocks side by side that are worked on at once, row by row: reading long runs of memory is twice
/// as fast as reading block by block, and 16 blocks of 128x128 stay in the cache for the second
/// time.
constexpr std::int64_t blocks_at_once = 16;

/// A row of blocks at a time, between the regions of one slot on each side.
class Recoder {
 public:
  Recoder(const Recoding& recoding, std::span<Region* const> sources,
          std::span<Region* const> targets) noexcept
      : recoding_(recoding),
        scaling_(scaling_of(recoding)),
        sources_(sources),
        targets_(targets),
        last_dim_(recoding.shape.rank() - 1),
        width_(block_extent(recoding.encoding, recoding.shape)[std::max(last_dim_, 0)]) {}

  /// `count` blocks of one row of the grid from that number on.
  void blocks(std::int64_t number, std::int64_t count) noexcept {
    places_ = place_in_grid(recoding_, number);
    if (last_dim_ >= 0) places_.extent[last_dim_] = count;
    const Box box = elements_of(recoding_.encoding, recoding_.shape, places_);
    if (recoding_.encoding.kind == Encoding::Kind::scaled) {
      recoding_.encodes ? make_scales(box) : read_scales();
    }
    for (const Piece& target : recoding_.target) {
      const auto wanted = intersection(box, target.box);
      if (!wanted) continue;
      for (const Piece& source : recoding_.source) {
        const auto common = intersection(*wanted, source.box);
        if (common) recode_box(*common, source, target);
        if (common == wanted) break;  // Further copies of the same elements have the same values.
      }
    }
  }

 private:
  /// Calls `use(part, scale)` for the parts of a box that lie in one block and are at most `run`
  /// elements of its last dimension, with the place of that block's scale.
  template <class Use>
  void for_each_part(const Box& box, std::int64_t run, const Use& use) noexcept {
    for_each_run(box, run, [&](const Box& at) {
      if (last_dim_ < 0) return use(at, scales_[0]);
      Box part = at;
      std::int64_t& start = part.start[last_dim_];
      for (const std::int64_t end = start + run; start < end;) {
        const std::int64_t block = start / width_;
        part.extent[last_dim_] = std::min(end, (block + 1) * width_) - start;
        use(part, scales_[static_cast<std::size_t>(block - places_.start[last_dim_])]);
        start += part.extent[last_dim_];
      }
    });
  }

  [[nodiscard]] std::size_t count(const Box& part) const noexcept {
    return last_dim_ < 0 ? 1 : static_cast<std::size_t>(part.extent[last_dim_]);
  }

  /// Of the blocks' values, and written wherever they belong.
  void make_scales(const Box& box) noexcept {
    scales_.fill(0);
    for (const Piece& source : recoding_.source) {
      const auto common = intersection(box, source.box);
      if (!common) continue;
      const Placed values = placed(source, sources_, recoding_.source_type);
      for_each_part(*common, values.run(*common), [&](const Box& part, float& most) {
        most = absmax_run(recoding_.source_type, values.at(part), count(part), most);
      });
    }
    for (float& scale : scales_) scale = scale_of(scaling_, scale);
    for_each_scale(targets_, [](std::byte* memory, const float& scale) {
      std::memcpy(memory, &scale, sizeof scale);
    });
  }

  void read_scales() noexcept {
    for_each_scale(sources_, [](const std::byte* memory, float& scale) {
      std::memcpy(&scale, memory, sizeof scale);
    });
  }

  template <class Use>
  void for_each_scale(std::span<Region* const> regions, const Use& use) noexcept {
    for (const Piece& piece : recoding_.scales) {
      const auto common = intersection(places_, piece.box);
      if (!common) continue;
      const Placed scales = placed(piece, regions, ElementType::f32);
      for_each_run(*common, 1, [&](const Box& at) {
        const std::int64_t place =
            last_dim_ < 0 ? 0 : at.start[last_dim_] - places_.start[last_dim_];
        use(scales.at(at), scales_[static_cast<std::size_t>(place)]);
      });
    }
  }

  void recode_box(const Box& box, const Piece& from, const Piece& to) noexcept {
    const Placed source = placed(from, sources_, recoding_.source_type);
    const Placed target = placed(to, targets_, recoding_.target_type);
    const std::int64_t run = std::min(source.run(box), target.run(box));
    for_each_part(box, run, [&](const Box& part, float scale) {
      if (recoding_.encoding.kind == Encoding::Kind::plus_one) {
        shift_run(recoding_, target.at(part), source.at(part), count(part));
      } else if (recoding_.encodes) {
        quantize_run(scaling_, scale, target.at(part), recoding_.source_type, source.at(part),
                     count(part));
      } else {
        dequantize_run({recoding_.source_type, recoding_.target_type}, scale, target.at(part),
                       source.at(part), count(part));
      }
    });
  }

  const Recoding& recoding_;
  Scaling scaling_;
  std::span<Region* const> sources_;
  std::span<Region* const> targets_;
  int last_dim_;
  std::int64_t width_;  ///< Of a block.
  Box places_;          ///< The blocks at work, as a box of the grid.
  std::array<float, blocks_at_once> scales_{};
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
  const Dims grid = scales_shape(recoding.encoding, recoding.shape);
  const std::int64_t row = grid.rank() == 0 ? 1 : grid[grid.rank() - 1];
  const std::vector<std::int64_t>& blocks = recoding.blocks;
  while (begin < end) {
    std::size_t next = begin + 1;
    while (next < end && next - begin < blocks_at_once && blocks[next] == blocks[next - 1] + 1 &&
           blocks[next] % row != 0) {
      ++next;
    }
    recoder.blocks(blocks[begin], static_cast<std::int64_t>(next - begin));
    begin = next;
  }
}

}  // namespace weir
