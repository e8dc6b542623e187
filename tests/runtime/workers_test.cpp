#include "runtime/workers.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace weir {

// Goal: every task runs once, at the latest before the workers end. Method: counting; waits are
// promises that tasks keep.

TEST_CASE("everything that was posted has run when the workers end", "[runtime]") {
  std::atomic<int> ran = 0;
  {
    Workers workers(3);
    REQUIRE(workers.thread_count() == 3);
    for (int i = 0; i < 1000; ++i) workers.post([&ran] { ++ran; });
  }
  REQUIRE(ran == 1000);
}

TEST_CASE("zero threads means one per usable core", "[runtime]") {
  REQUIRE(Workers(0).thread_count() >= 1);
}

TEST_CASE("for_each runs each index once and waits for all", "[runtime]") {
  Workers workers(2);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{10000}}) {
    std::vector<std::atomic<int>> ran(count);
    workers.for_each(count, [&ran](std::size_t index) { ++ran[index]; });
    for (const std::atomic<int>& times : ran) REQUIRE(times == 1);
  }
}

TEST_CASE("several threads may use for_each at once", "[runtime]") {
  Workers workers(2);
  std::atomic<int> ran = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] { workers.for_each(500, [&ran](std::size_t) { ++ran; }); });
  }
  for (std::thread& caller : callers) caller.join();
  REQUIRE(ran == 2000);
}

TEST_CASE("tasks run side by side", "[runtime]") {
  // Each of two tasks waits for the other: with one thread this would never end.
  Workers workers(2);
  std::promise<void> first;
  std::promise<void> second;
  workers.for_each(2, [&](std::size_t index) {
    (index == 0 ? first : second).set_value();
    (index == 0 ? second : first).get_future().wait();
  });
}

TEST_CASE("what a task holds is let go when it has run", "[runtime]") {
  Workers workers(1);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  workers.post([held = std::move(held)] { (void)held; });
  workers.for_each(1, [](std::size_t) {});
  REQUIRE(seen.expired());
}

TEST_CASE("workers leave signals to the program's own threads", "[runtime]") {
  Workers workers(1);
  workers.for_each(1, [](std::size_t) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    REQUIRE(sigismember(&blocked, SIGINT) == 1);
    REQUIRE(sigismember(&blocked, SIGTERM) == 1);
  });
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  REQUIRE(sigismember(&blocked, SIGINT) == 0);
}

}  // namespace weir
