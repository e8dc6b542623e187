#include "transports/rdma/internal/ticket.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <random>

namespace weir::rdma {

// Goal: a ticket comes back as it was written, and bytes that are none are refused. Method: every
// field at its own value, every length, every implausible field, random changes.

namespace {

constexpr Address ipv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2};
constexpr Address ipv6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};

Ticket example() {
  return {.instance = 0x0102030405060708,
          .pid = 4321,
          .kind = RegionKind::host_shared,
          .bytes = 1 << 20,
          .address = 0x7f0011223344,
          .endpoints = {{.address = ipv4, .port = 18515, .key = 0xfedcba98},
                        {.address = ipv6, .port = 1, .key = 0}}};
}

}  // namespace

TEST_CASE("an rdma ticket survives the journey", "[transports]") {
  const Result<Ticket> parsed = parse_ticket(encode(example()));
  REQUIRE(parsed.has_value());
  REQUIRE(*parsed == example());
}

TEST_CASE("an rdma ticket is written the same on every machine", "[transports]") {
  const std::string bytes = encode(example());
  REQUIRE(bytes.starts_with("weirrdm1"));
  // Magic and kind, then the instance, least byte first.
  REQUIRE(bytes.substr(8 + 1, 8) == std::string("\x08\x07\x06\x05\x04\x03\x02\x01", 8));
  // 8 + 1 + 8 + 4 + 8 + 8 + 1 bytes, and 16 + 2 + 4 for each endpoint.
  REQUIRE(bytes.size() == 38 + 2 * 22);
}

TEST_CASE("an rdma ticket names addresses as people write them", "[transports]") {
  REQUIRE(text_of(ipv4) == "10.77.0.2");
  REQUIRE(text_of(ipv6) == "2001:db8::7");
}

TEST_CASE("an rdma ticket of another length or version is refused", "[transports]") {
  const std::string bytes = encode(example());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    REQUIRE(parse_ticket(bytes.substr(0, length)).error().code == ErrorCode::invalid);
  }
  REQUIRE(parse_ticket(bytes + '\0').error().text ==
          "rdma ticket is malformed; do both sides run the same version of weir?");
  std::string other = bytes;
  other[7] = '2';
  REQUIRE_FALSE(parse_ticket(other).has_value());
}

TEST_CASE("an rdma ticket with an impossible field is refused", "[transports]") {
  const auto refused = [](const std::function<void(Ticket&)>& spoil) {
    Ticket ticket = example();
    spoil(ticket);
    const Result<Ticket> parsed = parse_ticket(encode(ticket));
    REQUIRE_FALSE(parsed.has_value());
    REQUIRE(parsed.error().code == ErrorCode::invalid);
  };
  refused([](Ticket& t) { t.kind = RegionKind::device; });
  refused([](Ticket& t) { t.kind = static_cast<RegionKind>(77); });
  refused([](Ticket& t) { t.pid = 0; });
  refused([](Ticket& t) { t.pid = 0x80000000; });
  refused([](Ticket& t) { t.bytes = 0; });
  refused([](Ticket& t) { t.bytes = (std::uint64_t{1} << 46) + 1; });
  refused([](Ticket& t) { t.address = 0; });
  refused([](Ticket& t) { t.address = std::numeric_limits<std::uint64_t>::max() - 100; });
  refused([](Ticket& t) { t.endpoints.clear(); });
  refused([](Ticket& t) { t.endpoints.resize(endpoints_max + 1, t.endpoints[0]); });
  refused([](Ticket& t) { t.endpoints[1].address = t.endpoints[0].address; });
  refused([](Ticket& t) { t.endpoints[0].port = 0; });
  refused([](Ticket& t) { t.endpoints[0].address[12] = 0; });    // 0.77.0.2
  refused([](Ticket& t) { t.endpoints[0].address[12] = 224; });  // a group's
  refused([](Ticket& t) { t.endpoints[1].address = {}; });
  refused([](Ticket& t) { t.endpoints[1].address[0] = 0xff; });  // a group's
}

TEST_CASE("a garbled rdma ticket is refused or is another ticket", "[transports]") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = encode(example());
    for (std::uint64_t change = random() % 4; change < 4; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (const Result<Ticket> parsed = parse_ticket(bytes)) REQUIRE(encode(*parsed) == bytes);
  }
}

}  // namespace weir::rdma
