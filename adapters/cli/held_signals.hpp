#pragma once
// Ctrl-C as a question that a long run asks between two steps, so that it can clean up first.

#include <signal.h>

namespace weir::cli {

/// Holds back SIGINT, SIGTERM and SIGHUP (those that are not ignored) from the calling thread and
/// the threads that it starts from here on. The destructor lets them through: a process that was
/// interrupted then ends by that very signal, as its parent expects. Nothing global is touched.
class HeldSignals {
 public:
  HeldSignals() noexcept;
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Whether one of them is waiting. From the thread that made this.
  [[nodiscard]] bool pending() const noexcept;

 private:
  sigset_t held_;
  sigset_t before_;
};

}  // namespace weir::cli
