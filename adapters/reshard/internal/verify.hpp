#pragma once
// The proof that a resharding moved every byte to its place, by rules that share no code with it.

#include <cstdint>
#include <memory>
#include <vector>

#include "adapters/reshard/reshard.hpp"
#include "adapters/reshard/reshard_source.hpp"

namespace weir {

/// Compares every byte of the written files with what the oracle's rows say belongs there: each
/// canonical tensor is put together from the source's rows, and compared with the target's rows.
/// `files` are the target's by rank. Returns the number of bytes compared.
/// Errors: `io` for the first difference (file, tensor, element) and for source ranks whose copies
/// of a tensor disagree; `unavailable` when interrupted; those of `rank_of`.
Result<std::uint64_t> verify_resharding(const ReshardSource& source, const LayoutSpec& to,
                                        const std::vector<std::unique_ptr<SafetensorsFile>>& files,
                                        Workers& workers, ReshardObserver& observer);

}  // namespace weir
