#pragma once
// What a demo has to show: one row a version, and the sum of them.

#include <ostream>
#include <vector>

#include "actors/exchange.hpp"
#include "runtime/clock.hpp"

namespace weir::cli {

/// Bytes that `memcpy` copies in a second on this machine, with one thread for each core, between
/// blocks of prefaulted memory far larger than the caches: the best of several rounds. Zero where
/// there is no memory for it.
double memcpy_bytes_per_second(const Clock& clock);

/// Collects the versions' reports and prints them as a table. Not thread-safe.
class DemoTable {
 public:
  explicit DemoTable(double memcpy_rate) : memcpy_rate_(memcpy_rate) {}

  void add(const VersionReport& report) { reports_.push_back(report); }
  /// A row for each version added so far; nothing where there are none.
  void print(std::ostream& out) const;
  /// Whether each version moved just the bytes that it needed.
  [[nodiscard]] bool exact() const noexcept;

 private:
  double memcpy_rate_;
  std::vector<VersionReport> reports_;
};

}  // namespace weir::cli
