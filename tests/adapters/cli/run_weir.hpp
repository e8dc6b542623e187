#pragma once
// Runs the program for a test: as a function, or as the real process.

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "adapters/cli/program.hpp"
#include "tests/adapters/reshard/quick_folder.hpp"

namespace weir::cli {

struct Run {
  int status = 0;
  std::string out;
  std::string err;
};

/// The program as a function, in this process.
inline Run run(const std::vector<std::string>& arguments) {
  const SystemClock clock;
  std::ostringstream out;
  std::ostringstream err;
  Console console{.out = out, .err = err, .clock = clock};
  const int status = run_program(arguments, console);
  return {status, out.str(), err.str()};
}

/// The program as a process of its own, by way of the shell: `before` goes in front of the
/// program's name, and `after` at the very end (a redirection). Arguments hold no quotes.
struct Shell {
  std::string before = {};
  std::vector<std::string> arguments = {};
  std::string after = {};
};
inline Run run_process(const Shell& shell) {
  const QuickFolder folder;
  std::string line = shell.before + " '" + WEIR_PROGRAM + "'";
  for (const std::string& argument : shell.arguments) line += " '" + argument + "'";
  line +=
      " >'" + (folder / "out").string() + "' 2>'" + (folder / "err").string() + "' " + shell.after;
  const int status = std::system(line.c_str());  // NOLINT(cert-env33-c): a test of a program.
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          read_bytes(folder / "out"), read_bytes(folder / "err")};
}

inline bool is_one_line(const std::string& text) {
  return text.size() > 1 && std::count(text.begin(), text.end(), '\n') == 1 && text.back() == '\n';
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace weir::cli
