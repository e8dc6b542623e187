#pragma once
// One device's completions, taken from its queue by a thread of their own.

#include <infiniband/verbs.h>

#include <functional>
#include <span>
#include <thread>

#include "runtime/result.hpp"
#include "transports/rdma/internal/device.hpp"

namespace weir::rdma {

/// Polls for a while after each completion and then sleeps until the device wakes it, so that a
/// fetch does not wait for interrupts and an idle transport costs nothing.
class Completions {
 public:
  using Handler = std::function<void(std::span<const ibv_wc>)>;

  /// Calls `handler` on the thread until the end. Device and handler's subject outlive this.
  Completions(const Device& device, Handler handler);
  /// Ends the thread, at work or not.
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

 private:
  void run();
  /// Whether there may be more; false once it is to end.
  bool await_more();

  const Device& device_;
  const Handler handler_;
  int stop_;  ///< An eventfd, readable once the thread is to end.
  std::thread thread_;
};

}  // namespace weir::rdma
