#pragma once
// Worker threads for work that takes long: copying, filling, comparing. The one place that starts
// threads; whoever needs them is handed a `Workers` by its constructor.

#include <cstddef>
#include <functional>
#include <memory>

namespace weir {

/// Far more than any owner has reason to queue.
inline constexpr std::size_t queued_tasks_max = std::size_t{1} << 16;

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
  /// Queues a task. Tasks must not throw, and must not wait for later tasks. Whoever posts bounds
  /// what it has outstanding (a fetch: one task a thread); more than `queued_tasks_max` is a bug.
  void post(std::function<void()> task);
  /// Runs `body(0)` … `body(count - 1)` on the workers and returns when all are done. Not from
  /// within a task of the same workers.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir
