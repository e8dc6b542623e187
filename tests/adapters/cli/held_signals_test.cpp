#include "adapters/cli/held_signals.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

namespace weir::cli {

// Goal: a run can clean up before Ctrl-C ends it, and then it does end it. Method: child processes
// that send themselves the signal, so that nothing depends on timing.

namespace {

/// The wait status of a child that runs `body`.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(99);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a held signal waits, and ends the process once it is let through", "[cli]") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of_child([number] {
      signal(number, SIG_DFL);
      const HeldSignals held;
      if (held.pending()) _exit(1);
      raise(number);
      if (!held.pending()) _exit(2);
    });
    INFO("signal " << number << ", status " << status);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == number);
  }
}

TEST_CASE("a signal that the parent had ignored stays ignored", "[cli]") {
  const int status = status_of_child([] {
    signal(SIGHUP, SIG_IGN);
    const HeldSignals held;
    raise(SIGHUP);
    _exit(held.pending() ? 1 : 0);
  });
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

}  // namespace weir::cli
