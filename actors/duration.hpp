#pragma once
// The one unit of time, for deadlines and for moments since a fixed one.

#include <algorithm>
#include <chrono>

namespace weir {

using Duration = std::chrono::nanoseconds;

/// How long to wait when somebody says so: more would overflow a clock, and is as good as for ever.
constexpr Duration bounded(Duration wanted) noexcept {
  return std::clamp(wanted, Duration::zero(), Duration(std::chrono::hours(24)));
}

}  // namespace weir
