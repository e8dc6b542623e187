#include "adapters/cli/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace weir::cli {
namespace {

constexpr std::chrono::milliseconds redraw_interval{100};
constexpr int bar_columns = 24;

/// Three significant digits, without exponents: 1.19, 12.3, 123.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return buffer.data();
}

double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

std::string bytes_text(double bytes) {
  static constexpr std::array units = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  const std::string number =
      unit == 0 ? std::to_string(static_cast<int>(bytes)) : three_digits(bytes);
  return number + " " + units[unit];
}

std::string duration_text(std::chrono::nanoseconds duration) {
  const double seconds = seconds_of(duration);
  if (seconds < 99.95) return three_digits(seconds) + " s";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  const std::string rest = std::to_string(whole % 60);
  return std::to_string(whole / 60) + " min " + (rest.size() < 2 ? "0" : "") + rest + " s";
}

std::string bar_text(double fraction, int width) {
  const double clamped = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(std::lround(clamped * width));
  return std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '.');
}

ProgressBar::ProgressBar(Console& console, ProgressOptions options)
    : console_(console),
      options_(std::move(options)),
      start_(console.clock.now()),
      drawn_at_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) console_.err << "\r\x1b[K" << std::flush;
}

void ProgressBar::add(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_bytes_ += bytes;
  if (!options_.redraw) return;
  const std::chrono::nanoseconds now = console_.clock.now();
  if (drawn_ && now - drawn_at_ < redraw_interval) return;
  draw(now);
}

void ProgressBar::draw(std::chrono::nanoseconds now) {
  const double seconds = seconds_of(now - start_);
  const auto done = static_cast<double>(done_bytes_);
  const auto total = static_cast<double>(options_.total_bytes);
  const double fraction = total > 0 ? std::min(done / total, 1.0) : 0;
  std::string line = options_.label + " [" + bar_text(fraction, bar_columns) + "] " +
                     std::to_string(static_cast<int>(fraction * 100)) + "%  " + amount(done) +
                     " of " + amount(total);
  if (seconds > 0 && done > 0) {
    const double rate = done / seconds;
    const std::chrono::duration<double> left(std::max(0.0, total - done) / rate);
    line += "  " + amount(rate) + "/s  ETA " +
            duration_text(std::chrono::duration_cast<std::chrono::nanoseconds>(left));
  }
  // A line that wraps could not be drawn over.
  if (console_.columns > 1 && line.size() >= static_cast<std::size_t>(console_.columns)) {
    line.resize(static_cast<std::size_t>(console_.columns) - 1);
  }
  console_.err << "\r\x1b[K" << line << std::flush;
  drawn_ = true;
  drawn_at_ = now;
}

std::string ProgressBar::amount(double count) const {
  if (options_.unit.empty()) return bytes_text(count);
  return std::to_string(std::llround(count)) + " " + options_.unit;
}

void ProgressBar::finish() {
  const std::lock_guard lock(mutex_);
  if (drawn_) console_.err << "\r\x1b[K";
  drawn_ = false;
  const std::chrono::nanoseconds took = console_.clock.now() - start_;
  const auto done = static_cast<double>(done_bytes_);
  console_.err << options_.label << ": " << amount(done) << " in " << duration_text(took);
  if (took.count() > 0) {
    console_.err << ", " << amount(done / seconds_of(took)) << "/s";
  }
  console_.err << std::endl;
}

}  // namespace weir::cli
