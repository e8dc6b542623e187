#pragma once
// What a peer needs in order to reach a region of this process through shared memory.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/manifest.hpp"
#include "runtime/result.hpp"
#include "transports/shm/internal/process.hpp"

namespace weir::shm {

/// A region and the ways to it. As bytes: a magic word with the format's version, then every field
/// in order, little-endian, at its full width; one length, one encoding for each value.
struct Ticket {
  ProcessId owner;
  RegionKind kind = RegionKind::host_private;
  std::uint64_t bytes = 0;
  std::uint64_t region = 0;      ///< The owner's number for it, never used twice.
  std::uint64_t endpoint = 0;    ///< Of the owner's staging server.
  std::uint64_t address = 0;     ///< In the owner's memory.
  std::uint32_t descriptor = 0;  ///< Shared regions: the memfd's number in the owner,
  std::uint64_t device = 0;      ///< and what it must turn out to be.
  std::uint64_t inode = 0;

  friend bool operator==(const Ticket&, const Ticket&) noexcept = default;
};

std::string encode(const Ticket& ticket);
/// Any bytes are safe to pass; those that come back as a ticket encode to the same bytes.
/// Errors: `invalid`.
Result<Ticket> parse_ticket(std::string_view bytes);

}  // namespace weir::shm
