#pragma once
// Conversion between f32, bf16 and f16, written apart from the runtime's own so as to check it.

#include <cstddef>
#include <span>

#include "runtime/element_type.hpp"

namespace weir::oracle::internal {

/// Converts whole elements of type `from`, one of f32, bf16 and f16, to another of them, `to`: to
/// the nearest, ties to even; a NaN stays a NaN of the same sign and upper payload.
/// The spans hold equally many elements and do not overlap.
void convert(ElementType from, ElementType to, std::span<const std::byte> source,
             std::span<std::byte> target);

}  // namespace weir::oracle::internal
