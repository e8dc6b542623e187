// Goal: no bytes from a peer that claim to be a manifest crash or hang Weir, and those that are one
// mean the same after another trip. What decodes is also planned, against itself, since a manifest
// that passes its own check is all that the planner asks for.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/assert.hpp"
#include "runtime/codec.hpp"
#include "runtime/planner.hpp"

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// The shard as a whole replica of its own, on that side.
weir::Manifest alone(weir::Manifest manifest, weir::Side side) {
  manifest.shard = {side, 0, 0};
  manifest.replica_ranks = 1;
  manifest.inventory = weir::inventory_of(manifest.tensors);
  return manifest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = weir::decode_manifest(std::as_bytes(std::span(data, size)));
  if (!manifest) return 0;
  const std::string encoded = weir::encode(*manifest);
  WEIR_ASSERT(weir::decode_manifest(bytes_of(encoded)) == *manifest);
  WEIR_ASSERT(weir::encode(*weir::decode_manifest(bytes_of(encoded))) == encoded);

  const std::vector<weir::Manifest> members = {alone(*manifest, weir::Side::trainer),
                                               alone(*manifest, weir::Side::rollout)};
  const auto plan = weir::make_plan(members);
  if (!plan) return 0;
  WEIR_ASSERT(weir::decode_plan(bytes_of(weir::encode(*plan))) == *plan);
  return 0;
}
