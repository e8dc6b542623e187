#pragma once
// What a peer needs in order to read a region of this process by RDMA.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir::rdma {

/// Far more ports than a host has; all of them are tried when one fails.
inline constexpr std::size_t endpoints_max = 16;

/// An IPv6 address, or an IPv4 one as IPv6 maps it (::ffff:10.0.0.1).
using Address = std::array<std::uint8_t, 16>;

/// "10.0.0.1" or "fe80::1", for messages.
std::string text_of(const Address& address);
/// Whether it is an IPv4 address.
bool is_ipv4(const Address& address) noexcept;

/// One device of the owner: where it listens, and the region's key there.
struct Endpoint {
  Address address{};
  std::uint16_t port = 0;
  std::uint32_t key = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) noexcept = default;
};

/// A region and the ways to it. As bytes: a magic word with the format's version, then every field
/// in order, little-endian, at its full width; one encoding for each value.
struct Ticket {
  std::uint64_t instance = 0;  ///< Of the owner's transport: drawn at random when it was made.
  std::uint32_t pid = 0;       ///< Of the owner, for messages.
  RegionKind kind = RegionKind::host_private;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;        ///< Of the first byte, in the owner's memory.
  std::vector<Endpoint> endpoints;  ///< One to `endpoints_max`; none twice.

  friend bool operator==(const Ticket&, const Ticket&) noexcept = default;
};

std::string encode(const Ticket& ticket);
/// Any bytes are safe to pass; those that come back as a ticket encode to the same bytes.
/// Errors: `invalid`.
Result<Ticket> parse_ticket(std::string_view bytes);

}  // namespace weir::rdma
