#include "adapters/cli/held_signals.hpp"

#include <array>

namespace weir::cli {
namespace {

constexpr std::array interrupting = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

HeldSignals::HeldSignals() noexcept {
  sigemptyset(&held_);
  for (const int number : interrupting) {
    struct sigaction action {};
    // A signal that is ignored (SIGHUP under nohup) would be kept, not dropped, while held.
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&held_, number);
    }
  }
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool HeldSignals::pending() const noexcept {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int number : interrupting) {
    if (sigismember(&held_, number) == 1 && sigismember(&waiting, number) == 1) return true;
  }
  return false;
}

}  // namespace weir::cli
