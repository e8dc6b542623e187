#include "transports/shm/internal/staging_server.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace weir::shm {
namespace {

/// Endpoints to try before giving up: as many transports as one process may sensibly have.
constexpr std::uint64_t endpoints_max = 1000;

/// Idle threads look at nothing but their sockets; this only bounds each wait.
constexpr std::chrono::milliseconds idle_wait = std::chrono::seconds(60);

constexpr std::chrono::milliseconds refused_wait(100);

/// A thread that leaves signals to the threads of the program that expect them.
template <class Body>
std::thread quiet_thread(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

bool readable(const Descriptor& descriptor) noexcept {
  return wait_readable(descriptor.get(), -1, std::chrono::milliseconds(0));
}

}  // namespace

Result<std::unique_ptr<StagingServer>> StagingServer::start(const ProcessId& own) {
  Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Descriptor listener;
  std::uint64_t endpoint = 0;
  while (stop.valid() && !listener.valid() && ++endpoint <= endpoints_max) {
    listener = listen_abstract(staging_name(own, endpoint));
    if (!listener.valid() && errno != EADDRINUSE) break;
  }
  if (!listener.valid()) {
    return failure(ErrorCode::io,
                   std::string("can't listen on a unix socket: ") + std::strerror(errno));
  }
  return std::unique_ptr<StagingServer>(
      new StagingServer(std::move(listener), std::move(stop), endpoint));
}

StagingServer::StagingServer(Descriptor listener, Descriptor stop, std::uint64_t endpoint)
    : listener_(std::move(listener)), stop_(std::move(stop)), endpoint_(endpoint) {
  acceptor_ = quiet_thread([this] { accept_all(); });
}

StagingServer::~StagingServer() {
  eventfd_write(stop_.get(), 1);
  acceptor_.join();
  for (Connection& connection : connections_) connection.thread.join();
}

void StagingServer::add(std::uint64_t region, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  regions_[region].bytes = bytes;
}

void StagingServer::remove(std::uint64_t region) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end()) return;
  // No new fill can begin on an extracted node; one going on reports to it.
  const auto node = regions_.extract(found);
  filled_.wait(lock, [&node] { return node.mapped().fills == 0; });
}

void StagingServer::accept_all() {
  while (!readable(stop_)) {
    if (!wait_readable(listener_.get(), stop_.get(), idle_wait)) continue;
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      // Out of descriptors: the reader stays in the queue, and this loop does not spin on it.
      wait_readable(stop_.get(), -1, refused_wait);
      continue;
    }
    for (auto i = connections_.begin(); i != connections_.end();) {
      if (i->ended) i->thread.join();
      i = i->ended ? connections_.erase(i) : std::next(i);
    }
    const auto peer = peer_of(socket);
    const bool ours = peer && peer->user == geteuid();
    if (!ours || connections_.size() >= staging_connections_max) continue;
    Connection& connection = connections_.emplace_back();
    connection.thread = quiet_thread([this, &connection, socket = std::move(socket)] {
      serve(socket);
      connection.ended = true;
    });
  }
}

void StagingServer::serve(const Descriptor& socket) {
  const auto ring = Region::allocate(
      {.kind = RegionKind::host_shared, .bytes = staging_ring_bytes, .huge_pages = false});
  if (!ring) return;
  StagingWelcome welcome;
  if (!send_packet(socket, packet_of(welcome), (*ring)->descriptor())) return;
  while (!readable(stop_)) {
    if (!wait_readable(socket.get(), stop_.get(), idle_wait)) continue;
    StagingRequest request;
    // Whatever is no request ends the connection, and so does a reader that takes no replies.
    if (!receive_packet(socket, packet_of(request)) || request.magic != staging_magic) return;
    StagingReply reply = fill(request, (*ring)->bytes());
    if (!send_packet(socket, packet_of(reply))) return;
  }
}

StagingReply StagingServer::fill(const StagingRequest& request, std::span<std::byte> ring) {
  StagingReply reply{.slot = request.slot, .status = StagingStatus::unknown_region};
  std::unique_lock lock(mutex_);
  const auto found = regions_.find(request.region);
  if (found == regions_.end()) return reply;
  Exposed& exposed = found->second;
  ++exposed.fills;
  lock.unlock();
  const auto runs = runs_of(request, exposed.bytes.size());
  if (runs) {
    for_each_run(*runs, [&](std::uint64_t from, std::uint64_t to) {
      std::memcpy(ring.data() + to, exposed.bytes.data() + from, runs->run_bytes);
    });
  }
  reply.status = runs ? StagingStatus::done : StagingStatus::out_of_bounds;
  lock.lock();
  --exposed.fills;
  lock.unlock();
  filled_.notify_all();
  return reply;
}

}  // namespace weir::shm
