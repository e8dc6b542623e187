#pragma once
// Small manifests by hand, for tests of the planner.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"

namespace weir::testing {

inline constexpr auto bf16 = ElementType::bf16;
inline constexpr auto f32 = ElementType::f32;

/// A shard whose pieces lie one after another in region 0, dense unless strides are given.
class Shard {
 public:
  Shard(Side side, std::uint32_t replica, std::uint32_t rank, std::uint32_t ranks) {
    manifest_.shard = {side, replica, rank};
    manifest_.replica_ranks = ranks;
    manifest_.regions = {{RegionKind::host_shared, 0, {{"shm", "ticket"}}}};
  }

  Shard& add(const std::string& name, const Dims& shape, const Box& box, ElementType type = bf16) {
    const Dims stride = dense_strides(box.extent, static_cast<std::int64_t>(size_of(type)));
    const std::uint64_t offset = manifest_.regions[0].bytes;
    manifest_.regions[0].bytes +=
        static_cast<std::uint64_t>(element_count(box.extent)) * size_of(type);
    return put(name, shape, box, offset, stride, type);
  }
  Shard& add(const std::string& name, const Dims& shape, ElementType type = bf16) {
    return add(name, shape, Box::whole(shape), type);
  }
  /// At a place of its own; the region must be long enough.
  Shard& put(const std::string& name, const Dims& shape, const Box& box, std::uint64_t offset,
             const Dims& stride, ElementType type = bf16) {
    std::uint32_t index = 0;
    while (index < manifest_.tensors.size() && manifest_.tensors[index].name != name) ++index;
    if (index == manifest_.tensors.size()) {
      manifest_.tensors.push_back({name, type, shape, TensorKind::parameter});
    }
    manifest_.pieces.push_back({index, 0, offset, box, stride});
    return *this;
  }
  Shard& bytes(std::uint64_t bytes) {
    manifest_.regions[0].bytes = bytes;
    return *this;
  }
  Shard& alias(const std::string& name, const std::string& of) {
    manifest_.aliases.push_back({name, of});
    return *this;
  }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

 private:
  Manifest manifest_;
};

inline Shard trainer(std::uint32_t replica = 0, std::uint32_t rank = 0, std::uint32_t ranks = 1) {
  return {Side::trainer, replica, rank, ranks};
}
inline Shard rollout(std::uint32_t replica = 0, std::uint32_t rank = 0, std::uint32_t ranks = 1) {
  return {Side::rollout, replica, rank, ranks};
}

/// The manifests, each with the inventory of its replica.
inline std::vector<Manifest> members(const std::vector<Shard>& shards) {
  std::map<std::pair<Side, std::uint32_t>, std::vector<Tensor>> tensors;
  const auto key = [](const Manifest& m) { return std::pair(m.shard.side, m.shard.replica); };
  for (const Shard& shard : shards) {
    auto& all = tensors[key(shard.manifest())];
    for (const Tensor& tensor : shard.manifest().tensors) {
      const bool known = std::any_of(all.begin(), all.end(),
                                     [&](const Tensor& t) { return t.name == tensor.name; });
      if (!known) all.push_back(tensor);
    }
  }
  std::vector<Manifest> manifests;
  for (const Shard& shard : shards) {
    manifests.push_back(shard.manifest());
    manifests.back().inventory = inventory_of(tensors[key(shard.manifest())]);
  }
  return manifests;
}

/// By source.
inline std::vector<std::uint64_t> served_bytes(const Plan& plan) {
  std::vector<std::uint64_t> served(plan.sources.size());
  for (const PlanPart& part : plan.parts) {
    for (const Copy& copy : part.copies) served[copy.source] += source_bytes(copy);
  }
  return served;
}

}  // namespace weir::testing
