#pragma once
// Copies in normal form, and two of them joined into one.

#include "runtime/plan.hpp"

namespace weir::internal {

/// Brings a copy into the normal form that `Copy` documents: without extents of 1, by falling
/// target stride, dense dimensions merged. It moves the same elements to the same places.
/// No extent is 0, and no byte is written twice.
void normalize(Copy& copy) noexcept;

/// Makes `first` do what both do, and returns true, where one copy can: between the same regions
/// and types, and `second` following `first` by a positive step on both sides. Both are in normal
/// form, and so is the result. Their target bytes are disjoint.
bool join(Copy& first, const Copy& second) noexcept;

}  // namespace weir::internal
