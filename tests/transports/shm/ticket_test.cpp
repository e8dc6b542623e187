#include "transports/shm/internal/ticket.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <random>

namespace weir::shm {

// Goal: a ticket comes back as it was written, and bytes that are none are refused. Method: every
// field at its own value, every length, every implausible field, random changes.

namespace {

Ticket example(RegionKind kind) {
  const bool shared = kind == RegionKind::host_shared;
  return {.owner = {.boot = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255},
                    .pid_namespace = 0x0102030405060708,
                    .pid = 4321,
                    .start_time = 0xfedcba9876543210},
          .kind = kind,
          .bytes = 1 << 20,
          .region = 17,
          .endpoint = 3,
          .address = 0x7f0011223344,
          .descriptor = shared ? 12U : 0U,
          .device = shared ? 1U : 0U,
          .inode = shared ? 99U : 0U};
}

}  // namespace

TEST_CASE("a shm ticket survives the journey", "[transports]") {
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    const Result<Ticket> parsed = parse_ticket(encode(example(kind)));
    REQUIRE(parsed.has_value());
    REQUIRE(*parsed == example(kind));
  }
}

TEST_CASE("a shm ticket is written the same on every machine", "[transports]") {
  const std::string bytes = encode(example(RegionKind::host_private));
  REQUIRE(bytes.starts_with("weirshm1"));
  // Magic, kind and boot id, then the namespace, least byte first.
  REQUIRE(bytes.substr(8 + 1 + 16, 8) == std::string("\x08\x07\x06\x05\x04\x03\x02\x01", 8));
}

TEST_CASE("a shm ticket of another length or version is refused", "[transports]") {
  const std::string bytes = encode(example(RegionKind::host_shared));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    REQUIRE(parse_ticket(bytes.substr(0, length)).error().code == ErrorCode::invalid);
  }
  REQUIRE(parse_ticket(bytes + '\0').error().text ==
          "shm ticket is malformed; do both sides run the same version of weir?");
  std::string other = bytes;
  other[7] = '2';
  REQUIRE_FALSE(parse_ticket(other).has_value());
}

TEST_CASE("a shm ticket with an impossible field is refused", "[transports]") {
  constexpr std::uint32_t negative = 0x8000'0000U;
  const std::function<void(Ticket&)> wrongs[] = {
      [](Ticket& ticket) { ticket.kind = RegionKind::device; },
      [](Ticket& ticket) { ticket.kind = static_cast<RegionKind>(9); },
      [](Ticket& ticket) { ticket.bytes = 0; },
      [](Ticket& ticket) { ticket.bytes = std::uint64_t{1} << 47; },
      [](Ticket& ticket) { ticket.owner.pid = 0; },
      [](Ticket& ticket) { ticket.owner.pid = negative; },
      [](Ticket& ticket) { ticket.address = 0; },
      [](Ticket& ticket) { ticket.address = std::numeric_limits<std::uint64_t>::max() - 5; },
      [](Ticket& ticket) { ticket.descriptor = negative; },
      [](Ticket& ticket) { ticket.kind = RegionKind::host_private; },
  };
  for (const auto& wrong : wrongs) {
    Ticket ticket = example(RegionKind::host_shared);
    wrong(ticket);
    const Result<Ticket> parsed = parse_ticket(encode(ticket));
    REQUIRE(parsed.error() == Error{ErrorCode::invalid,
                                    "shm ticket has a field that can't be; it is not a region's"});
  }
}

TEST_CASE("what parses as a shm ticket encodes to the same bytes", "[transports]") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = encode(example(RegionKind::host_shared));
    bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
    const Result<Ticket> parsed = parse_ticket(bytes);
    if (parsed && encode(*parsed) != bytes) FAIL("round " << round);
  }
}

}  // namespace weir::shm
