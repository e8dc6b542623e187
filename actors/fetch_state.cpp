#include "actors/fetch_state.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/assert.hpp"
#include "runtime/strided_copy.hpp"

namespace weir {
namespace {

tl::unexpected<Error> invalid(const std::string& text) {
  return failure(ErrorCode::invalid, text);
}

/// One source's copies, in chunks.
class ChunkWriter {
 public:
  ChunkWriter(const PlanSource& source, std::uint64_t bytes_max) : bytes_max_(bytes_max) {
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < regions_per_slot(source.regions.size(), source.slots); ++i) {
      region_begins_.push_back(begin);
      begin += source.regions[i].bytes;
    }
  }

  void add(const Copy& copy) {
    if (target_bytes(copy) <= bytes_max_) {
      parts_.push_back(copy);
      return;
    }
    for (const Copy& part : split(copy, bytes_max_)) parts_.push_back(part);
  }

  std::vector<Chunk> take() {
    std::stable_sort(parts_.begin(), parts_.end(),
                     [this](const Copy& a, const Copy& b) { return end_of(a) < end_of(b); });
    std::vector<Chunk> chunks;
    for (const Copy& part : parts_) {
      const std::uint64_t bytes = target_bytes(part);
      if (chunks.empty() || chunks.back().bytes + bytes > bytes_max_) {
        chunks.push_back({part.source, 0, 0, {}});
      }
      chunks.back().bytes += bytes;
      chunks.back().reach = end_of(part);
      chunks.back().copies.push_back(part);
    }
    return chunks;
  }

 private:
  /// Strides are positive: the last element ends last.
  [[nodiscard]] std::uint64_t end_of(const Copy& copy) const {
    std::uint64_t end =
        region_begins_[copy.source_region] + copy.source_offset + size_of(copy.source_type);
    for (int dim = 0; dim < copy.extent.rank(); ++dim) {
      end += static_cast<std::uint64_t>((copy.extent[dim] - 1) * copy.source_stride[dim]);
    }
    return end;
  }

  std::uint64_t bytes_max_;
  std::vector<std::uint64_t> region_begins_;  ///< In the slot.
  std::vector<Copy> parts_;
};

/// A chunk's place in the common order: chunk `number` of `count` of its source.
struct Place {
  std::uint64_t number;
  std::uint64_t count;
  std::size_t turn;  ///< Of its source, among those that are equally far.
  Chunk* chunk;

  /// By the share of its source's chunks that lies before the middle of this one.
  bool operator<(const Place& other) const noexcept {
    const std::uint64_t mine = (2 * number + 1) * other.count;
    const std::uint64_t others = (2 * other.number + 1) * count;
    return mine != others ? mine < others : turn < other.turn;
  }
};

bool same_sizes(const std::vector<RegionInfo>& a, std::size_t count,
                const std::vector<RegionInfo>& b) {
  for (std::size_t i = 0; i < count; ++i) {
    if (a[i].bytes != b[i].bytes) return false;
  }
  return true;
}

bool are_slots(const std::vector<RegionInfo>& regions, std::uint32_t slots) {
  if (slots == 0 || slots > slots_max || regions.size() % slots != 0) return false;
  const std::size_t in_slot = regions_per_slot(regions.size(), slots);
  for (std::size_t i = in_slot; i < regions.size(); ++i) {
    if (regions[i].bytes != regions[i - in_slot].bytes) return false;
  }
  return true;
}

Result<void> check_peer(const FetchRoutes& routes, const TargetShape& target) {
  if (!are_slots(routes.peer_regions, routes.peer_slots)) {
    return invalid(text_of(routes.peer) + " has regions that do not make up its slots");
  }
  const std::size_t in_slot = regions_per_slot(routes.peer_regions.size(), routes.peer_slots);
  const auto equal = [](const RegionInfo& region, std::uint64_t bytes) {
    return region.bytes == bytes;
  };
  const auto first = routes.peer_regions.begin();
  if (!std::equal(first, first + static_cast<std::ptrdiff_t>(in_slot), target.region_bytes.begin(),
                  target.region_bytes.end(), equal)) {
    return invalid(text_of(routes.peer) + " has other regions than we: it can't stand in");
  }
  return {};
}

}  // namespace

std::vector<Chunk> chunks_of(const PlanPart& part, const std::vector<PlanSource>& sources,
                             std::uint64_t bytes_max) {
  const std::size_t source_count = sources.size();
  std::vector<ChunkWriter> writers;
  writers.reserve(source_count);
  for (const PlanSource& source : sources) {
    writers.emplace_back(source, std::max<std::uint64_t>(bytes_max, 1));
  }
  for (const Copy& copy : part.copies) {
    WEIR_ASSERT(copy.source < source_count);
    writers[copy.source].add(copy);
  }
  std::vector<std::vector<Chunk>> by_source;
  by_source.reserve(source_count);
  for (ChunkWriter& writer : writers) by_source.push_back(writer.take());

  std::vector<Place> places;
  for (std::size_t source = 0; source < source_count; ++source) {
    const std::size_t first = (std::size_t{part.target.rank} + part.target.replica) % source_count;
    const std::size_t turn = (source + source_count - first) % source_count;
    for (std::size_t i = 0; i < by_source[source].size(); ++i) {
      places.push_back({i, by_source[source].size(), turn, &by_source[source][i]});
    }
  }
  std::sort(places.begin(), places.end());
  std::vector<Chunk> chunks;
  chunks.reserve(places.size());
  for (const Place& place : places) chunks.push_back(std::move(*place.chunk));
  return chunks;
}

Result<void> check_part(const Plan& plan, const TargetShape& target) {
  if (plan.parts.size() != 1) {
    return invalid("a plan of " + std::to_string(plan.parts.size()) + " parts is not one of one");
  }
  for (const PlanSource& source : plan.sources) {
    if (!are_slots(source.regions, source.slots)) {
      return invalid(text_of(source.shard) + " has regions that do not make up its slots");
    }
  }
  for (const Copy& copy : plan.parts.front().copies) {
    if (copy.source >= plan.sources.size()) {
      return invalid("a copy is from source " + std::to_string(copy.source) + " of " +
                     std::to_string(plan.sources.size()));
    }
    const PlanSource& source = plan.sources[copy.source];
    if (copy.source_region >= regions_per_slot(source.regions.size(), source.slots) ||
        copy.target_region >= target.region_bytes.size()) {
      return invalid("a copy from " + text_of(source.shard) + " names a region that is not there");
    }
    auto within = check_bounds(copy, source.regions[copy.source_region].bytes,
                               target.region_bytes[copy.target_region]);
    if (!within) return within;
  }
  return {};
}

Result<void> check(const FetchRoutes& routes, const std::vector<PlanSource>& sources,
                   const TargetShape& target) {
  if (routes.by_source.size() != sources.size()) {
    return invalid(std::to_string(routes.by_source.size()) + " routes for " +
                   std::to_string(sources.size()) + " sources");
  }
  if (routes.target_slot >= target.slots) {
    return invalid("target slot " + std::to_string(routes.target_slot) + " of " +
                   std::to_string(target.slots));
  }
  if (!routes.stands.empty() && routes.stands.size() != sources.size()) {
    return invalid("word of " + std::to_string(routes.stands.size()) + " of " +
                   std::to_string(sources.size()) + " sources");
  }
  bool from_peer = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Route& route = routes.by_source[i];
    from_peer = from_peer || route.peer;
    if (!route.peer && route.source >= sources.size()) {
      return invalid("a route leads to source " + std::to_string(route.source) + " of " +
                     std::to_string(sources.size()));
    }
    const std::uint32_t slots = route.peer ? routes.peer_slots : sources[route.source].slots;
    const ShardId& shard = route.peer ? routes.peer : sources[route.source].shard;
    if (route.slot >= slots) {
      return invalid("a route leads to slot " + std::to_string(route.slot) + " of " +
                     text_of(shard) + ", which has " + std::to_string(slots));
    }
    if (route.peer) continue;
    const auto& own = sources[i];
    const auto& other = sources[route.source];
    const std::size_t in_slot = regions_per_slot(own.regions.size(), own.slots);
    if (in_slot != regions_per_slot(other.regions.size(), other.slots) ||
        !same_sizes(own.regions, in_slot, other.regions)) {
      return invalid(text_of(other.shard) + " has other regions than " + text_of(own.shard) +
                     ": it can't stand in");
    }
  }
  return from_peer ? check_peer(routes, target) : Result<void>{};
}

PlanSource read_by(const Route& route, const FetchRoutes& routes,
                   const std::vector<PlanSource>& sources) {
  if (route.peer) return {routes.peer, routes.peer_regions, routes.peer_slots};
  return sources[route.source];
}

std::vector<Copy> copies_along(const Chunk& chunk, bool peer) {
  std::vector<Copy> copies = chunk.copies;
  for (Copy& copy : copies) {
    copy.source = 0;
    if (!peer) continue;
    copy.source_region = copy.target_region;
    copy.source_type = copy.target_type;
    copy.source_offset = copy.target_offset;
    copy.source_stride = copy.target_stride;
  }
  return copies;
}

FetchState::FetchState(std::vector<Chunk> chunks, std::uint64_t window_bytes_max)
    : chunks_(std::move(chunks)),
      window_bytes_max_(window_bytes_max),
      progress_(chunks_.size(), Progress::to_do) {}

void FetchState::begin(const FetchClaim& claim, const FetchRoutes& routes) {
  WEIR_ASSERT(in_flight_.empty() && bytes_in_flight_ == 0);
  routes_ = routes.by_source;
  stands_.assign(routes_.size(), routes.stands.empty() ? everything : 0);
  if (!routes.stands.empty()) stand(routes.stands);
  if (claim_ == claim) return;
  claim_ = claim;
  progress_.assign(chunks_.size(), Progress::to_do);
  first_to_do_ = 0;
  bytes_done_ = 0;
  chunks_done_ = 0;
}

void FetchState::stand(const std::vector<std::uint64_t>& stands) {
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    const std::uint64_t bytes = routes_[i].peer ? everything : stands.at(routes_[i].source);
    stands_[i] = std::max(stands_[i], bytes);
  }
}

std::optional<std::uint32_t> FetchState::waits_for() const noexcept {
  const auto found = std::find_if(stands_.begin(), stands_.end(),
                                  [](std::uint64_t bytes) { return bytes != everything; });
  if (found == stands_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - stands_.begin());
}

std::optional<std::size_t> FetchState::start_next(std::uint64_t start) {
  WEIR_ASSERT(claim_.has_value());
  while (first_to_do_ < chunks_.size() && progress_[first_to_do_] != Progress::to_do) {
    ++first_to_do_;
  }
  std::size_t next = first_to_do_;
  while (next < chunks_.size() && (progress_[next] != Progress::to_do || !stands(chunks_[next]))) {
    ++next;
  }
  if (next == chunks_.size()) return std::nullopt;
  const std::uint64_t bytes = chunks_[next].bytes;
  const std::uint64_t room = window_bytes_max_ - std::min(window_bytes_max_, bytes_in_flight_);
  if (!in_flight_.empty() && bytes > room) return std::nullopt;
  const bool fresh = in_flight_.emplace(start, next).second;
  WEIR_ASSERT(fresh);
  bytes_in_flight_ += bytes;
  progress_[next] = Progress::in_flight;
  return next;
}

std::optional<std::size_t> FetchState::end(std::uint64_t start, bool moved) {
  const auto found = in_flight_.find(start);
  if (found == in_flight_.end()) return std::nullopt;
  const std::size_t chunk = found->second;
  in_flight_.erase(found);
  bytes_in_flight_ -= chunks_[chunk].bytes;
  progress_[chunk] = moved ? Progress::done : Progress::to_do;
  if (moved) {
    bytes_done_ += chunks_[chunk].bytes;
    ++chunks_done_;
  } else {
    first_to_do_ = std::min(first_to_do_, chunk);
  }
  return chunk;
}

}  // namespace weir
