// weir_transport_peer TRANSPORT KIND BYTES: exposes one region, prints its ticket in hexadecimal,
// and obeys one command a line: "fill ROUND" or "withdraw", each answered with "ok".
// TRANSPORT is "shm" or "rdma:DEVICE[,DEVICE...]".

#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/region.hpp"
#include "tests/transports/peer_process.hpp"
#include "transports/rdma/rdma_transport.hpp"
#include "transports/shm/shm_transport.hpp"

namespace {

void fill(const weir::Region& region, std::uint64_t round) {
  const std::span<std::byte> bytes = region.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = weir::peer_byte(round, i);
}

std::unique_ptr<weir::Transport> make_transport(const std::string& words) {
  if (words == "shm") return weir::make_shm_transport({.worker_count = 1});
  if (!words.starts_with("rdma:")) return nullptr;
  weir::RdmaOptions options;
  std::istringstream devices(words.substr(5));
  for (std::string device; std::getline(devices, device, ',');) options.devices.push_back(device);
  auto transport = weir::make_rdma_transport(options);
  if (!transport) std::fprintf(stderr, "%s\n", transport.error().text.c_str());
  return transport ? *std::move(transport) : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto shared = std::string(argv[2]) == name_of(weir::RegionKind::host_shared);
  const auto region = weir::Region::allocate(
      {.kind = shared ? weir::RegionKind::host_shared : weir::RegionKind::host_private,
       .bytes = std::stoull(argv[3])});
  if (!region) return 1;
  fill(**region, 0);
  const auto transport = make_transport(argv[1]);
  if (!transport) return 2;
  const auto ticket = transport->expose(**region);
  if (!ticket) return 1;
  for (const char byte : ticket->bytes) {
    std::printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  std::printf("\n");
  std::fflush(stdout);
  std::string command;
  while (std::getline(std::cin, command)) {
    if (command == "withdraw") {
      transport->withdraw(**region);
    } else if (command.starts_with("fill ")) {
      // Reader and owner agree over pipes on whose turn it is, which a race detector can't see
      // from within one process; the lock that `expose` takes it can.
      if (!transport->expose(**region)) return 1;
      fill(**region, std::stoull(command.substr(5)));
      if (!transport->expose(**region)) return 1;
    } else {
      return 2;
    }
    std::printf("ok\n");
    std::fflush(stdout);
  }
  return 0;
}
