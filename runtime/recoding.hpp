#pragma once
// Recodings: one tensor's values made into codes and scales, or made of them, in one shard's
// memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/encoding.hpp"
#include "runtime/manifest.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"

namespace weir {

/// One tensor's values made into codes and scales, or made of them, block by block.
struct Recoding {
  Encoding encoding;
  bool encodes = true;  ///< False: codes and scales become values.
  ElementType source_type = ElementType::bf16;
  ElementType target_type = ElementType::bf16;
  Dims shape;  ///< The whole tensor's.
  /// The blocks at work, as row-major numbers of the whole tensor's grid, rising. What is kept less
  /// one is one block.
  std::vector<std::int64_t> blocks;
  std::vector<Piece> source;  ///< Of the tensor, in the old form; their `tensor` does not count.
  std::vector<Piece> target;  ///< In the new form.
  std::vector<Piece> scales;  ///< Written where it encodes, else read.
};

/// The elements of a block of the grid, by its row-major number.
Box box_of(const Recoding& recoding, std::int64_t block) noexcept;

/// Bytes that are written.
std::uint64_t target_bytes(const Recoding& recoding) noexcept;

/// Checks that every byte read lies in `sources` and every byte written in `targets`, which are the
/// regions that pieces name. Errors: `invalid`.
Result<void> check_bounds(const Recoding& recoding, std::span<Region* const> sources,
                          std::span<Region* const> targets);

/// Carries out blocks [begin, end) of `recoding.blocks`. It has passed `check_bounds` for these
/// regions, of which sources and targets do not overlap.
/// Threading: any number of calls with disjoint blocks at once.
void recode(const Recoding& recoding, std::size_t begin, std::size_t end,
            std::span<Region* const> sources, std::span<Region* const> targets) noexcept;

}  // namespace weir
