#pragma once
// The shard processes of a demo: started from this very program, watched, and never left behind.

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {

/// Where a child finds what it was handed down: the first descriptor after the standard ones.
inline constexpr int handed_down_descriptor = 3;

/// Child processes that run `weir ARGUMENTS…`. They end with this object, and with this process
/// however it dies (each asks the kernel for that in `end_with_parent`).
/// Threading: members from the thread that made it.
class ChildProcesses {
 public:
  /// Called from the watching thread, at most once: the first child that ended by itself (with
  /// what it said last), or `interrupted` for a signal by which a person interrupts.
  using Trouble = std::function<void(const std::string& why)>;
  static constexpr const char* interrupted = "interrupted";

  ChildProcesses() = default;
  /// Kills what still runs and waits for it.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  /// Errors: `io` when the system can't start one. `label` names it in messages. The child has
  /// `handed_down` as its descriptor `handed_down_descriptor`, unless that is -1.
  Result<void> start(const std::string& label, const std::vector<std::string>& arguments,
                     int handed_down = -1);

  /// Kills child number `index`, in the order of their starts, and waits until it is gone. That is
  /// no trouble.
  void kill_one(std::size_t index);
  /// Starts one that was killed again, under its label. Errors: those of `start`.
  Result<void> restart(std::size_t index, const std::vector<std::string>& arguments,
                       int handed_down = -1);

  /// Watches for trouble until `stop_watching`. Signals are noticed only if the calling thread
  /// holds them back (`HeldSignals`), and stay pending.
  Result<void> watch(Trouble trouble);

  /// From now on children may end.
  void stop_watching() noexcept;

  /// Stops watching and waits until all have (then the result is their verdict), or
  /// until the deadline, after which they are killed. Errors: `unavailable` with the first failed
  /// child's last words.
  Result<void> expect_end(int deadline_milliseconds);

  [[nodiscard]] std::size_t count() const noexcept { return children_.size(); }

 private:
  struct Child {
    std::string label;
    pid_t pid = -1;
    int process = -1;     ///< pidfd: readable once the child has ended.
    int complaints = -1;  ///< memfd: its standard error.
    bool running = true;
  };

  static Result<Child> spawn(const std::string& label, const std::vector<std::string>& arguments,
                             int handed_down);
  static void close_descriptors(const Child& child) noexcept;
  static std::string verdict(Child& child);
  void watch_loop(const Trouble& trouble);
  /// What is to be told, if anything is: an empty text means to go on watching.
  std::string look(bool signalled);
  void wake() const noexcept;

  std::mutex mutex_;  ///< Guards the next two while someone watches.
  std::vector<Child> children_;
  bool stopping_ = false;
  int changed_ = -1;  ///< eventfd that tells the watching thread to look again.
  std::unique_ptr<Workers> watcher_;
};

/// In a child: die when `parent` does, and leave SIGINT to it. False when it is already gone.
bool end_with_parent(pid_t parent) noexcept;

}  // namespace weir::cli
