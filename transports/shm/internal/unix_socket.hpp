#pragma once
// Packets over unix sockets, each wait with an end.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/result.hpp"

namespace weir::shm {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool valid() const noexcept { return number_ >= 0; }
  int release() noexcept;

 private:
  int number_;
};

/// Who is at the other end, as the kernel knows it.
struct SocketPeer {
  pid_t pid = 0;
  uid_t user = 0;
};
std::optional<SocketPeer> peer_of(const Descriptor& socket) noexcept;

/// Listens on / connects to an abstract name. An invalid descriptor with `errno` set otherwise.
Descriptor listen_abstract(std::string_view name) noexcept;
Descriptor connect_abstract(std::string_view name) noexcept;

/// Waits until one of two descriptors (the second may be -1) can be read or is closed, or the time
/// is over. Returns whether the first one can.
bool wait_readable(int first, int second, std::chrono::milliseconds time) noexcept;

/// Never blocks and never raises SIGPIPE. Whether the whole packet went.
bool send_packet(const Descriptor& socket, std::span<const std::byte> packet,
                 int attached = -1) noexcept;

/// Never blocks. Whether a packet of exactly that length came. Descriptors that come along are
/// closed, save the one that a caller asks for.
bool receive_packet(const Descriptor& socket, std::span<std::byte> packet,
                    Descriptor* attached = nullptr) noexcept;

/// A plain struct as a packet.
template <class Message>
std::span<std::byte> packet_of(Message& message) noexcept {
  return std::as_writable_bytes(std::span(&message, 1));
}

}  // namespace weir::shm
