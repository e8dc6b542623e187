#pragma once
// Safetensors files composed by hand, byte for byte, so that tests do not lean on the writer.

#include <cstdint>
#include <string>

namespace weir {

/// The eight bytes of the length, the header, and the data.
inline std::string file_text(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i)));
  }
  return bytes + header + data;
}

}  // namespace weir
