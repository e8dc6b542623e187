#pragma once
// How long fetches have bytes under way, and how much of that time the engine generates.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "adapters/cli/async_board.hpp"
#include "runtime/clock.hpp"
#include "transports/transport.hpp"

namespace weir::cli {

/// Threading: any thread.
class FetchMeter {
 public:
  /// Clock and record outlive it.
  FetchMeter(const Clock& clock, ShardRecord& record)
      : clock_(clock), record_(record), counted_until_(clock.now()) {}

  void fetch_begins();
  void fetch_ends();
  void generates(bool now);

 private:
  void count();

  const Clock& clock_;
  ShardRecord& record_;
  std::mutex mutex_;  ///< Guards what follows.
  std::chrono::nanoseconds counted_until_;
  std::uint64_t fetches_ = 0;
  bool generating_ = false;
};

/// The same transport, whose fetches the meter hears of. Both outlive it.
std::unique_ptr<Transport> metered(Transport& transport, FetchMeter& meter);

}  // namespace weir::cli
