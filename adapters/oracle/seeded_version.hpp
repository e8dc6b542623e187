#pragma once
// What the bytes of version v are, when nobody trains: a pure function that changes every element
// of every tensor, so that a byte of another version, tensor or place can't pass for the right one.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/element_type.hpp"

namespace weir::oracle {

/// A run of consecutive elements of a canonical tensor, in row-major order, in one version.
struct VersionRun {
  ElementType type = ElementType::bf16;
  std::uint64_t version = 0;
  std::uint64_t tensor_seed = 0;   ///< `tensor_seed` of the tensor's name.
  std::int64_t first_element = 0;  ///< Flat index in the whole tensor.
};

/// A hash of the tensor's name.
std::uint64_t tensor_seed(std::string_view name) noexcept;

/// Writes the elements of `run` to `out`, given those of version 0 in `base`; both hold the same
/// whole number of elements. `out` may be `base`, but may not overlap it otherwise. What an
/// element becomes does not depend on how a tensor is cut into runs.
///
/// Version 0 is `base`. In every other version a few low bits of each element are flipped:
/// - finite numbers stay finite, and normal ones keep their magnitude to within 13 % (f8_e4m3:
///   88 %, f8_e5m2: 75 %); i8 and u8 change by less than 16, i32 and i64 by less than 256;
/// - every element differs from the same element of version 0, and of versions v + 1 and v + 2.
///   That is certain, not likely: two designated bits take the pattern 1, 2, 3, 1, 2, 3, … with
///   the version. Versions a multiple of 3 apart differ in further, hashed bits only, two for an
///   element of bf16 (one at least in every type), so that n elements are equal with odds 4^-n;
/// - the same holds of f32 after rounding to bf16, save where that gives infinity: the designated
///   bits are 17 and 18 and bit 16 is kept, so that two versions are more than one bf16 step apart;
/// - a bool has two values: it is flipped in odd versions.
///
/// Threading: a pure function. Speed: two multiplications for eight bytes, some GB/s a core.
void make_version(const VersionRun& run, std::span<const std::byte> base, std::span<std::byte> out);

}  // namespace weir::oracle
