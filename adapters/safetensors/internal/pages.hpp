#pragma once
// From bytes of a mapping to the whole pages that the kernel wants to hear of.

#include <cstddef>
#include <span>

namespace weir {

/// The pages of `mapping` that `part`, which lies in it, touches; empty for an empty part.
/// `mapping` must begin at a page, as every mapping does.
std::span<const std::byte> pages_around(std::span<const std::byte> mapping,
                                        std::span<const std::byte> part) noexcept;

}  // namespace weir
