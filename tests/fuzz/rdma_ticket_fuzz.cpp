// Goal: no bytes that claim to be an rdma ticket lead Weir astray. One that parses encodes to the
// same bytes.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/assert.hpp"
#include "transports/rdma/internal/ticket.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto ticket = weir::rdma::parse_ticket(bytes)) {
    WEIR_ASSERT(weir::rdma::encode(*ticket) == bytes);
  }
  return 0;
}
