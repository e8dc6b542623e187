// `weir doctor`: what of this host members of an exchange would use to reach each other, and what
// is in their way.

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"
#include "transports/rdma/rdma_devices.hpp"

namespace weir::cli {
namespace {

std::string rate_text(const RdmaDevice& device) {
  if (device.megabits_per_second == 0) return "rate not known";
  return std::to_string(device.megabits_per_second / 1000) + " Gb/s";
}

void tell_rdma(const Result<std::vector<RdmaDevice>>& devices, Console& console) {
  console.out << "RDMA devices\n";
  if (!devices) {
    console.out << "  none: " << devices.error().text << "\n";
    return;
  }
  for (const RdmaDevice& device : *devices) {
    console.out << "  " << device.name << " (" << device.address
                << "): " << (device.active ? "up" : "DOWN: see to its link") << ", "
                << rate_text(device) << ", " << (device.gid.empty() ? "GID not known" : device.gid)
                << ", messages of " << bytes_text(static_cast<double>(device.message_bytes_max))
                << ", " << device.reads_in_flight_max << " reads at once, "
                << (device.dma_buf ? "can register device memory"
                                   : "can't register device memory (no dma-buf)")
                << "\n";
  }
}

void tell_locked_memory(Console& console) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  console.out << "Locked memory (RDMA locks what it registers, once for each device)\n  ";
  if (limit.rlim_cur == RLIM_INFINITY) {
    console.out << "no limit\n";
  } else {
    console.out << bytes_text(static_cast<double>(limit.rlim_cur))
                << " unless a process is root's: allow more with `ulimit -l unlimited`, in "
                   "/etc/security/limits.conf, with LimitMEMLOCK=infinity in a systemd unit, or "
                   "with --ulimit memlock=-1 for a container\n";
  }
}

Result<void> examine(Console& console) {
  const Result<std::vector<RdmaDevice>> devices = rdma_devices();
  tell_rdma(devices, console);
  tell_locked_memory(console);
  const auto up = [](const RdmaDevice& device) { return device.active; };
  const bool usable = devices && std::any_of(devices->begin(), devices->end(), up);
  console.out << "What two members use\n"
                 "  on one host: shm, one copy through memory; rdma on request\n"
              << (usable ? "  on two hosts: rdma, by each pair of devices that share a subnet\n"
                         : "  on two hosts: nothing yet, since there is no RDMA device that is "
                           "up\n");
  return {};
}

}  // namespace

Action declare_doctor(CLI::App& app) {
  app.description(
      "Says which RDMA devices this host has and how they stand, how much memory may be locked,\n"
      "and what members of an exchange would use to reach each other.");
  return examine;
}

}  // namespace weir::cli
