#pragma once
// Processes for tests: forked while the parent has one thread, heard through a pipe, ended surely.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace weir {

/// A pipe whose lines can be waited for, with a deadline.
class LinePipe {
 public:
  LinePipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) ends_ = {-1, -1};
  }
  ~LinePipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  LinePipe(const LinePipe&) = delete;
  LinePipe& operator=(const LinePipe&) = delete;

  void write_line(const std::string& line) const {
    const std::string text = line + "\n";
    if (write(ends_[1], text.data(), text.size()) < 0) _exit(3);
  }
  /// Nothing when `patience` passes first, or when the writers are gone.
  std::optional<std::string> read_line(std::chrono::milliseconds patience) const {
    std::string line;
    pollfd readable{ends_[0], POLLIN, 0};
    while (poll(&readable, 1, static_cast<int>(patience.count())) == 1) {
      char c = 0;
      if (read(ends_[0], &c, 1) != 1) return std::nullopt;
      if (c == '\n') return line;
      line += c;
    }
    return std::nullopt;
  }
  [[nodiscard]] int reader() const { return ends_[0]; }
  void close_writer() {
    close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// One forked process: it is told lines, says lines, and is killed when this is destroyed.
class Child {
 public:
  /// `body(told, said)` runs in the child, which then ends.
  explicit Child(const std::function<void(const LinePipe& told, const LinePipe& said)>& body)
      : pid_(fork()) {
    if (pid_ == 0) {
      body(told_, said_);
      _exit(0);
    }
    said_.close_writer();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void tell(const std::string& line) const { told_.write_line(line); }
  [[nodiscard]] std::optional<std::string> hear(std::chrono::milliseconds patience) const {
    return said_.read_line(patience);
  }
  /// 0 or 1: who of two has something to be heard; -1 when `patience` passes first.
  static int first_to_speak(const Child& a, const Child& b, std::chrono::milliseconds patience) {
    std::array<pollfd, 2> readable{{{a.said_.reader(), POLLIN, 0}, {b.said_.reader(), POLLIN, 0}}};
    if (poll(readable.data(), 2, static_cast<int>(patience.count())) <= 0) return -1;
    return readable[0].revents != 0 ? 0 : 1;
  }
  void send_signal(int number) const { kill(pid_, number); }
  /// Until all that it had is closed: a kill only begins to end it.
  void await_death() const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  LinePipe told_;
  LinePipe said_;
  pid_t pid_;
};

}  // namespace weir
