#include "runtime/encoding.hpp"

#include <algorithm>

#include "runtime/internal/quoted.hpp"

namespace weir {
namespace {

tl::unexpected<Error> invalid(const std::string& text) {
  return failure(ErrorCode::invalid, text);
}

}  // namespace

std::string text_of(const Encoding& encoding) {
  if (encoding.kind == Encoding::Kind::plus_one) return "less one";
  return "scaled in blocks of " + text_of(encoding.block) + " by " +
         internal::quoted(encoding.scales_suffix) +
         (encoding.power_of_two ? ", which are powers of two" : "");
}

Dims block_extent(const Encoding& encoding, const Dims& shape) noexcept {
  const bool scaled = encoding.kind == Encoding::Kind::scaled;
  Dims extent = scaled ? encoding.block : Dims::filled(shape.rank(), 0);
  for (int dim = 0; dim < extent.rank(); ++dim) {
    if (extent[dim] == 0) extent[dim] = std::max<std::int64_t>(shape[dim], 1);
  }
  return extent;
}

Dims scales_shape(const Encoding& encoding, const Dims& shape) noexcept {
  const Dims block = block_extent(encoding, shape);
  Dims scales = shape;
  for (int dim = 0; dim < scales.rank(); ++dim) {
    scales[dim] = shape[dim] / block[dim] + (shape[dim] % block[dim] != 0 ? 1 : 0);
  }
  return scales;
}

Box blocks_of(const Encoding& encoding, const Dims& shape, const Box& elements) noexcept {
  const Dims extent = block_extent(encoding, shape);
  Box blocks = elements;
  for (int dim = 0; dim < blocks.start.rank(); ++dim) {
    const std::int64_t last = (elements.start[dim] + elements.extent[dim] - 1) / extent[dim];
    blocks.start[dim] = elements.start[dim] / extent[dim];
    blocks.extent[dim] = last - blocks.start[dim] + 1;
  }
  return blocks;
}

Box elements_of(const Encoding& encoding, const Dims& shape, const Box& blocks) noexcept {
  const Dims extent = block_extent(encoding, shape);
  Box elements = blocks;
  for (int dim = 0; dim < blocks.start.rank(); ++dim) {
    elements.start[dim] = blocks.start[dim] * extent[dim];
    const std::int64_t end = (blocks.start[dim] + blocks.extent[dim]) * extent[dim];
    elements.extent[dim] = std::min(end, shape[dim]) - elements.start[dim];
  }
  return elements;
}

Result<void> check(const Encoding& encoding, ElementType type, const Dims& shape) {
  if (encoding.kind == Encoding::Kind::plus_one) {
    if (type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16) {
      return {};
    }
    return invalid("is " + std::string(name_of(type)) + ", which can't be kept less one");
  }
  if (encoding.kind != Encoding::Kind::scaled) return invalid("has an unknown encoding");
  if (type != ElementType::f8_e4m3 && type != ElementType::i8) {
    return invalid("is " + std::string(name_of(type)) + " and has scales: keep f8_e4m3 or i8");
  }
  if (encoding.block.rank() != shape.rank()) {
    return invalid("has the shape " + text_of(shape) + " and blocks of " + text_of(encoding.block) +
                   ": give a block's extent for each dimension");
  }
  const auto blocks = encoding.block.values();
  if (std::any_of(blocks.begin(), blocks.end(), [](std::int64_t extent) { return extent < 0; })) {
    return invalid("has blocks of " + text_of(encoding.block) + ": extents can't be negative");
  }
  return {};
}

}  // namespace weir
