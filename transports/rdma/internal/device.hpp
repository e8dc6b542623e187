#pragma once
// The RDMA devices of this host that are used, each by one port and one address.

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.hpp"
#include "transports/rdma/internal/ticket.hpp"

namespace weir::rdma {

/// READs of one connection that a device works on at a time: what usual cards can do as a source.
inline constexpr std::uint32_t device_reads_max = 16;
/// READs of one connection that are handed to the device. Twice a step, so that it is never idle.
inline constexpr std::uint32_t connection_reads_max = 64;
/// Room for the completions of 256 peers that are read from at once: 1 MiB of memory.
inline constexpr int completions_max = 16384;

struct ChannelDeleter {
  void operator()(rdma_event_channel* channel) const noexcept {
    rdma_destroy_event_channel(channel);
  }
};
using Channel = std::unique_ptr<rdma_event_channel, ChannelDeleter>;

/// The connection manager's events, not blocking. Errors: `refused` where there is no RDMA.
Result<Channel> open_channel();

sockaddr_in6 ipv6_socket_address(const Address& address, std::uint16_t port) noexcept;
sockaddr_in ipv4_socket_address(const Address& address, std::uint16_t port) noexcept;

/// One port of a device, under one address, on which it listens. Threading: immutable.
class Device {
 public:
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const Address& address() const noexcept { return address_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Whether an address is in the subnet of this one.
  [[nodiscard]] bool near(const Address& other) const noexcept;
  /// "rxe0 (10.77.0.1)", for messages.
  [[nodiscard]] std::string text() const;
  /// Whether the port is up now.
  [[nodiscard]] bool active() const noexcept;

  [[nodiscard]] ibv_context* context() const noexcept { return listener_->verbs; }
  [[nodiscard]] ibv_pd* domain() const noexcept { return domain_; }
  [[nodiscard]] ibv_cq* completions() const noexcept { return completions_; }
  [[nodiscard]] ibv_comp_channel* completion_channel() const noexcept {
    return completion_channel_;
  }
  [[nodiscard]] std::uint64_t message_bytes_max() const noexcept { return message_bytes_max_; }
  /// In Mb/s, as the port has it now; 0 where that is not known.
  [[nodiscard]] std::uint64_t megabits_per_second() const noexcept;
  /// Bytes that one connection has under way: what the port moves in 80 us, which is several times
  /// the way there and back, but two steps at least and 4 MiB at most. More would only be lost
  /// with the connection, or have to be waited for when a fetch is cancelled.
  [[nodiscard]] std::uint64_t bytes_in_flight_max() const noexcept { return bytes_in_flight_max_; }
  /// READs that it works on at a time, as reader and as source.
  [[nodiscard]] std::uint8_t reads_as_reader() const noexcept { return reads_as_reader_; }
  [[nodiscard]] std::uint8_t reads_as_source() const noexcept { return reads_as_source_; }
  [[nodiscard]] std::uint32_t connections_max() const noexcept { return connections_max_; }

 private:
  friend class DeviceFinder;
  Device() = default;
  Result<void> open();

  std::string name_;
  Address address_{};
  Address mask_{};
  std::uint16_t port_ = 0;
  rdma_cm_id* listener_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* completion_channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  std::uint64_t message_bytes_max_ = 0;
  std::uint64_t bytes_in_flight_max_ = 0;
  std::uint8_t reads_as_reader_ = 0;
  std::uint8_t reads_as_source_ = 0;
  std::uint32_t connections_max_ = 0;
};

using Devices = std::vector<std::unique_ptr<Device>>;

/// Opens the devices with these names or addresses; all that have an address where none is asked
/// for. The connection manager chooses the GID by the address, and RoCE v2 where the device has it;
/// of several addresses of a port the first IPv4 one counts. Sorted by name.
/// Errors: `not_found` (nothing of that name; there is none), `io`.
Result<Devices> open_devices(rdma_event_channel* channel, const std::vector<std::string>& wanted);

}  // namespace weir::rdma
