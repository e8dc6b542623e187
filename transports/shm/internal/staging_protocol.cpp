#include "transports/shm/internal/staging_protocol.hpp"

namespace weir::shm {

std::string staging_name(const ProcessId& owner, std::uint64_t endpoint) {
  return "weir-shm-" + std::to_string(owner.pid) + "-" + std::to_string(owner.start_time) + "-" +
         std::to_string(endpoint);
}

std::optional<Runs> runs_of(const StagingRequest& request, std::uint64_t region_bytes) noexcept {
  if (request.slot >= staging_slots || request.rank > rank_max || request.run_bytes == 0) {
    return std::nullopt;
  }
  Runs runs{.source_offset = request.offset,
            .target_offset = request.slot * staging_slot_bytes,
            .run_bytes = request.run_bytes,
            .rank = static_cast<std::uint32_t>(request.rank)};
  std::uint64_t packed = request.run_bytes;
  std::uint64_t end = 0;
  bool wrong = __builtin_add_overflow(request.offset, request.run_bytes, &end);
  for (std::size_t dim = runs.rank; dim > 0; --dim) {
    const std::uint64_t extent = request.extent[dim - 1];
    const std::uint64_t stride = request.stride[dim - 1];
    if (extent == 0) return std::nullopt;
    runs.extent[dim - 1] = extent;
    runs.source_stride[dim - 1] = stride;
    runs.target_stride[dim - 1] = packed;
    std::uint64_t reach = 0;
    wrong |= __builtin_mul_overflow(extent - 1, stride, &reach);
    wrong |= __builtin_add_overflow(end, reach, &end);
    wrong |= __builtin_mul_overflow(packed, extent, &packed);
  }
  if (wrong || end > region_bytes || packed > staging_slot_bytes) return std::nullopt;
  return runs;
}

}  // namespace weir::shm
