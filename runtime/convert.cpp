#include "runtime/convert.hpp"

#include <cstring>

namespace weir {

void bf16_run_of_f32(std::byte* target, const std::byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t from = 0;
    std::memcpy(&from, source + i * sizeof from, sizeof from);
    const std::uint16_t to = bf16_of_f32(from);
    std::memcpy(target + i * sizeof to, &to, sizeof to);
  }
}

void f32_run_of_bf16(std::byte* target, const std::byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t from = 0;
    std::memcpy(&from, source + i * sizeof from, sizeof from);
    const std::uint32_t to = f32_of_bf16(from);
    std::memcpy(target + i * sizeof to, &to, sizeof to);
  }
}

}  // namespace weir
