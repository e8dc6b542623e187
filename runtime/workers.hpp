#pragma once
// Worker threads for work that takes long: copying, filling, comparing. The one place that starts
// threads; whoever needs them is handed a `Workers` by its constructor.

#include <cstddef>
#include <functional>
#include <memory>

namespace weir {

/// A fixed set of threads and a queue. Threading: all members from any thread.
class Workers {
 public:
  /// `thread_count` 0 means one per core that this process may run on.
  explicit Workers(unsigned thread_count);
  /// Runs everything that was posted, then joins.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] unsigned thread_count() const noexcept;
  /// Queues a task. Tasks must not throw, and must not wait for later tasks.
  void post(std::function<void()> task);
  /// Runs `body(0)` … `body(count - 1)` on the workers and returns when all are done. Not from
  /// within a task.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir
