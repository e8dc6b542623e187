#include "transports/shm/shm_transport.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "tests/transports/contract_rig.hpp"
#include "tests/transports/transport_contract.hpp"

namespace weir {

// Goal: shared memory is a transport like any other, in each of its three ways. Method: the
// transport contract, with peers in processes of their own.

namespace {

std::unique_ptr<Transport> make_direct() {
  return make_shm_transport({.worker_count = 2});
}

std::unique_ptr<Transport> make_staged() {
  return make_shm_transport({.worker_count = 2,
                             .staging_only = true,
                             .staging_deadline = std::chrono::milliseconds(1500)});
}

void check_contract(const TransportSubject& subject) {
  for (const ContractCheck& check : transport_contract()) {
    DYNAMIC_SECTION(check.claim) {
      check.run(subject);
    }
  }
}

}  // namespace

TEST_CASE("mapped regions keep the transport contract", "[transports]") {
  check_contract({.name = "shm", .source_kind = RegionKind::host_shared, .make = make_direct});
}

TEST_CASE("private regions read by the kernel keep the transport contract", "[transports]") {
  check_contract({.name = "shm", .source_kind = RegionKind::host_private, .make = make_direct});
}

TEST_CASE("staged regions keep the transport contract", "[transports]") {
  check_contract({.name = "shm", .source_kind = RegionKind::host_private, .make = make_staged});
}

TEST_CASE("shared memory serves host memory only", "[transports]") {
  const auto transport = make_direct();
  REQUIRE(transport->name() == "shm");
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    REQUIRE(transport->reads(kind));
    REQUIRE(transport->writes(kind));
  }
  REQUIRE_FALSE(transport->reads(RegionKind::device));
  REQUIRE_FALSE(transport->writes(RegionKind::device));
}

}  // namespace weir
