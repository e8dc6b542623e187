#pragma once
// Time as an argument: whoever needs to know the time is handed a clock, so that tests and
// simulations decide what time it is.

#include <chrono>

namespace weir {

/// A clock that never goes back. Threading: `now` from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  /// Time since some fixed moment; only differences mean anything.
  [[nodiscard]] virtual std::chrono::nanoseconds now() const noexcept = 0;

 protected:
  Clock() = default;
};

/// The machine's monotonic clock.
class SystemClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override;
};

}  // namespace weir
