#include "adapters/cli/demo_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "adapters/cli/progress.hpp"
#include "runtime/region.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

constexpr std::uint64_t memcpy_bytes = std::uint64_t{256} << 20;
constexpr int memcpy_rounds = 7;

double seconds_of(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  return line.data();
}

}  // namespace

double memcpy_bytes_per_second(const Clock& clock) {
  const Result<std::unique_ptr<Region>> source = Region::allocate({.bytes = memcpy_bytes});
  const Result<std::unique_ptr<Region>> target = Region::allocate({.bytes = memcpy_bytes});
  if (!source || !target) return 0;
  Workers workers(0);
  const std::uint64_t part = memcpy_bytes / workers.thread_count();
  Duration best = Duration::max();
  for (int round = 0; round < memcpy_rounds; ++round) {
    const Duration start = clock.now();
    workers.for_each(workers.thread_count(), [&](std::size_t i) {
      std::memcpy((*target)->bytes().data() + i * part, (*source)->bytes().data() + i * part, part);
    });
    best = std::min(best, clock.now() - start);
  }
  return static_cast<double>(part * workers.thread_count()) / seconds_of(best);
}

void DemoTable::print(std::ostream& out) const {
  if (reports_.empty()) return;
  out << "version     needed      moved  ratio   publish to commit      speed  of memcpy  "
         "compared in\n";
  for (const VersionReport& report : reports_) {
    const auto moved = static_cast<double>(report.bytes_moved);
    const auto needed = static_cast<double>(report.bytes_needed);
    const double rate = moved / std::max(seconds_of(report.publish), 1e-9);
    const std::string share =
        memcpy_rate_ > 0 ? formatted("%.0f %%", 100 * rate / memcpy_rate_) : "unknown";
    out << formatted("%7llu %10s %10s  %5.3f  %15.1f ms %8s/s  %9s  %8.0f ms\n",
                     static_cast<unsigned long long>(report.version), bytes_text(needed).c_str(),
                     bytes_text(moved).c_str(), needed > 0 ? moved / needed : 1.0,
                     1000 * seconds_of(report.publish), bytes_text(rate).c_str(), share.c_str(),
                     1000 * seconds_of(report.verify));
  }
  out << "memcpy in the same run, a thread for each core: " << bytes_text(memcpy_rate_) << "/s\n";
}

bool DemoTable::exact() const noexcept {
  return std::all_of(reports_.begin(), reports_.end(), [](const VersionReport& report) {
    return report.bytes_moved == report.bytes_needed;
  });
}

}  // namespace weir::cli
