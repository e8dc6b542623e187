#include "adapters/cli/child_processes.hpp"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to us.

namespace weir::cli {
namespace {

constexpr std::size_t last_words_bytes_max = 64 << 10;

std::string system_message(const std::string& what) {
  return what + ": " + std::generic_category().message(errno);
}

sigset_t interrupts() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  return set;
}

std::string text_in(int descriptor) {
  std::string text(last_words_bytes_max, '\0');
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

bool end_with_parent(pid_t parent) noexcept {
  // A terminal's Ctrl-C reaches every process of the group; the parent alone answers it.
  signal(SIGINT, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;
}

ChildProcesses::~ChildProcesses() {
  stop_watching();
  for (Child& child : children_) {
    if (child.running) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    close(child.process);
    close(child.complaints);
  }
}

Result<void> ChildProcesses::start(const std::string& label,
                                   const std::vector<std::string>& arguments) {
  Child child;
  child.label = label;
  child.complaints = memfd_create("weir-complaints", MFD_CLOEXEC);
  if (child.complaints < 0) return failure(ErrorCode::io, system_message("cannot start " + label));

  std::string program = "/proc/self/exe";
  std::string name = "weir";
  std::vector<std::string> owned = arguments;
  std::vector<char*> argv = {name.data()};
  for (std::string& argument : owned) argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child.complaints, STDERR_FILENO);
  // The blocked signals of this process are not the child's business.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t nothing;
  sigemptyset(&nothing);
  posix_spawnattr_setsigmask(&attributes, &nothing);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int status =
      posix_spawn(&child.pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    close(child.complaints);
    errno = status;
    return failure(ErrorCode::io, system_message("cannot start " + label));
  }
  // A direct system call: glibc wraps it only since 2.36.
  child.process = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
  const bool watched = child.process >= 0;
  children_.push_back(std::move(child));
  if (!watched) return failure(ErrorCode::io, system_message("cannot watch " + label));
  return {};
}

std::string ChildProcesses::verdict(Child& child) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  child.running = false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFSIGNALED(status)) {
    const std::string said = text_in(child.complaints);
    return child.label + " was killed by signal " + std::to_string(WTERMSIG(status)) +
           (said.empty() ? "" : ": " + said);
  }
  const std::string said = text_in(child.complaints);
  return child.label + ": " +
         (said.empty() ? "ended with status " + std::to_string(WEXITSTATUS(status)) : said);
}

Result<void> ChildProcesses::watch(Trouble trouble) {
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) return failure(ErrorCode::io, system_message("cannot watch the shards"));
  watcher_ = std::make_unique<Workers>(1);
  watcher_->post([this, trouble = std::move(trouble)] { watch_loop(trouble); });
  return {};
}

void ChildProcesses::watch_loop(const Trouble& trouble) {
  const sigset_t set = interrupts();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  std::vector<pollfd> waits = {{stop_, POLLIN, 0}, {signals, POLLIN, 0}};
  for (const Child& child : children_) waits.push_back({child.process, POLLIN, 0});
  // No deadline: `stop_watching` ends the wait, and it is always called.
  while (poll(waits.data(), waits.size(), -1) < 0 && errno == EINTR) {
  }
  if (waits[0].revents != 0) {
    // The end was expected.
  } else if (waits[1].revents != 0) {
    trouble("interrupted");
  } else {
    for (std::size_t i = 2; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      const std::string words = verdict(children_[i - 2]);
      trouble(words.empty() ? children_[i - 2].label + " ended too early" : words);
      break;
    }
  }
  if (signals >= 0) close(signals);
}

void ChildProcesses::stop_watching() noexcept {
  if (watcher_ == nullptr) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof one);
  watcher_.reset();
  close(stop_);
  stop_ = -1;
}

Result<void> ChildProcesses::expect_end(int deadline_milliseconds) {
  stop_watching();
  Result<void> result;
  for (Child& child : children_) {
    if (!child.running) continue;
    pollfd wait = {child.process, POLLIN, 0};
    if (poll(&wait, 1, deadline_milliseconds) != 1) {
      kill(child.pid, SIGKILL);
      if (result) result = failure(ErrorCode::timeout, child.label + " did not end, so was killed");
    }
    const std::string words = verdict(child);
    if (!words.empty() && result) result = failure(ErrorCode::unavailable, words);
  }
  return result;
}

}  // namespace weir::cli
