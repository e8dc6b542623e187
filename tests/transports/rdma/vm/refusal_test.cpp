#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "tests/transports/contract_rig.hpp"
#include "transports/rdma/internal/ticket.hpp"
#include "transports/rdma/rdma_transport.hpp"

namespace weir {

// Goal: what a peer or the kernel refuses is told by its own error, and costs nobody else anything.
// Method: tickets with one wrong field; a process that may lock little memory.

namespace {

TransportSubject subject() {
  return {.name = "rdma:rxe1", .source_kind = RegionKind::host_private, .make = [] {
            auto transport = make_rdma_transport({.devices = {"rxe0"}});
            if (!transport) FAIL(transport.error().text);
            return *std::move(transport);
          }};
}

/// The same region under a ticket in which something is wrong.
RegionInfo with_ticket(const RegionInfo& good, const std::function<void(rdma::Ticket&)>& spoil) {
  Result<rdma::Ticket> ticket = rdma::parse_ticket(good.tickets[0].bytes);
  REQUIRE(ticket.has_value());
  spoil(*ticket);
  RegionInfo bad = good;
  bad.bytes = ticket->bytes;
  bad.tickets[0].bytes = rdma::encode(*ticket);
  return bad;
}

/// Takes away, for as long as it lives, root's right to lock any amount of memory.
class LittleLockedMemory {
 public:
  explicit LittleLockedMemory(rlim_t bytes) {
    getrlimit(RLIMIT_MEMLOCK, &before_);
    const rlimit little{bytes, before_.rlim_max};
    setrlimit(RLIMIT_MEMLOCK, &little);
    set_lock_capability(false);
  }
  ~LittleLockedMemory() {
    set_lock_capability(true);
    setrlimit(RLIMIT_MEMLOCK, &before_);
  }
  LittleLockedMemory(const LittleLockedMemory&) = delete;
  LittleLockedMemory& operator=(const LittleLockedMemory&) = delete;

 private:
  static void set_lock_capability(bool on) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    syscall(SYS_capget, &header, sets);
    constexpr unsigned bit = 1U << CAP_IPC_LOCK;
    sets[0].effective = on ? sets[0].effective | bit : sets[0].effective & ~bit;
    syscall(SYS_capset, &header, sets);
  }
  rlimit before_{};
};

}  // namespace

TEST_CASE("a ticket that does not fit its region is refused, and the next one is not", "[rdma]") {
  ContractRig rig(subject());
  const RegionInfo good = rig.sources[0].regions[0];
  const std::vector<Copy> plan{whole_copy()};
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  const std::function<void(rdma::Ticket&)> wrongs[] = {
      [](rdma::Ticket& ticket) { ticket.endpoints[0].key ^= 1; },
      [](rdma::Ticket& ticket) { ticket.endpoints[0].key ^= 0x100; },
      [](rdma::Ticket& ticket) { ticket.address += 1; },       // Its last byte is outside.
      [](rdma::Ticket& ticket) { ticket.bytes += 1 << 16; },   // The same.
      [](rdma::Ticket& ticket) { ticket.address = 0x10000; },  // Memory that nobody registered.
  };
  Bytes sent(rig_source_bytes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = peer_byte(0, i);
  int number = 0;
  for (const auto& wrong : wrongs) {
    INFO("wrong " << number++);
    rig.sources[0].regions[0] = with_ticket(good, wrong);
    const auto bad = rig.prepare(plan);
    REQUIRE_FALSE(bad.has_value());
    INFO(bad.error().text);
    REQUIRE(bad.error().code == ErrorCode::invalid);
    REQUIRE(bad.error().text.find("refuses the key or the place") != std::string::npos);
    rig.wipe();
    REQUIRE(run(**fetch).has_value());
    REQUIRE(same_bytes(rig.target->bytes().first(rig_source_bytes), sent));
  }
}

TEST_CASE("a ticket of a transport that has ended is told from one that lives", "[rdma]") {
  ContractRig rig(subject());
  rig.sources[0].regions[0] =
      with_ticket(rig.sources[0].regions[0], [](rdma::Ticket& ticket) { ticket.instance ^= 1; });
  const auto fetch = rig.prepare({whole_copy()});
  REQUIRE_FALSE(fetch.has_value());
  REQUIRE(fetch.error().code == ErrorCode::unavailable);
  INFO(fetch.error().text);
  REQUIRE(fetch.error().text.ends_with("has ended: another one answers at its address"));
}

TEST_CASE("an address where nobody is ends in an error in time", "[rdma]") {
  ContractRig rig(subject());
  rig.sources[0].regions[0] = with_ticket(rig.sources[0].regions[0], [](rdma::Ticket& ticket) {
    ticket.endpoints[0].address.back() = 77;
  });
  const auto fetch = rig.prepare({whole_copy()});
  REQUIRE_FALSE(fetch.has_value());
  INFO(fetch.error().text);
  REQUIRE(fetch.error().text.find("10.77.0.77") != std::string::npos);
}

TEST_CASE("a limit on locked memory is named, and how to raise it", "[rdma]") {
  const auto transport = make_rdma_transport({.devices = {"rxe0"}});
  REQUIRE(transport.has_value());
  const auto region = std::move(*Region::allocate({.bytes = 1 << 20}));
  Result<RegionInfo::Ticket> ticket;
  // On a thread of its own, since the kernel no longer lets one that had other rights manage
  // connections.
  std::thread([&] {
    const LittleLockedMemory little(4096);
    ticket = (*transport)->expose(*region);
  }).join();
  REQUIRE_FALSE(ticket.has_value());
  REQUIRE(ticket.error().code == ErrorCode::refused);
  INFO(ticket.error().text);
  REQUIRE(ticket.error().text.starts_with("can't register 1048576 bytes of memory with rxe0"));
  REQUIRE(ticket.error().text.find("may lock 4096 bytes") != std::string::npos);
  REQUIRE(ticket.error().text.find("`ulimit -l unlimited`") != std::string::npos);
  REQUIRE((*transport)->expose(*region).has_value());
}

}  // namespace weir
