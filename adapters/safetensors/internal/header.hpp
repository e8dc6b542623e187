#pragma once
// The header of a safetensors file, apart from any file: bytes to tensors and back.
//
// The format (https://github.com/huggingface/safetensors): eight bytes, little-endian, that say how
// long the header is; the header, a JSON object from each tensor's name to its "dtype", "shape" and
// "data_offsets" [begin, end), and from "__metadata__" to an object of texts; then the data, which
// the offsets (counted from its start) must cover without gap or overlap.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/safetensors/safetensors.hpp"
#include "runtime/element_type.hpp"
#include "runtime/result.hpp"

namespace weir {

/// The name under which no tensor can stand, as the file's own texts do.
inline constexpr std::string_view safetensors_metadata_key = "__metadata__";
/// Bytes of the number that says how long the header is.
inline constexpr std::size_t safetensors_length_bytes = 8;
/// The real library's own limit on the header's length.
inline constexpr std::uint64_t safetensors_header_bytes_max = 100'000'000;
/// No tensor has nearly as many dimensions; a bound keeps hostile headers small in memory.
inline constexpr std::size_t safetensors_dimensions_max = 64;

/// A tensor and where its data lies, in bytes from the start of the file.
struct PlacedTensor {
  FileTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<PlacedTensor> tensors;  ///< Sorted by name.
  FileMetadata metadata;
};

/// Reads and checks the header of a whole file. Errors (`invalid`) begin with "tensor …" or with a
/// verb, so that the file's name can stand before them.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file);

/// Bytes of a tensor of that type and shape; nothing where the product of its extents that are not
/// zero, in bytes, does not fit into 63 bits, or an extent is negative.
Result<std::uint64_t> checked_bytes_of(const FileTensor& tensor);

/// "BF16", "F8_E4M3", "BOOL", …
std::string_view safetensors_name_of(ElementType type) noexcept;

}  // namespace weir
