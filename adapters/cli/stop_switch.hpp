#pragma once
// Waiting that someone else can end: what takes the place of sleeping between two looks.

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace weir::cli {

/// Threading: any thread.
class StopSwitch {
 public:
  /// Ends every wait, the present ones and the later ones.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }
  /// Returns once the time is over, or at once when it was stopped: then false.
  bool wait(std::chrono::nanoseconds time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, time, [this] { return stopped_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace weir::cli
