#pragma once
// A layout on the command line, and the complaint that names the argument it stood in.

#include <string>

#include "adapters/layouts/layout.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

/// `parse_layout`, with "OPTION TEXT: " before its errors.
inline Result<LayoutSpec> layout_argument(const std::string& option, const std::string& text) {
  auto spec = parse_layout(text);
  if (spec) return spec;
  return failure(spec.error().code, option + " " + text + ": " + spec.error().text);
}

}  // namespace weir::cli
