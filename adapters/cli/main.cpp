#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "adapters/cli/program.hpp"

namespace {

int columns_of_terminal() noexcept {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

int main(int argc, char** argv) {
  // A file over the limit of `ulimit -f` is an error to report and clean up after, not a death.
  signal(SIGXFSZ, SIG_IGN);
  const weir::SystemClock clock;
  weir::cli::Console console{.out = std::cout,
                             .err = std::cerr,
                             .clock = clock,
                             .terminal = isatty(STDERR_FILENO) == 1,
                             .columns = columns_of_terminal()};
  return weir::cli::run_program(std::vector<std::string>(argv + 1, argv + argc), console);
}
