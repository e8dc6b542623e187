#include "transports/shm/internal/process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace weir::shm {

// Goal: a process is found only if it is the very one that was meant. Method: this process and a
// child that ends, and ids that differ from theirs in one field each.

TEST_CASE("the start time is found behind any process name", "[transports]") {
  const std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n";
  REQUIRE(start_time_of_stat("42 (name)" + tail) == 4711);
  REQUIRE(start_time_of_stat("42 (a b) (c))" + tail) == 4711);
  REQUIRE_FALSE(start_time_of_stat("").has_value());
  REQUIRE_FALSE(start_time_of_stat("42 (name)").has_value());
  REQUIRE_FALSE(start_time_of_stat("42 (name) S 1 2 3").has_value());
  REQUIRE_FALSE(
      start_time_of_stat("42 (name) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x").has_value());
  std::string zombie = tail;
  zombie[1] = 'Z';
  REQUIRE_FALSE(start_time_of_stat("42 (name)" + zombie).has_value());
}

TEST_CASE("a process finds itself, and no process that differs in anything", "[transports]") {
  const Result<ProcessId> own = own_process();
  REQUIRE(own.has_value());
  REQUIRE(own->pid == static_cast<std::uint32_t>(getpid()));
  const auto found = PeerProcess::find(*own);
  REQUIRE(found.has_value());
  REQUIRE((*found)->alive());
  REQUIRE((*found)->pid() == own->pid);

  ProcessId other = *own;
  other.boot[3] ^= 1;
  REQUIRE(PeerProcess::find(other).error().code == ErrorCode::unavailable);
  REQUIRE(PeerProcess::find(other).error().text.find("runs on another host") != std::string::npos);
  other = *own;
  other.pid_namespace += 1;
  REQUIRE(PeerProcess::find(other).error().text.find("in another container") != std::string::npos);
  other = *own;
  other.start_time += 1;  // Its id used again.
  REQUIRE(PeerProcess::find(other).error() ==
          Error{ErrorCode::unavailable, "process " + std::to_string(own->pid) + " has ended"});
}

TEST_CASE("a process that ends is seen to have ended before it is reaped", "[transports]") {
  int gate[2];
  REQUIRE(pipe(gate) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(gate[1]);
    _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(gate[0]);
  ProcessId id = *own_process();
  id.pid = static_cast<std::uint32_t>(child);
  // Whatever time it started at: found by trying, since only the child itself could tell.
  const ProcessId own = *own_process();
  std::shared_ptr<const PeerProcess> peer;
  for (std::uint64_t later = 0; later < 1000000 && !peer; ++later) {
    id.start_time = own.start_time + later;
    if (auto found = PeerProcess::find(id)) peer = *found;
  }
  REQUIRE(peer != nullptr);
  REQUIRE(peer->alive());
  close(gate[1]);
  siginfo_t ended{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  REQUIRE_FALSE(peer->alive());
  REQUIRE_FALSE(PeerProcess::find(id).has_value());
  REQUIRE(waitpid(child, nullptr, 0) == child);
  REQUIRE_FALSE(peer->alive());
}

}  // namespace weir::shm
