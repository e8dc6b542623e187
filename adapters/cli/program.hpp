#pragma once
// The program as a function, so that tests can run it without a process.

#include <string>
#include <vector>

#include "adapters/cli/console.hpp"

namespace weir::cli {

/// Runs `weir ARGUMENTS…` and returns its exit status: 0; 1 for operating trouble (an error of
/// the system, a peer that is gone, bytes that differ); 2 for a bad request. A failed run writes
/// exactly one line that says why to `console.err`. Throws nothing.
int run_program(const std::vector<std::string>& arguments, Console& console) noexcept;

}  // namespace weir::cli
