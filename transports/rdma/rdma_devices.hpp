#pragma once
// Which RDMA devices this host has, for a person who wants to know what a transport would use.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.hpp"

namespace weir {

/// A device as the transport sees it: one port, under one address.
struct RdmaDevice {
  std::string name;
  std::string address;
  bool active = false;                    ///< Whether the port is up.
  std::uint64_t megabits_per_second = 0;  ///< 0 where it is not known.
  std::string gid;                        ///< "GID 1, RoCE v2"; empty where it is not known.
  std::uint64_t message_bytes_max = 0;
  std::uint32_t reads_in_flight_max = 0;  ///< Of one connection.
  bool dma_buf = false;                   ///< Whether it can register a GPU's memory.
};

/// All of them, sorted by name. Errors: as `make_rdma_transport`.
Result<std::vector<RdmaDevice>> rdma_devices();

}  // namespace weir
