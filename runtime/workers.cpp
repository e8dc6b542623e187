#include "runtime/workers.hpp"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/assert.hpp"

namespace weir {
namespace {

unsigned usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

struct Workers::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  bool ending = false;
  std::vector<std::thread> threads;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return ending || !tasks.empty(); });
      if (tasks.empty()) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }
};

Workers::Workers(unsigned thread_count) : state_(std::make_unique<State>()) {
  if (thread_count == 0) thread_count = usable_cores();
  state_->threads.reserve(thread_count);
  // Threads inherit the mask: a signal goes to a thread of the program that expects it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < thread_count; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->run(); });
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Workers::~Workers() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

unsigned Workers::thread_count() const noexcept {
  return static_cast<unsigned>(state_->threads.size());
}

void Workers::post(std::function<void()> task) {
  {
    const std::lock_guard lock(state_->mutex);
    WEIR_ASSERT(state_->tasks.size() < queued_tasks_max);
    state_->tasks.push_back(std::move(task));
  }
  state_->wake.notify_one();
}

void Workers::for_each(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::mutex mutex;
  std::condition_variable done;
  std::atomic<std::size_t> next = 0;
  // One task a thread, however many indices there are: the queue stays short.
  std::size_t left = std::min<std::size_t>(count, thread_count());
  for (std::size_t lane = left; lane > 0; --lane) {
    post([&] {
      for (std::size_t i = next++; i < count; i = next++) body(i);
      const std::lock_guard lock(mutex);
      if (--left == 0) done.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return left == 0; });
}

}  // namespace weir
