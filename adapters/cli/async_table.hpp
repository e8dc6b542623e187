#pragma once
// What an asynchronous demo shows: a line while it runs, and a table at its end.

#include <chrono>
#include <ostream>
#include <string>

#include "actors/exchange.hpp"
#include "adapters/cli/async_board.hpp"
#include "adapters/cli/async_kills.hpp"
#include "adapters/cli/demo_scene.hpp"

namespace weir::cli {

/// Everything that is known of a run, so far or in all.
struct AsyncCounts {
  const Scene& scene;
  const ExchangeStatus& status;
  AsyncBoard& board;
  const KillSchedule& kills;
  std::chrono::nanoseconds passed{};
};

/// One line: versions, staleness, stalls and pauses.
std::string live_line(const AsyncCounts& counts);
void print_table(std::ostream& out, const AsyncCounts& counts);

}  // namespace weir::cli
