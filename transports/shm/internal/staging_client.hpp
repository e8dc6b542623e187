#pragma once
// The reader's end of staging: connections to one owner, shared by all fetches from it.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/mapping.hpp"
#include "runtime/result.hpp"
#include "transports/shm/internal/process.hpp"
#include "transports/shm/internal/staging_protocol.hpp"
#include "transports/shm/internal/unix_socket.hpp"

namespace weir::shm {

/// Of one reader to one owner: enough for as many threads as an owner can feed, and few enough that
/// sixteen readers fit its limit.
inline constexpr std::size_t client_connections_max = 4;

/// One connection and its ring. Threading: one thread at a time.
class StagingConnection {
 public:
  StagingConnection(Descriptor socket, std::unique_ptr<Mapping> ring) noexcept
      : socket_(std::move(socket)), ring_(std::move(ring)) {}

  [[nodiscard]] const Descriptor& socket() const noexcept { return socket_; }
  /// Valid for the life of the connection; the owner writes to it.
  [[nodiscard]] std::span<const std::byte> slot(std::uint32_t index) const noexcept {
    return ring_->bytes().subspan(index * staging_slot_bytes, staging_slot_bytes);
  }

 private:
  Descriptor socket_;
  std::unique_ptr<Mapping> ring_;
};

/// All connections to the staging server of one owner, few enough that many readers can share it.
/// Threading: all members from any thread.
class StagingClient {
 public:
  /// `time_max` bounds each wait for the owner.
  StagingClient(std::shared_ptr<const PeerProcess> owner, std::string name,
                std::chrono::milliseconds time_max)
      : owner_(std::move(owner)), name_(std::move(name)), time_max_(time_max) {}

  /// A free connection, or a new one, or the next that comes free. Errors: `unavailable` (the owner
  /// has gone, or takes no more readers), `invalid` (it is not who it should be, or answers
  /// nonsense), `timeout`.
  Result<std::unique_ptr<StagingConnection>> acquire(const std::atomic<bool>& stop);
  /// Ends a use. One that went wrong is closed, with whatever was outstanding on it.
  void release(std::unique_ptr<StagingConnection> connection, bool reusable) noexcept;

  /// Waits for a packet from the owner, of exactly that length. Returns early, with an error, once
  /// `stop` is true. Errors: `timeout`, `unavailable`.
  Result<void> receive(const Descriptor& socket, std::span<std::byte> packet, Descriptor* attached,
                       const std::atomic<bool>& stop) const;

  [[nodiscard]] const PeerProcess& owner() const noexcept { return *owner_; }

 private:
  Result<std::unique_ptr<StagingConnection>> connect(const std::atomic<bool>& stop) const;

  const std::shared_ptr<const PeerProcess> owner_;
  const std::string name_;
  const std::chrono::milliseconds time_max_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::size_t open_ = 0;
  std::vector<std::unique_ptr<StagingConnection>> free_;
};

}  // namespace weir::shm
