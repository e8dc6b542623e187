#include "transports/rdma/rdma_transport.hpp"

#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "tests/transports/contract_rig.hpp"
#include "tests/transports/transport_contract.hpp"
#include "transports/rdma/rdma_devices.hpp"

namespace weir {

// Goal: RDMA is a transport like any other, within one device and across two cables at once.
// Method: the transport contract, in the virtual machine of tests/rdma.

namespace {

TransportSubject subject(const std::string& peer, const std::vector<std::string>& devices,
                         RegionKind kind) {
  return {.name = "rdma:" + peer, .source_kind = kind, .make = [devices] {
            auto transport = make_rdma_transport({.devices = devices, .worker_count = 2});
            if (!transport) FAIL(transport.error().text);
            return *std::move(transport);
          }};
}

void check_contract(const TransportSubject& subject) {
  for (const ContractCheck& check : transport_contract()) {
    DYNAMIC_SECTION(check.claim) {
      check.run(subject);
    }
  }
}

}  // namespace

TEST_CASE("a device that reads from itself keeps the transport contract", "[rdma]") {
  check_contract(subject("rxe0", {"rxe0"}, RegionKind::host_private));
}

TEST_CASE("reads across two cables keep the transport contract", "[rdma]") {
  check_contract(subject("rxe1,rxe3", {"10.77.0.1", "10.78.0.1"}, RegionKind::host_shared));
}

TEST_CASE("rdma serves host memory only", "[rdma]") {
  const auto transport = make_rdma_transport({});
  REQUIRE(transport.has_value());
  REQUIRE((*transport)->name() == "rdma");
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    REQUIRE((*transport)->reads(kind));
    REQUIRE((*transport)->writes(kind));
  }
  REQUIRE_FALSE((*transport)->reads(RegionKind::device));
  REQUIRE_FALSE((*transport)->writes(RegionKind::device));
}

TEST_CASE("the devices are listed as they are", "[rdma]") {
  const auto devices = rdma_devices();
  REQUIRE(devices.has_value());
  REQUIRE(devices->size() == 4);
  REQUIRE(devices->front().name == "rxe0");
  REQUIRE(devices->front().address == "10.77.0.1");
  REQUIRE(devices->front().gid == "GID 1, RoCE v2");
  REQUIRE(devices->front().message_bytes_max == 8 << 20);
  for (const RdmaDevice& device : *devices) {
    REQUIRE(device.active);
    REQUIRE_FALSE(device.dma_buf);
  }
}

TEST_CASE("an rdma device that is not there is named, and those that are", "[rdma]") {
  const auto transport = make_rdma_transport({.devices = {"rxe0", "mlx5_7"}});
  REQUIRE_FALSE(transport.has_value());
  REQUIRE(transport.error().code == ErrorCode::not_found);
  INFO(transport.error().text);
  REQUIRE(transport.error().text.starts_with(
      "no RDMA device has the name or address mlx5_7 here; there are rxe"));
  REQUIRE(transport.error().text.find("rxe3 (10.78.0.2)") != std::string::npos);
}

}  // namespace weir
