#pragma once
// Where everything lies in a safetensors file that is to be written, and its first bytes.

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/safetensors/safetensors.hpp"
#include "runtime/result.hpp"

namespace weir {

struct SafetensorsPlan {
  std::string head;  ///< Length and header, padded with spaces to a multiple of 64 bytes.
  std::vector<std::uint64_t> begins;  ///< By tensor, in bytes from the start of the file.
  std::uint64_t file_bytes = 0;
};

/// Lays tensors out by falling element size, and within one size in the given order, so that each
/// lies at a multiple of its element size without gaps. Errors (`invalid`): empty or reserved or
/// duplicate name, not UTF-8, negative or overflowing shape, header over the format's limit.
Result<SafetensorsPlan> plan_safetensors_file(const std::vector<FileTensor>& tensors,
                                              const FileMetadata& metadata);

}  // namespace weir
