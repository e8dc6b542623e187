#include "transports/shm/internal/unix_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace weir::shm {
namespace {

constexpr int socket_kind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address abstract_address(std::string_view name) noexcept {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.name.sun_path - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (number_ >= 0) close(number_);
    number_ = other.release();
  }
  return *this;
}

int Descriptor::release() noexcept {
  return std::exchange(number_, -1);
}

std::optional<SocketPeer> peer_of(const Descriptor& socket) noexcept {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return std::nullopt;
  }
  return SocketPeer{.pid = credentials.pid, .user = credentials.uid};
}

Descriptor listen_abstract(std::string_view name) noexcept {
  Descriptor socket(::socket(AF_UNIX, socket_kind, 0));
  if (!socket.valid()) return socket;
  const Address address = abstract_address(name);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.name);
  if (bind(socket.get(), generic, address.length) != 0 || listen(socket.get(), SOMAXCONN) != 0) {
    return Descriptor();
  }
  return socket;
}

Descriptor connect_abstract(std::string_view name) noexcept {
  Descriptor socket(::socket(AF_UNIX, socket_kind, 0));
  if (!socket.valid()) return socket;
  const Address address = abstract_address(name);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.name);
  if (connect(socket.get(), generic, address.length) != 0) return Descriptor();
  return socket;
}

bool wait_readable(int first, int second, std::chrono::milliseconds time) noexcept {
  std::array<pollfd, 2> waited{pollfd{.fd = first, .events = POLLIN, .revents = 0},
                               pollfd{.fd = second, .events = POLLIN, .revents = 0}};
  const int ready = poll(waited.data(), waited.size(), static_cast<int>(time.count()));
  return ready > 0 && waited[0].revents != 0;
}

bool send_packet(const Descriptor& socket, std::span<const std::byte> packet,
                 int attached) noexcept {
  iovec content{const_cast<std::byte*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  if (attached >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof attached);
    std::memcpy(CMSG_DATA(header), &attached, sizeof attached);
  }
  const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(packet.size());
}

bool receive_packet(const Descriptor& socket, std::span<std::byte> packet,
                    Descriptor* attached) noexcept {
  iovec content{packet.data(), packet.size()};
  // Room for one descriptor: the kernel closes those for which there is none.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  if (attached != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_LEN(sizeof(int));
  }
  const ssize_t received = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (attached != nullptr && header != nullptr && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof number);
    *attached = Descriptor(number);
  }
  return received == static_cast<ssize_t>(packet.size()) && (message.msg_flags & MSG_TRUNC) == 0;
}

}  // namespace weir::shm
