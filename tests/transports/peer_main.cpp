// weir_transport_peer TRANSPORT KIND BYTES: exposes one region, prints its ticket in hexadecimal,
// and obeys one command a line: "fill ROUND" or "withdraw", each answered with "ok".

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "runtime/region.hpp"
#include "tests/transports/peer_process.hpp"
#include "transports/shm/shm_transport.hpp"

namespace {

void fill(const weir::Region& region, std::uint64_t round) {
  const std::span<std::byte> bytes = region.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = weir::peer_byte(round, i);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || std::string(argv[1]) != "shm") return 2;
  const auto shared = std::string(argv[2]) == name_of(weir::RegionKind::host_shared);
  const auto region = weir::Region::allocate(
      {.kind = shared ? weir::RegionKind::host_shared : weir::RegionKind::host_private,
       .bytes = std::stoull(argv[3])});
  if (!region) return 1;
  fill(**region, 0);
  const auto transport = weir::make_shm_transport({.worker_count = 1});
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
