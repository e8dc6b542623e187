// Goal: no bytes whatever make the header's parser crash, and what it accepts keeps its promises.
// Method: libFuzzer; each accepted file is checked against the rules anew, planned for writing, and
// parsed again from what was planned.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "adapters/safetensors/internal/file_plan.hpp"
#include "adapters/safetensors/internal/header.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

/// The tensors' bytes, counted anew, lie within the file and never on one another.
void check_places(const std::vector<PlacedTensor>& tensors, std::uint64_t file_bytes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const PlacedTensor& placed : tensors) {
    WEIR_ASSERT(placed.end - placed.begin == bytes_of(placed.tensor));
    places.emplace_back(placed.begin, placed.end);
  }
  std::sort(places.begin(), places.end());
  std::uint64_t end = 0;
  for (const auto& [begin, next] : places) {
    WEIR_ASSERT(begin >= end && next >= begin && next <= file_bytes);
    end = next;
  }
}

/// What was read can be written, and is then read as the same.
void check_round_trip(const SafetensorsHeader& header) {
  std::vector<FileTensor> tensors;
  for (const PlacedTensor& placed : header.tensors) tensors.push_back(placed.tensor);
  const auto plan = plan_safetensors_file(tensors, header.metadata);
  WEIR_ASSERT(plan.has_value());
  std::vector<std::byte> file(plan->file_bytes);
  std::copy_n(reinterpret_cast<const std::byte*>(plan->head.data()), plan->head.size(),
              file.begin());
  const auto again = parse_safetensors_header(file);
  WEIR_ASSERT(again.has_value() && again->metadata == header.metadata);
  WEIR_ASSERT(again->tensors.size() == tensors.size());
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    WEIR_ASSERT(again->tensors[index].tensor == tensors[index]);
    WEIR_ASSERT(again->tensors[index].begin == plan->begins[index]);
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir;
  const auto header = parse_safetensors_header(std::as_bytes(std::span(data, size)));
  if (!header) {
    // One line, so that a hostile name cannot forge another.
    WEIR_ASSERT(!header.error().text.empty());
    WEIR_ASSERT(header.error().text.find('\n') == std::string::npos);
    return 0;
  }
  check_places(header->tensors, size);
  check_round_trip(*header);
  return 0;
}
