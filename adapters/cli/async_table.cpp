#include "adapters/cli/async_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include "adapters/cli/progress.hpp"

namespace weir::cli {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  return line.data();
}

double milliseconds_of(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

/// The sums of one side's records.
struct Sums {
  struct Times {
    std::uint64_t count = 0;
    std::uint64_t total = 0;
    std::uint64_t longest = 0;

    void add(const Durations& durations) {
      count += durations.count;
      total += durations.total;
      longest = std::max<std::uint64_t>(longest, durations.longest);
    }
    [[nodiscard]] double mean() const {
      return count == 0 ? 0.0 : milliseconds_of(total) / static_cast<double>(count);
    }
    [[nodiscard]] std::string text() const {
      return formatted("mean %.1f ms, longest %.1f ms", mean(), milliseconds_of(longest));
    }
  };
  Times waited;
  Times copied;
  Times paused;
  Times brought;
  std::uint64_t steps = 0;
  std::array<std::uint64_t, behind_most + 1> behind{};
  std::uint64_t fetch = 0;
  std::uint64_t overlap = 0;
  std::uint64_t compared = 0;
  std::uint64_t compared_bytes = 0;

  explicit Sums(std::span<ShardRecord> records) {
    for (const ShardRecord& record : records) {
      waited.add(record.waited);
      copied.add(record.copied);
      paused.add(record.paused);
      brought.add(record.brought);
      steps += record.steps;
      for (std::size_t i = 0; i < behind.size(); ++i) behind[i] += record.steps_behind[i];
      fetch += record.fetch_nanoseconds;
      overlap += record.overlap_nanoseconds;
      compared += record.compared;
      compared_bytes += record.compared_bytes;
    }
  }

  [[nodiscard]] double mean_behind() const {
    double versions = 0;
    for (std::size_t i = 0; i < behind.size(); ++i) {
      versions += static_cast<double>(i) * static_cast<double>(behind[i]);
    }
    return steps == 0 ? 0.0 : versions / static_cast<double>(steps);
  }
};

void print_kills(std::ostream& out, const KillSchedule& kills) {
  for (const Kill& kill : kills.kills()) {
    const bool killed = kill.stage != Kill::Stage::waiting && kill.stage != Kill::Stage::due;
    out << text_of(kill.order.shard);
    if (!killed) {
      out << " was not killed: version " << kill.order.version << " did not come\n";
      continue;
    }
    out << " was killed when version " << kill.ready_then << " was ready, and ";
    if (kill.stage != Kill::Stage::back) {
      out << "did not come back\n";
      continue;
    }
    out << (kill.order.shard.side == Side::rollout ? "its replica was out for "
                                                   : "published again after ")
        << duration_text(kill.back_at - kill.killed_at) << "\n";
  }
}

}  // namespace

std::string live_line(const AsyncCounts& counts) {
  const Sums sums(counts.board.records());
  std::string line = "version " + std::to_string(counts.status.ready) + ", served";
  for (const ReplicaStatus& replica : counts.status.replicas) {
    line += replica.in_service ? " " + std::to_string(replica.version) : " -";
  }
  line += formatted("  behind %.2f  stall %.1f ms  pause %.1f ms", sums.mean_behind(),
                    sums.waited.mean() + sums.copied.mean(), sums.paused.mean());
  if (counts.kills.pending()) line += "  (one is down)";
  return line;
}

void print_table(std::ostream& out, const AsyncCounts& counts) {
  const Sums sums(counts.board.records());
  out << counts.status.published << " versions published in " << duration_text(counts.passed)
      << ", up to version " << counts.status.ready << "; " << counts.status.superseded
      << " announcements superseded, " << counts.status.revoked << " leases revoked\n"
      << "replica  serves  commits      moved  mean fetch\n";
  for (std::size_t i = 0; i < counts.status.replicas.size(); ++i) {
    const ReplicaStatus& replica = counts.status.replicas[i];
    const double fetch = milliseconds_of(static_cast<std::uint64_t>(replica.fetched.count())) /
                         static_cast<double>(std::max<std::uint64_t>(1, replica.commits));
    out << formatted("%7zu  %6llu  %7llu %10s  %7.1f ms\n", i,
                     static_cast<unsigned long long>(replica.version),
                     static_cast<unsigned long long>(replica.commits),
                     bytes_text(static_cast<double>(replica.bytes_moved)).c_str(), fetch);
  }
  out << "trainers waited to write:  " << sums.waited.text() << "\n"
      << "trainers copied weights:   " << sums.copied.text() << "\n"
      << "written to served:         " << sums.brought.text() << "\n"
      << "generation paused:         " << sums.paused.text() << "\n";
  const double overlap =
      sums.fetch == 0 ? 1.0 : static_cast<double>(sums.overlap) / static_cast<double>(sums.fetch);
  out << formatted("generation went on during %.1f %% of the time of fetches\n", 100 * overlap)
      << "decode steps by published minus served version:";
  for (std::size_t i = 0; i < sums.behind.size(); ++i) {
    if (sums.behind[i] == 0) continue;
    out << "  " << i << (i == behind_most ? "+" : "") << ": " << sums.behind[i];
  }
  out << "\n";
  print_kills(out, counts.kills);
  out << sums.compared << " comparisons of " << bytes_text(static_cast<double>(sums.compared_bytes))
      << " with the reference\n";
}

}  // namespace weir::cli
