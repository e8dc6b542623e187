#pragma once
// Boxes of canonical space: the only geometry that the planner knows.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

namespace weir {

/// Canonical tensors have at most this many dimensions. An adapter that meets more (a 3-D
/// convolution has five) folds the trailing ones into the last: engines cut only leading ones.
inline constexpr int rank_max = 4;

/// Up to `rank_max` signed numbers, one per dimension: a shape, a position or a set of strides.
/// A plain value; unused places are zero, so that equal values compare equal.
class Dims {
 public:
  constexpr Dims() noexcept = default;
  /// At most `rank_max` values; more is a bug.
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);

  /// `rank` copies of `value`.
  static Dims filled(int rank, std::int64_t value);

  [[nodiscard]] constexpr int rank() const noexcept { return rank_; }
  constexpr std::int64_t& operator[](int dim) noexcept {
    return values_[static_cast<std::size_t>(dim)];
  }
  constexpr std::int64_t operator[](int dim) const noexcept {
    return values_[static_cast<std::size_t>(dim)];
  }
  [[nodiscard]] std::span<const std::int64_t> values() const noexcept {
    return {values_.data(), static_cast<std::size_t>(rank_)};
  }

  friend constexpr bool operator==(const Dims&, const Dims&) noexcept = default;
  friend constexpr auto operator<=>(const Dims&, const Dims&) noexcept = default;

 private:
  std::array<std::int64_t, rank_max> values_{};
  std::int32_t rank_ = 0;
};

/// The number of elements of that shape; 1 for rank 0, 0 where an extent is 0.
/// Extents must be non-negative and the product must fit (checked where they enter).
std::int64_t element_count(const Dims& shape) noexcept;

/// Row-major byte strides of a dense tensor of that shape.
Dims dense_strides(const Dims& shape, std::int64_t element_bytes) noexcept;

/// The first byte after the last element of what begins at `offset` and has an element of
/// `element_bytes` at every index below `extent`, `stride` bytes per step. Extents are at least 1
/// and strides positive. Nothing where 64 bits do not hold it.
std::optional<std::uint64_t> byte_end(std::uint64_t offset, const Dims& extent, const Dims& stride,
                                      std::size_t element_bytes) noexcept;

/// A half-open box [start, start + extent) of a canonical tensor. Both have the tensor's rank.
struct Box {
  Dims start;
  Dims extent;

  /// The whole tensor of that shape.
  static Box whole(const Dims& shape) { return {Dims::filled(shape.rank(), 0), shape}; }

  friend bool operator==(const Box&, const Box&) noexcept = default;
  friend auto operator<=>(const Box&, const Box&) noexcept = default;
};

/// The common part of two boxes of one tensor; nothing where they do not meet or are empty.
std::optional<Box> intersection(const Box& a, const Box& b) noexcept;

/// Whether `box` lies within a tensor of that shape, with matching rank and nothing negative.
bool fits(const Box& box, const Dims& shape) noexcept;

/// "[0:128, 64:96]", for messages.
std::string text_of(const Box& box);
/// "128x4096", "scalar" for rank 0.
std::string text_of(const Dims& shape);

}  // namespace weir
