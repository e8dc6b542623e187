#pragma once
// Encodings: how the values of a tensor are made of the elements that lie in memory, where they are
// not the values themselves.

#include <cstdint>
#include <string>

#include "runtime/box.hpp"
#include "runtime/element_type.hpp"
#include "runtime/result.hpp"

namespace weir {

/// How values are made of elements.
struct Encoding {
  enum class Kind : std::uint8_t {
    /// value = element + 1: a norm whose weight is kept as its distance from 1.
    plus_one,
    /// value = code * scale. Codes (f8_e4m3 or i8) are this tensor's elements; the scales are a
    /// tensor of their own, f32, named as this one with `scales_suffix` behind it, with one element
    /// for each block of codes: element (i, j, …) of the codes has scale (i / block[0],
    /// j / block[1], …). A shard that holds any of the scales lists the codes' tensor, too.
    scaled,
  };

  Kind kind = Kind::plus_one;
  std::string scales_suffix = {};  ///< "_scale_inv", "_scale".
  /// Elements of a block along each dimension of the tensor, 0 for the whole extent: {128, 128},
  /// or {1, 0} for a scale per row. Blocks at the end of a dimension may be smaller.
  Dims block = {};
  bool power_of_two = false;  ///< Scales are rounded up to one (ue8m0).

  friend bool operator==(const Encoding&, const Encoding&) = default;
};

/// "less one", "scaled in blocks of 128x128 by '_scale_inv'", for messages.
std::string text_of(const Encoding& encoding);

/// The extents of a block of a tensor of that shape, none of them 0. What is kept less one is one
/// block.
Dims block_extent(const Encoding& encoding, const Dims& shape) noexcept;
/// How many blocks a tensor of that shape has along each dimension: the shape of its scales.
Dims scales_shape(const Encoding& encoding, const Dims& shape) noexcept;

/// The blocks that meet a box of elements (not empty), as a box of the grid of blocks, and the
/// elements of the blocks in a box of the grid.
Box blocks_of(const Encoding& encoding, const Dims& shape, const Box& elements) noexcept;
Box elements_of(const Encoding& encoding, const Dims& shape, const Box& blocks) noexcept;

/// Whether a tensor of that type and shape can be so encoded: floating-point elements for
/// `plus_one`, codes of the shape's rank for `scaled`, no negative block, a suffix.
/// Errors (`invalid`): what is wrong, as the end of a sentence about the tensor.
Result<void> check(const Encoding& encoding, ElementType type, const Dims& shape);

}  // namespace weir
