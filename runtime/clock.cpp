#include "runtime/clock.hpp"

namespace weir {

std::chrono::nanoseconds SystemClock::now() const noexcept {
  return std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace weir
