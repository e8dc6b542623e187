#pragma once
// What every transport must do, as checks that run against any of them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/manifest.hpp"
#include "transports/transport.hpp"

namespace weir {

/// One transport in one way of use.
struct TransportSubject {
  std::string name;  ///< As `weir_transport_peer` knows it: "shm", "rdma:DEVICE".
  RegionKind source_kind = RegionKind::host_private;
  /// Makes the reader's end.
  std::function<std::unique_ptr<Transport>()> make;
};

/// A claim and the check of it, which fails by Catch2's macros.
struct ContractCheck {
  std::string claim;
  std::function<void(const TransportSubject&)> run;
};

/// All of them. No fetch takes longer than 30 seconds before its check fails: some machines are
/// emulated.
std::vector<ContractCheck> transport_contract();

}  // namespace weir
