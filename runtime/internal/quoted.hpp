#pragma once
// How error texts write a name.

#include <string>
#include <string_view>

namespace weir::internal {

/// The name between single quotes.
inline std::string quoted(std::string_view name) {
  std::string text;
  text.reserve(name.size() + 2);
  text += '\'';
  text += name;
  text += '\'';
  return text;
}

}  // namespace weir::internal
