#pragma once
// The shard processes of a demo: started from this very program, watched, and never left behind.

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {

/// Child processes that run `weir ARGUMENTS…`. They end with this object, and with this process
/// however it dies (each asks the kernel for that in `end_with_parent`).
/// Threading: members from the thread that made it.
class ChildProcesses {
 public:
  /// Called from the watching thread, at most once: the first child that ended by itself (with
  /// what it said last), or a signal by which a person interrupts.
  using Trouble = std::function<void(const std::string& why)>;

  ChildProcesses() = default;
  /// Kills what still runs and waits for it.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  /// Errors: `io` when the system can't start one. `label` names it in messages.
  Result<void> start(const std::string& label, const std::vector<std::string>& arguments);

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

  static std::string verdict(Child& child);
  void watch_loop(const Trouble& trouble);

  std::vector<Child> children_;
  int stop_ = -1;  ///< eventfd that ends the watching.
  std::unique_ptr<Workers> watcher_;
};

/// In a child: die when `parent` does, and leave SIGINT to it. False when it is already gone.
bool end_with_parent(pid_t parent) noexcept;

}  // namespace weir::cli
