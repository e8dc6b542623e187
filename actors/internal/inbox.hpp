#pragma once
// How threads that are not CAF's (a transport's, an engine's) reach an actor, which may be gone.

#include <memory>
#include <mutex>
#include <utility>

#include "actors/internal/caf.hpp"

namespace weir {

/// An actor's address for callbacks. The actor closes it when it ends; what comes later is dropped,
/// so that a callback may be called, kept or destroyed at any time, even after the actor system.
/// Threading: all members from any thread.
template <class Handle>
class Inbox {
 public:
  explicit Inbox(Handle actor) : actor_(std::move(actor)) {}

  template <class... Ts>
  void send(Ts&&... content) {
    const std::lock_guard lock(mutex_);
    if (actor_) caf::anon_send(actor_, std::forward<Ts>(content)...);
  }

  void close() {
    Handle last;  // Released after the lock.
    const std::lock_guard lock(mutex_);
    std::swap(last, actor_);
  }

 private:
  std::mutex mutex_;
  Handle actor_;
};

}  // namespace weir
