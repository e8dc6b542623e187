#include "transports/shm/internal/ticket.hpp"

#include <limits>

#include "transports/internal/little_endian.hpp"

namespace weir::shm {
namespace {

constexpr std::string_view magic = "weirshm1";

/// Far above any memory, far below what could overflow when added to an address.
constexpr std::uint64_t region_bytes_max = std::uint64_t{1} << 46;

/// Calls `field` with every number of the ticket, in the order of the encoding.
template <class AnyTicket, class Field>
void for_each_field(AnyTicket& ticket, const Field& field) {
  for (auto& byte : ticket.owner.boot) field(byte);
  field(ticket.owner.pid_namespace);
  field(ticket.owner.pid);
  field(ticket.owner.start_time);
  field(ticket.bytes);
  field(ticket.region);
  field(ticket.endpoint);
  field(ticket.address);
  field(ticket.descriptor);
  field(ticket.device);
  field(ticket.inode);
}

}  // namespace

std::string encode(const Ticket& ticket) {
  std::string bytes(magic);
  append_number(bytes, static_cast<std::uint8_t>(ticket.kind));
  for_each_field(ticket, [&bytes](auto number) { append_number(bytes, number); });
  return bytes;
}

Result<Ticket> parse_ticket(std::string_view bytes) {
  static const std::size_t length = encode({}).size();
  if (bytes.size() != length || !bytes.starts_with(magic)) {
    return failure(ErrorCode::invalid,
                   "shm ticket is malformed; do both sides run the same version of weir?");
  }
  bytes.remove_prefix(magic.size());
  Ticket ticket;
  std::uint8_t kind = 0;
  take_number(bytes, kind);
  ticket.kind = static_cast<RegionKind>(kind);
  for_each_field(ticket, [&bytes](auto& number) { take_number(bytes, number); });
  const bool shared = ticket.kind == RegionKind::host_shared;
  const bool plausible =
      (shared || ticket.kind == RegionKind::host_private) && ticket.bytes > 0 &&
      ticket.bytes <= region_bytes_max && ticket.owner.pid > 0 &&
      ticket.owner.pid <= std::numeric_limits<std::int32_t>::max() && ticket.address > 0 &&
      ticket.address <= std::numeric_limits<std::uint64_t>::max() - ticket.bytes &&
      ticket.descriptor <= std::numeric_limits<std::int32_t>::max() &&
      (shared || (ticket.descriptor == 0 && ticket.device == 0 && ticket.inode == 0));
  if (!plausible) {
    return failure(ErrorCode::invalid,
                   "shm ticket has a field that can't be; it is not a region's");
  }
  return ticket;
}

}  // namespace weir::shm
