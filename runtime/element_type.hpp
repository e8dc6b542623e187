#pragma once
// The element types a tensor can have, their sizes, and the names that files and people use for
// them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

enum class ElementType : std::uint8_t {
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i8,
  u8,
  i32,
  i64,
  boolean,
};

inline constexpr int element_type_count = 10;

/// Bytes per element: 1, 2, 4 or 8.
constexpr std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
    case ElementType::i32:
      return 4;
    case ElementType::f16:
    case ElementType::bf16:
      return 2;
    case ElementType::i64:
      return 8;
    case ElementType::f8_e4m3:
    case ElementType::f8_e5m2:
    case ElementType::i8:
    case ElementType::u8:
    case ElementType::boolean:
      return 1;
  }
  return 0;
}

/// "f32", "bf16", "f8_e4m3", …: the name used in messages and on the command line.
std::string_view name_of(ElementType type) noexcept;

/// The inverse of `name_of`; nothing for an unknown name.
std::optional<ElementType> element_type_named(std::string_view name) noexcept;

}  // namespace weir
