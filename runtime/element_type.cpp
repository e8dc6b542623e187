#include "runtime/element_type.hpp"

#include <array>

namespace weir {
namespace {

constexpr std::array<std::string_view, element_type_count> names = {
    "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "i8", "u8", "i32", "i64", "bool"};

}  // namespace

std::string_view name_of(ElementType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < names.size() ? names[index] : "unknown";
}

std::optional<ElementType> element_type_named(std::string_view name) noexcept {
  for (std::size_t index = 0; index < names.size(); ++index) {
    if (names[index] == name) return static_cast<ElementType>(index);
  }
  return std::nullopt;
}

}  // namespace weir
