// Goal: no bytes that claim to be a shm ticket, and no request that claims to be a reader's, lead
// Weir astray. A ticket that parses encodes to the same bytes; the runs of a request that is
// granted all lie within the region and within their slot.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/assert.hpp"
#include "transports/shm/internal/staging_protocol.hpp"
#include "transports/shm/internal/ticket.hpp"

namespace {

void check_request(const std::uint8_t* data, std::size_t size) {
  weir::shm::StagingRequest request;
  std::memcpy(&request, data, size < sizeof request ? size : sizeof request);
  constexpr std::uint64_t region_bytes = 1000;
  const auto runs = weir::shm::runs_of(request, region_bytes);
  if (!runs) return;
  const std::uint64_t slot = request.slot * weir::shm::staging_slot_bytes;
  weir::for_each_run(*runs, [&](std::uint64_t from, std::uint64_t to) {
    WEIR_ASSERT(from < region_bytes && runs->run_bytes <= region_bytes - from);
    WEIR_ASSERT(to >= slot && to + runs->run_bytes <= slot + weir::shm::staging_slot_bytes);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto ticket = weir::shm::parse_ticket(bytes)) {
    WEIR_ASSERT(weir::shm::encode(*ticket) == bytes);
  }
  check_request(data, size);
  return 0;
}
