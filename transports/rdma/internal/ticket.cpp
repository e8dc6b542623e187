#include "transports/rdma/internal/ticket.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <limits>

#include "transports/internal/little_endian.hpp"

namespace weir::rdma {
namespace {

constexpr std::string_view magic = "weirrdm1";

/// Far above any memory, far below what could overflow when added to an address.
constexpr std::uint64_t ticket_bytes_max = std::uint64_t{1} << 46;

constexpr Address ipv4_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t ipv4_at = 12;

/// Calls `field` with every number before the endpoints, in the order of the encoding.
template <class AnyTicket, class Field>
void for_each_field(AnyTicket& ticket, const Field& field) {
  field(ticket.instance);
  field(ticket.pid);
  field(ticket.bytes);
  field(ticket.address);
}

template <class AnyEndpoint, class Field>
void for_each_endpoint_field(AnyEndpoint& endpoint, const Field& field) {
  for (auto& byte : endpoint.address) field(byte);
  field(endpoint.port);
  field(endpoint.key);
}

/// Whether one machine can have that address: neither nobody's nor many machines'.
bool of_one_machine(const Address& address) noexcept {
  if (is_ipv4(address)) return address[ipv4_at] > 0 && address[ipv4_at] < 224;
  return address != Address{} && address[0] != 0xff;
}

bool plausible(const Ticket& ticket) {
  const bool host =
      ticket.kind == RegionKind::host_private || ticket.kind == RegionKind::host_shared;
  if (!host || ticket.pid == 0 || ticket.pid > std::numeric_limits<std::int32_t>::max() ||
      ticket.bytes == 0 || ticket.bytes > ticket_bytes_max || ticket.address == 0 ||
      ticket.address > std::numeric_limits<std::uint64_t>::max() - ticket.bytes) {
    return false;
  }
  for (std::size_t i = 0; i < ticket.endpoints.size(); ++i) {
    const Endpoint& endpoint = ticket.endpoints[i];
    if (endpoint.port == 0 || !of_one_machine(endpoint.address)) return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (ticket.endpoints[j].address == endpoint.address) return false;
    }
  }
  return true;
}

}  // namespace

std::string text_of(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4(address)) {
    inet_ntop(AF_INET, address.data() + ipv4_at, text.data(), text.size());
  } else {
    inet_ntop(AF_INET6, address.data(), text.data(), text.size());
  }
  return text.data();
}

bool is_ipv4(const Address& address) noexcept {
  return std::equal(ipv4_prefix.begin(), ipv4_prefix.begin() + ipv4_at, address.begin());
}

std::string encode(const Ticket& ticket) {
  std::string bytes(magic);
  append_number(bytes, static_cast<std::uint8_t>(ticket.kind));
  for_each_field(ticket, [&bytes](auto number) { append_number(bytes, number); });
  append_number(bytes, static_cast<std::uint8_t>(ticket.endpoints.size()));
  for (const Endpoint& endpoint : ticket.endpoints) {
    for_each_endpoint_field(endpoint, [&bytes](auto number) { append_number(bytes, number); });
  }
  return bytes;
}

Result<Ticket> parse_ticket(std::string_view bytes) {
  static const std::size_t fixed = encode({}).size();
  static const std::size_t each = encode({.endpoints = {{}}}).size() - fixed;
  const auto malformed = [] {
    return failure(ErrorCode::invalid,
                   "rdma ticket is malformed; do both sides run the same version of weir?");
  };
  if (bytes.size() < fixed + each || !bytes.starts_with(magic)) return malformed();
  bytes.remove_prefix(magic.size());
  Ticket ticket;
  std::uint8_t kind = 0;
  std::uint8_t count = 0;
  take_number(bytes, kind);
  ticket.kind = static_cast<RegionKind>(kind);
  for_each_field(ticket, [&bytes](auto& number) { take_number(bytes, number); });
  take_number(bytes, count);
  if (count > endpoints_max || bytes.size() != count * each) return malformed();
  ticket.endpoints.resize(count);
  for (Endpoint& endpoint : ticket.endpoints) {
    for_each_endpoint_field(endpoint, [&bytes](auto& number) { take_number(bytes, number); });
  }
  if (!plausible(ticket)) {
    return failure(ErrorCode::invalid,
                   "rdma ticket has a field that can't be; it is not a region's");
  }
  return ticket;
}

}  // namespace weir::rdma
