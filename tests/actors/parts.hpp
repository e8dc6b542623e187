#pragma once
// Small parts of plans, for tests of how they are fetched.

#include <cstdint>
#include <utility>
#include <vector>

#include "actors/fetch_state.hpp"

namespace weir::parts {

inline constexpr std::uint32_t source_count = 5;
inline constexpr FetchClaim claim{1, 1, 1, 0};

/// One source after another: `bytes[i]` contiguous bytes from source i.
inline PlanPart part_of(const std::vector<std::int64_t>& bytes, std::uint32_t rank = 0) {
  std::vector<Copy> copies;
  std::uint64_t offset = 0;
  for (std::uint32_t source = 0; source < bytes.size(); ++source) {
    Copy copy;
    copy.source = source;
    copy.source_type = copy.target_type = ElementType::u8;
    copy.target_offset = offset;
    copy.extent = {bytes[source]};
    copy.source_stride = copy.target_stride = {1};
    copies.push_back(copy);
    offset += static_cast<std::uint64_t>(bytes[source]);
  }
  return {{Side::rollout, 0, rank}, std::move(copies)};
}

/// Two regions each, larger than any copy reaches.
inline std::vector<PlanSource> sources(std::size_t count) {
  const RegionInfo region{RegionKind::host_private, 1'000'000, {}};
  std::vector<PlanSource> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    all.push_back({{Side::trainer, 0, i}, {region, region}, 1});
  }
  return all;
}

/// Each source itself; of each, so many bytes stand, or everything.
inline FetchRoutes routes(std::vector<std::uint64_t> stands = {}) {
  FetchRoutes routes;
  for (std::uint32_t i = 0; i < source_count; ++i) routes.by_source.push_back({i, 0, false});
  if (!stands.empty()) stands.resize(source_count, everything);
  routes.stands = std::move(stands);
  return routes;
}

}  // namespace weir::parts
