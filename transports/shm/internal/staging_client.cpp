#include "transports/shm/internal/staging_client.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace weir::shm {
namespace {

/// How soon a wait notices that it is no longer wanted.
constexpr std::chrono::milliseconds stop_check(20);

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime now() {
  return std::chrono::steady_clock::now();
}

std::string text_of(const PeerProcess& owner) {
  return "process " + std::to_string(owner.pid());
}

/// Maps what an owner sent as its ring, if it is one.
Result<std::unique_ptr<Mapping>> map_ring(const Descriptor& ring, const StagingWelcome& welcome,
                                          const std::string& who) {
  struct stat status {};
  const int seals = ring.valid() ? fcntl(ring.get(), F_GET_SEALS) : -1;
  const bool sound = welcome.magic == staging_magic && welcome.slots == staging_slots &&
                     welcome.slot_bytes == staging_slot_bytes && seals >= 0 &&
                     (seals & F_SEAL_SHRINK) != 0 && fstat(ring.get(), &status) == 0 &&
                     status.st_size == static_cast<off_t>(staging_ring_bytes);
  if (!sound) {
    return failure(ErrorCode::invalid,
                   who +
                       " offers something that is no staging ring; do both sides run the same "
                       "version of weir?");
  }
  return Mapping::map({.bytes = staging_ring_bytes,
                       .descriptor = ring.get(),
                       .writable = false,
                       .huge_pages = false});
}

}  // namespace

Result<std::unique_ptr<StagingConnection>> StagingClient::acquire(const std::atomic<bool>& stop) {
  const SteadyTime deadline = now() + time_max_;
  std::unique_lock lock(mutex_);
  while (free_.empty() && open_ == client_connections_max) {
    if (stop) return failure(ErrorCode::unavailable, "the fetch was cancelled");
    if (now() >= deadline) {
      return failure(ErrorCode::timeout,
                     "no staging connection to " + text_of(*owner_) + " came free in time");
    }
    freed_.wait_for(lock, stop_check);
  }
  if (!free_.empty()) {
    std::unique_ptr<StagingConnection> connection = std::move(free_.back());
    free_.pop_back();
    return connection;
  }
  ++open_;
  lock.unlock();
  auto connection = connect(stop);
  if (!connection) release(nullptr, false);
  return connection;
}

void StagingClient::release(std::unique_ptr<StagingConnection> connection, bool reusable) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (reusable) {
      free_.push_back(std::move(connection));
    } else {
      --open_;
    }
  }
  freed_.notify_one();
}

Result<void> StagingClient::receive(const Descriptor& socket, std::span<std::byte> packet,
                                    Descriptor* attached, const std::atomic<bool>& stop) const {
  const SteadyTime deadline = now() + time_max_;
  while (!wait_readable(socket.get(), -1, std::min(time_max_, stop_check))) {
    if (stop) return failure(ErrorCode::unavailable, "the fetch was cancelled");
    if (now() >= deadline) {
      return failure(ErrorCode::timeout, text_of(*owner_) + " does not answer; is it stopped?");
    }
  }
  if (receive_packet(socket, packet, attached)) return {};
  if (!owner_->alive()) return failure(ErrorCode::unavailable, text_of(*owner_) + " has ended");
  return failure(ErrorCode::unavailable,
                 text_of(*owner_) + " closed its staging connection, or it broke");
}

Result<std::unique_ptr<StagingConnection>> StagingClient::connect(
    const std::atomic<bool>& stop) const {
  Descriptor socket = connect_abstract(name_);
  if (!socket.valid()) {
    return failure(ErrorCode::unavailable, "can't reach the staging server of " + text_of(*owner_) +
                                               ": " + std::strerror(errno));
  }
  const auto peer = peer_of(socket);
  if (!peer || peer->pid != static_cast<pid_t>(owner_->pid()) || peer->user != geteuid()) {
    return failure(ErrorCode::invalid, "the staging server of " + text_of(*owner_) +
                                           " belongs to another process or user");
  }
  StagingWelcome welcome;
  Descriptor ring;
  if (auto received = receive(socket, packet_of(welcome), &ring, stop); !received) {
    return failure(received);
  }
  auto mapping = map_ring(ring, welcome, text_of(*owner_));
  if (!mapping) return failure(mapping);
  return std::make_unique<StagingConnection>(std::move(socket), std::move(*mapping));
}

}  // namespace weir::shm
