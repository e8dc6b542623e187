#include "runtime/box.hpp"

#include <algorithm>
#include <limits>

#include "runtime/assert.hpp"

namespace weir {

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  WEIR_ASSERT(values.size() <= rank_max);
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<std::int32_t>(values.size());
}

Dims Dims::filled(int rank, std::int64_t value) {
  WEIR_ASSERT(rank >= 0 && rank <= rank_max);
  Dims dims;
  std::fill_n(dims.values_.begin(), rank, value);
  dims.rank_ = rank;
  return dims;
}

std::int64_t element_count(const Dims& shape) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape.values()) count *= extent;
  return count;
}

Dims dense_strides(const Dims& shape, std::int64_t element_bytes) noexcept {
  Dims strides = Dims::filled(shape.rank(), element_bytes);
  for (int dim = shape.rank() - 2; dim >= 0; --dim) {
    strides[dim] = strides[dim + 1] * shape[dim + 1];
  }
  return strides;
}

std::optional<std::uint64_t> byte_end(std::uint64_t offset, const Dims& extent, const Dims& stride,
                                      std::size_t element_bytes) noexcept {
  std::uint64_t end = 0;
  bool overflow = __builtin_add_overflow(offset, element_bytes, &end);
  for (int dim = 0; dim < extent.rank(); ++dim) {
    const auto steps = static_cast<std::uint64_t>(extent[dim] - 1);
    std::uint64_t reach = 0;
    overflow |= __builtin_mul_overflow(steps, static_cast<std::uint64_t>(stride[dim]), &reach);
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  if (overflow) return std::nullopt;
  return end;
}

std::optional<Box> intersection(const Box& a, const Box& b) noexcept {
  Box common = a;
  for (int dim = 0; dim < a.start.rank(); ++dim) {
    const std::int64_t start = std::max(a.start[dim], b.start[dim]);
    const std::int64_t end = std::min(a.start[dim] + a.extent[dim], b.start[dim] + b.extent[dim]);
    if (end <= start) return std::nullopt;
    common.start[dim] = start;
    common.extent[dim] = end - start;
  }
  return common;
}

bool fits(const Box& box, const Dims& shape) noexcept {
  if (box.start.rank() != shape.rank() || box.extent.rank() != shape.rank()) return false;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (box.start[dim] < 0 || box.extent[dim] < 0) return false;
    if (box.start[dim] > shape[dim] || box.extent[dim] > shape[dim] - box.start[dim]) return false;
  }
  return true;
}

std::string text_of(const Box& box) {
  std::string text = "[";
  for (int dim = 0; dim < box.start.rank(); ++dim) {
    if (dim > 0) text += ", ";
    std::int64_t end = 0;  // Boxes from a peer are written before they are known to be possible.
    if (__builtin_add_overflow(box.start[dim], box.extent[dim], &end)) {
      end = std::numeric_limits<std::int64_t>::max();
    }
    text += std::to_string(box.start[dim]) + ":" + std::to_string(end);
  }
  return text + "]";
}

std::string text_of(const Dims& shape) {
  if (shape.rank() == 0) return "scalar";
  std::string text;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (dim > 0) text += "x";
    text += std::to_string(shape[dim]);
  }
  return text;
}

}  // namespace weir
