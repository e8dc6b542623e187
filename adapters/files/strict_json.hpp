#pragma once
// JSON files that come with models, read strictly: what two readers could understand differently
// is an error.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/result.hpp"

namespace weir {

/// Index and configuration files larger than this are refused: 64 MiB, several times the index of
/// the largest public checkpoints (some 100,000 tensors at about 100 bytes a line).
inline constexpr std::size_t json_file_bytes_max = std::size_t{64} << 20;

/// Containers may lie this deep in one another.
inline constexpr int json_depth_max = 32;

/// Errors (`invalid`): not JSON, not UTF-8, a key twice in one object, nested too deep.
Result<nlohmann::json> parse_strict_json(std::string_view text);

/// The same for a file's content, and its errors begin with the path. Errors: also `not_found`,
/// `io`, and `refused` for a file that is too large.
Result<nlohmann::json> read_strict_json(const std::filesystem::path& path);

}  // namespace weir
