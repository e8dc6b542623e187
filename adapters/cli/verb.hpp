#pragma once
// A verb: one thing that the program `weir` can do. To add one, write its file, declare its
// function here and name it in the table in `program.cpp`.

#include <functional>

#include "adapters/cli/console.hpp"
#include "runtime/result.hpp"

namespace CLI {
class App;
}

namespace weir::cli {

/// What a verb does once its arguments are read. An error becomes one line on standard error and
/// the exit status: 2 for a bad request (`invalid`, `not_found`, `refused`), 1 for operating
/// trouble.
using Action = std::function<Result<void>(Console&)>;

/// Declares a verb's arguments and returns its action, which keeps their values alive.
using Declare = Action (*)(CLI::App& app);

struct Verb {
  const char* name;
  const char* summary;  ///< One line for `weir --help`; empty for a verb that is not shown there.
  Declare declare;
};

Action declare_demo(CLI::App& app);
/// For the processes that `demo` starts.
Action declare_demo_shard(CLI::App& app);
/// For those that `demo --async` starts.
Action declare_async_shard(CLI::App& app);
Action declare_doctor(CLI::App& app);
Action declare_inspect(CLI::App& app);
Action declare_plan(CLI::App& app);
Action declare_reshard(CLI::App& app);
Action declare_soak(CLI::App& app);

}  // namespace weir::cli
