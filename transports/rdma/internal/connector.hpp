#pragma once
// Makes and ends connections: ours to peers, for the engine, and peers' to us.

#include <rdma/rdma_cma.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <thread>

#include "transports/rdma/internal/device.hpp"
#include "transports/rdma/internal/engine.hpp"

namespace weir::rdma {

/// Peers that read from us at a time, per device. When one more comes, the oldest connection ends:
/// its reader, if it lives, connects again. A connection costs its device some KiB.
inline constexpr std::size_t readers_max = 1024;

/// What wakes the connector's thread. Threading: any.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  void wake() const noexcept;
  /// Forgets earlier calls of `wake`.
  void clear() const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

/// One thread, which alone handles the connection manager's events.
class Connector {
 public:
  /// All of these outlive it.
  Connector(rdma_event_channel* channel, const Devices& devices, std::uint64_t instance,
            Engine& engine, const Waker& waker);
  /// Ends every connection. All transfers have ended.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

 private:
  struct Event;

  void run();
  void wait_until(TimePoint time) const;
  bool handle_next();
  void do_tasks(TimePoint& wake_at);

  // Ours.
  void connect(Rail& rail);
  void handle_own(Rail& rail, const Event& event);
  Result<void> go_on(Rail& rail, const Event& event);
  Error refusal(const Rail& rail, const Event& event) const;
  void give_up(Rail& rail, Error why);
  void close(Rail& rail);

  // Peers'.
  void answer(const Event& event);
  bool accept(rdma_cm_id* id, const Device& device, const Event& event);
  void end_reader(rdma_cm_id* id);

  rdma_event_channel* channel_;
  const Devices& devices_;
  const std::uint64_t instance_;
  Engine& engine_;
  const Waker& waker_;
  std::list<rdma_cm_id*> readers_;  ///< The oldest first.
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace weir::rdma
