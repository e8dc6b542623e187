#pragma once
// The file of one rank: its name, and what it says of itself in its metadata.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/reshard/checkpoint_facts.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Which rank of how many.
struct RankNumber {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;

  friend bool operator==(const RankNumber&, const RankNumber&) = default;
};

/// "rank-00003-of-00008.safetensors".
std::string rank_file_name(const RankNumber& number);
/// The inverse; nothing for any other name.
std::optional<RankNumber> parse_rank_file_name(std::string_view name);

/// What a rank file's metadata states, under the keys `weir.layout`, `weir.rank`, `weir.ranks` and
/// `weir.model`.
struct RankStatement {
  LayoutSpec layout;
  RankNumber number;
  std::string facts;  ///< `encode(CheckpointFacts)`; equal in all files of a folder.
};

FileMetadata metadata_of(const RankStatement& statement);
/// Nothing for a file without these keys. Errors (`invalid`) name the file: some keys are missing
/// or malformed.
Result<std::optional<RankStatement>> statement_in(const SafetensorsFile& file);

/// The tensors of a rank's file, in the engine's order. Where canonical space folded a tensor and
/// the engine keeps it under its own name, cut on dimension 0 at most, the file has its full shape.
std::vector<FileTensor> file_tensors(const RankLayout& layout, const CheckpointFacts& facts);

}  // namespace weir
