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
  for (std::size_t index = 0; index < children_.size(); ++index) {
    kill_one(index);
    close_descriptors(children_[index]);
  }
}

Result<void> ChildProcesses::start(const std::string& label,
                                   const std::vector<std::string>& arguments, int handed_down) {
  Result<Child> child = spawn(label, arguments, handed_down);
  if (!child) return failure(child);
  const std::lock_guard lock(mutex_);
  children_.push_back(*std::move(child));
  return {};
}

void ChildProcesses::kill_one(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    Child& child = children_.at(index);
    if (child.running) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      child.running = false;
    }
  }
  wake();
}

Result<void> ChildProcesses::restart(std::size_t index, const std::vector<std::string>& arguments,
                                     int handed_down) {
  Result<Child> child = spawn(children_.at(index).label, arguments, handed_down);
  if (!child) return failure(child);
  {
    const std::lock_guard lock(mutex_);
    close_descriptors(children_[index]);
    children_[index] = *std::move(child);
  }
  wake();
  return {};
}

void ChildProcesses::close_descriptors(const Child& child) noexcept {
  close(child.process);
  close(child.complaints);
}

Result<ChildProcesses::Child> ChildProcesses::spawn(const std::string& label,
                                                    const std::vector<std::string>& arguments,
                                                    int handed_down) {
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
  if (handed_down >= 0) {
    posix_spawn_file_actions_adddup2(&actions, handed_down, handed_down_descriptor);
  }
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
  if (child.process < 0) {
    Error error{ErrorCode::io, system_message("cannot watch " + label)};
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    close(child.complaints);
    return tl::unexpected(std::move(error));
  }
  return child;
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
  changed_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (changed_ < 0) return failure(ErrorCode::io, system_message("cannot watch the shards"));
  watcher_ = std::make_unique<Workers>(1);
  watcher_->post([this, trouble = std::move(trouble)] { watch_loop(trouble); });
  return {};
}

void ChildProcesses::watch_loop(const Trouble& trouble) {
  const sigset_t set = interrupts();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  std::string words;
  while (words.empty()) {
    std::vector<pollfd> waits = {{changed_, POLLIN, 0}, {signals, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      for (const Child& child : children_) {
        if (child.running) waits.push_back({child.process, POLLIN, 0});
      }
    }
    // No deadline: `stop_watching` ends the wait, and it is always called.
    while (poll(waits.data(), waits.size(), -1) < 0 && errno == EINTR) {
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t heard = read(changed_, &count, sizeof count);
    words = look(waits[1].revents != 0);
  }
  if (!words.empty()) trouble(words);
  if (signals >= 0) close(signals);
}

std::string ChildProcesses::look(bool signalled) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return {};
  if (signalled) return interrupted;
  for (Child& child : children_) {
    // Looked at anew, since a child may have been killed or restarted meanwhile.
    pollfd ended = {child.process, POLLIN, 0};
    if (!child.running || poll(&ended, 1, 0) != 1) continue;
    const std::string words = verdict(child);
    return words.empty() ? child.label + " ended too early" : words;
  }
  return {};
}

void ChildProcesses::wake() const noexcept {
  if (changed_ < 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(changed_, &one, sizeof one);
}

void ChildProcesses::stop_watching() noexcept {
  if (watcher_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  watcher_.reset();
  close(changed_);
  changed_ = -1;
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
