#pragma once
// What a verb of the program may touch: its streams and the time, handed in so that tests can look
// and decide.

#include <ostream>

#include "runtime/clock.hpp"

namespace weir::cli {

/// The world around one run of the program. References outlive the run.
struct Console {
  std::ostream& out;  ///< Results.
  std::ostream& err;  ///< Progress, and the one line that says why a run failed.
  const Clock& clock;
  bool terminal = false;  ///< Whether a person watches `err`, so that lines may be redrawn.
  int columns = 80;       ///< Width of that terminal.
};

}  // namespace weir::cli
