#pragma once
// The one unit of time, for deadlines and for moments since a fixed one.

#include <chrono>

namespace weir {

using Duration = std::chrono::nanoseconds;

}  // namespace weir
