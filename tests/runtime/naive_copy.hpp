#pragma once
// The slow oracle of copies: a loop over elements that converts by arithmetic, and random copies
// to hold against it.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "runtime/plan.hpp"
#include "tests/runtime/nearest_code.hpp"

namespace weir {

using Bytes = std::vector<std::byte>;

inline std::uint16_t nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>(converted(ElementType::f32, bits, ElementType::bf16));
}

inline void naive_element(const Copy& copy, const std::byte* from, std::byte* to) {
  if (copy.source_type == copy.target_type) {
    for (std::size_t i = 0; i < size_of(copy.source_type); ++i) to[i] = from[i];
    return;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, from, size_of(copy.source_type));
  bits = converted(copy.source_type, bits, copy.target_type);
  std::memcpy(to, &bits, size_of(copy.target_type));
}

inline void naive_copy(const Copy& copy, const Bytes& source, Bytes& target) {
  std::array<std::int64_t, rank_max> extent{1, 1, 1, 1};
  std::array<std::int64_t, rank_max> read{};
  std::array<std::int64_t, rank_max> write{};
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    extent[d] = copy.extent[dim];
    read[d] = copy.source_stride[dim];
    write[d] = copy.target_stride[dim];
  }
  for (std::int64_t i = 0; i < extent[0]; ++i)
    for (std::int64_t j = 0; j < extent[1]; ++j)
      for (std::int64_t k = 0; k < extent[2]; ++k)
        for (std::int64_t l = 0; l < extent[3]; ++l) {
          const auto at = [&](const auto& stride) {
            return i * stride[0] + j * stride[1] + k * stride[2] + l * stride[3];
          };
          naive_element(copy,
                        source.data() + copy.source_offset + static_cast<std::uint64_t>(at(read)),
                        target.data() + copy.target_offset + static_cast<std::uint64_t>(at(write)));
        }
}

inline std::int64_t draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// Strides that give every element bytes of its own, in a random order of dimensions, some with
/// gaps. Returns the bytes that they span.
inline std::int64_t draw_strides(std::mt19937_64& random, const Dims& extent, std::int64_t element,
                                 Dims& stride) {
  std::array<int, rank_max> order{0, 1, 2, 3};
  std::shuffle(order.begin(), order.begin() + extent.rank(), random);
  // Falling order most of the time: that is what layouts have.
  if (random() % 2 == 0) std::sort(order.begin(), order.end(), std::greater<>());
  stride = Dims::filled(extent.rank(), 0);
  std::int64_t reach = element;
  for (const int dim : order) {
    if (dim >= extent.rank()) continue;
    if (random() % 3 == 0) reach += element * draw(random, 0, 3);
    if (random() % 8 == 0) reach += draw(random, 0, 9);
    stride[dim] = reach;
    reach *= extent[dim];
  }
  return reach;
}

inline Copy draw_copy(std::mt19937_64& random, std::uint64_t& source_bytes,
                      std::uint64_t& target_bytes) {
  Copy copy;
  copy.source_type = static_cast<ElementType>(random() % element_type_count);
  copy.target_type = copy.source_type;
  if (random() % 4 == 0) {
    constexpr std::array floats = {ElementType::f32, ElementType::f16, ElementType::bf16};
    copy.source_type = floats[random() % floats.size()];
    copy.target_type = floats[random() % floats.size()];
  }
  copy.extent = Dims::filled(static_cast<int>(draw(random, 0, rank_max)), 1);
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    const bool last = dim + 1 == copy.extent.rank();
    copy.extent[dim] = draw(random, 1, last && random() % 2 == 0 ? 1500 : 9);
  }
  const auto source_size = static_cast<std::int64_t>(size_of(copy.source_type));
  const auto target_size = static_cast<std::int64_t>(size_of(copy.target_type));
  copy.source_offset = static_cast<std::uint64_t>(draw(random, 0, 200));
  copy.target_offset = static_cast<std::uint64_t>(draw(random, 0, 200));
  const auto source = draw_strides(random, copy.extent, source_size, copy.source_stride);
  const auto target = draw_strides(random, copy.extent, target_size, copy.target_stride);
  source_bytes = copy.source_offset + static_cast<std::uint64_t>(source);
  target_bytes = copy.target_offset + static_cast<std::uint64_t>(target);
  return copy;
}

inline Bytes draw_bytes(std::mt19937_64& random, std::uint64_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 32);
  return bytes;
}

}  // namespace weir
