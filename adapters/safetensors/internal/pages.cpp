#include "adapters/safetensors/internal/pages.hpp"

#include <unistd.h>

#include <algorithm>

namespace weir {

std::span<const std::byte> pages_around(std::span<const std::byte> mapping,
                                        std::span<const std::byte> part) noexcept {
  if (part.empty()) return {};
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(part.data() - mapping.data());
  const std::size_t begin = offset / page * page;
  const std::size_t end = (offset + part.size() + page - 1) / page * page;
  return mapping.subspan(begin, std::min(end, mapping.size()) - begin);
}

}  // namespace weir
