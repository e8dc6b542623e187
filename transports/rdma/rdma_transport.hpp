#pragma once
// RDMA: the network card reads a peer's memory straight into the target.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.hpp"
#include "transports/transport.hpp"

namespace weir {

struct RdmaOptions {
  /// Names ("mlx5_0") or addresses ("10.0.0.1") of the devices to use, each of them a rail over
  /// which bytes are spread. Empty: all that have an address. An address also decides the GID.
  std::vector<std::string> devices = {};
  /// Threads that unpack and report; 0 means one per core that this process may run on.
  unsigned worker_count = 1;
  /// Told when a rail fails while others go on, and when it is back: a line for the log, on a
  /// thread of the transport. May be empty.
  std::function<void(std::string_view)> note = {};
};

/// Host memory over reliable connections, which are made when a fetch first needs them. Regions and
/// targets are registered with every device used, which locks them in memory.
/// Errors: `refused` (this build or this host has no RDMA), `not_found` (no such device), `io`.
Result<std::unique_ptr<Transport>> make_rdma_transport(const RdmaOptions& options);

}  // namespace weir
