#include "transports/rdma/internal/completions.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include "runtime/assert.hpp"

namespace weir::rdma {
namespace {

/// About what an interrupt and a thread's wake-up cost: polling longer than that is a bad bargain.
constexpr auto polling_time = std::chrono::microseconds(50);
/// Taken at once, under one lock.
constexpr std::size_t batch = 32;

}  // namespace

Completions::Completions(const Device& device, Handler handler)
    : device_(device), handler_(std::move(handler)), stop_(eventfd(0, EFD_CLOEXEC)) {
  WEIR_ASSERT(stop_ >= 0);
  thread_ = std::thread([this] { run(); });
}

Completions::~Completions() {
  const std::uint64_t one = 1;
  static_cast<void>(write(stop_, &one, sizeof one));
  thread_.join();
  close(stop_);
}

void Completions::run() {
  std::array<ibv_wc, batch> taken;
  auto last = std::chrono::steady_clock::now();
  bool armed = false;
  for (;;) {
    const int count = ibv_poll_cq(device_.completions(), batch, taken.data());
    // A queue that can't be polled belongs to a device that is gone: its connections end by that.
    if (count < 0) return;
    if (count > 0) {
      handler_(std::span<const ibv_wc>(taken).first(static_cast<std::size_t>(count)));
      last = std::chrono::steady_clock::now();
      armed = false;
    } else if (std::chrono::steady_clock::now() - last < polling_time) {
      std::this_thread::yield();
    } else if (!armed) {
      // What arrived before is found by another poll, what arrives after wakes.
      if (ibv_req_notify_cq(device_.completions(), 0) != 0) return;
      armed = true;
    } else {
      armed = false;
      if (!await_more()) return;
    }
  }
}

bool Completions::await_more() {
  std::array<pollfd, 2> waiting{
      {{device_.completion_channel()->fd, POLLIN, 0}, {stop_, POLLIN, 0}}};
  while (poll(waiting.data(), waiting.size(), -1) < 0) {
  }
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(device_.completion_channel(), &queue, &context) == 0) ++events;
  if (events > 0) ibv_ack_cq_events(device_.completions(), events);
  return waiting[1].revents == 0;
}

}  // namespace weir::rdma
