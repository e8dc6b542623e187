#pragma once
// Sockets of strangers: a listener that says nothing, and a client that talks nonsense.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>

namespace weir {

/// A TCP socket on loopback that is bound, and neither accepts nor says anything.
struct MuteListener {
  MuteListener() : descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(descriptor, generic, length) == 0);
    REQUIRE(getsockname(descriptor, generic, &length) == 0);
    port = ntohs(address.sin_port);
  }
  ~MuteListener() { close(descriptor); }
  MuteListener(const MuteListener&) = delete;
  MuteListener& operator=(const MuteListener&) = delete;

  int descriptor;
  std::uint16_t port = 0;
};

/// Connects to a port of loopback and says that.
struct Noise {
  Noise(std::uint16_t port, const std::string& bytes)
      : descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    REQUIRE(connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  ~Noise() { close(descriptor); }
  Noise(const Noise&) = delete;
  Noise& operator=(const Noise&) = delete;

  int descriptor;
};

}  // namespace weir
