#pragma once
// How a long run shows that it lives: bytes done, speed, and when it will end.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "adapters/cli/console.hpp"

namespace weir::cli {

/// "999 B", "1.19 GB": decimal units, three digits.
std::string bytes_text(double bytes);
/// "0.84 s", "12.3 s", "3 min 05 s".
std::string duration_text(std::chrono::nanoseconds duration);
/// `width` characters wide, filled to `fraction` (0 to 1, others are clamped).
std::string bar_text(double fraction, int width);

struct ProgressOptions {
  std::string label;  ///< What is going on: "reshard".
  std::uint64_t total_bytes = 0;
  std::string unit = {};  ///< What is counted, where it is not bytes: "seeds".
  bool redraw = false;    ///< Draw while running; otherwise only `finish` writes a line.
};

/// One bar on `console.err`. Redraws ten times a second at most. Threading: any thread.
class ProgressBar {
 public:
  /// `console` outlives the bar. The time counts from here.
  ProgressBar(Console& console, ProgressOptions options);
  /// Wipes a bar that was not finished, so that whatever is said next stands on a clean line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// So many more bytes are done.
  void add(std::uint64_t bytes);
  /// Ends the bar with one line: bytes, time, speed. Nothing may be added after.
  void finish();

 private:
  void draw(std::chrono::nanoseconds now);
  [[nodiscard]] std::string amount(double count) const;

  Console& console_;
  ProgressOptions options_;
  std::chrono::nanoseconds start_;
  std::mutex mutex_;  ///< Guards what follows.
  std::chrono::nanoseconds drawn_at_;
  std::uint64_t done_bytes_ = 0;
  bool drawn_ = false;
};

}  // namespace weir::cli
