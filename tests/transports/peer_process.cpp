#include "tests/transports/peer_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace weir {
namespace {

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace

PeerUnderTest::PeerUnderTest(const std::string& transport, RegionKind kind, std::uint64_t bytes) {
  int to_child[2];
  int from_child[2];
  REQUIRE(pipe2(to_child, O_CLOEXEC) == 0);
  REQUIRE(pipe2(from_child, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
  std::vector<std::string> words{WEIR_TRANSPORT_PEER, transport, std::string(name_of(kind)),
                                 std::to_string(bytes)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  REQUIRE(posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  commands_ = to_child[1];
  answers_ = from_child[0];
  const std::string name = transport.substr(0, transport.find(':'));
  info_ = {.kind = kind, .bytes = bytes, .tickets = {{name, from_hex(answer())}}};
}

PeerUnderTest::~PeerUnderTest() {
  kill();
  close(commands_);
  close(answers_);
}

void PeerUnderTest::fill(std::uint64_t round) {
  tell("fill " + std::to_string(round));
  REQUIRE(answer() == "ok");
}

void PeerUnderTest::withdraw() {
  tell("withdraw");
  REQUIRE(answer() == "ok");
}

void PeerUnderTest::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void PeerUnderTest::tell(const std::string& command) {
  const std::string line = command + "\n";
  REQUIRE(write(commands_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

std::string PeerUnderTest::answer() {
  std::string line;
  char byte = 0;
  while (read(answers_, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
  return line;
}

}  // namespace weir
