#include "runtime/workers.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

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
  for (unsigned i = 0; i < thread_count; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->run(); });
  }
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
    state_->tasks.push_back(std::move(task));
  }
  state_->wake.notify_one();
}

void Workers::for_each(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::mutex mutex;
  std::condition_variable done;
  std::size_t left = count;
  for (std::size_t i = 0; i < count; ++i) {
    post([&, i] {
      body(i);
      const std::lock_guard lock(mutex);
      if (--left == 0) done.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return left == 0; });
}

}  // namespace weir
