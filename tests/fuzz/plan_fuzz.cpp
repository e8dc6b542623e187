// Goal: no bytes from a peer that claim to be a plan crash or hang Weir, and those that are one
// mean the same after another trip.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/assert.hpp"
#include "runtime/codec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plan = weir::decode_plan(std::as_bytes(std::span(data, size)));
  if (!plan) return 0;
  const std::string encoded = weir::encode(*plan);
  const auto again = weir::decode_plan(std::as_bytes(std::span(encoded)));
  WEIR_ASSERT(again == *plan);
  WEIR_ASSERT(weir::encode(*again) == encoded);
  WEIR_ASSERT(weir::digest_of(*again) == weir::digest_of(*plan));
  for (const weir::PlanPart& part : plan->parts) {
    for (const weir::Copy& copy : part.copies) {
      WEIR_ASSERT(weir::source_bytes(copy) > 0 && weir::target_bytes(copy) > 0);
    }
  }
  return 0;
}
