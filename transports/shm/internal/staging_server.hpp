#pragma once
// The owner's end of staging: packs runs of exposed regions for readers who can't get at them.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "runtime/region.hpp"
#include "runtime/result.hpp"
#include "transports/shm/internal/process.hpp"
#include "transports/shm/internal/staging_protocol.hpp"
#include "transports/shm/internal/unix_socket.hpp"

namespace weir::shm {

/// One socket, a thread that accepts, and a thread for each connection (so that a slow reader
/// delays nobody). Serves only processes of its own user. Threading: all members from any thread.
class StagingServer {
 public:
  /// Errors: `io` when there is no socket to be had.
  static Result<std::unique_ptr<StagingServer>> start(const ProcessId& own);
  /// Ends all connections and joins.
  ~StagingServer();
  StagingServer(const StagingServer&) = delete;
  StagingServer& operator=(const StagingServer&) = delete;

  [[nodiscard]] std::uint64_t endpoint() const noexcept { return endpoint_; }
  /// The bytes must stay until `remove`.
  void add(std::uint64_t region, std::span<const std::byte> bytes);
  /// Waits until no slot is being filled from that region.
  void remove(std::uint64_t region) noexcept;

 private:
  struct Exposed {
    std::span<const std::byte> bytes;
    std::size_t fills = 0;  ///< Going on now.
  };
  struct Connection {
    std::atomic<bool> ended = false;
    std::thread thread;
  };

  StagingServer(Descriptor listener, Descriptor stop, std::uint64_t endpoint);
  void accept_all();
  void serve(const Descriptor& socket);
  StagingReply fill(const StagingRequest& request, std::span<std::byte> ring);

  Descriptor listener_;
  Descriptor stop_;  ///< An eventfd, readable once the server is to end.
  std::uint64_t endpoint_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::map<std::uint64_t, Exposed> regions_;
  std::list<Connection> connections_;  ///< Only touched by the accepting thread, and at the end.
  std::thread acceptor_;
};

}  // namespace weir::shm
