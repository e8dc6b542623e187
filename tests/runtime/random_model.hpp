#pragma once
// Random models and random manifests of them, for tests that must not know any layout.

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/random.hpp"

namespace weir::testing {

/// A box of a tensor that some rank keeps.
struct Held {
  std::uint32_t tensor = 0;
  Box box;
};

/// Cuts a box at random places into disjoint boxes that fill it.
inline void cut(Random& random, const Box& box, int depth, std::vector<Box>& parts) {
  const int rank = box.start.rank();
  if (depth > 0 && rank > 0 && !random.chance(1, 3)) {
    const auto dim = static_cast<int>(random.below(static_cast<std::size_t>(rank)));
    if (box.extent[dim] > 1) {
      Box low = box;
      low.extent[dim] = random.between(1, box.extent[dim] - 1);
      Box high = box;
      high.start[dim] += low.extent[dim];
      high.extent[dim] -= low.extent[dim];
      cut(random, low, depth - 1, parts);
      cut(random, high, depth - 1, parts);
      return;
    }
  }
  parts.push_back(box);
}

/// Places pieces of equal extent and type in one block of memory: the dimensions in a random order
/// (transposed), a slot per piece at a random place among them (fused, interleaved), and sometimes
/// gaps (strided). Returns the first byte after the block.
inline std::uint64_t place(Random& random, Manifest& manifest, const std::vector<Held>& group,
                           std::uint32_t region, std::uint64_t offset) {
  const Dims& extent = group.front().box.extent;
  const int rank = extent.rank();
  std::vector<int> order(static_cast<std::size_t>(rank) + 1);  // `rank` stands for the slots.
  std::iota(order.begin(), order.end(), 0);
  if (random.chance(1, 2)) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  } else {
    std::rotate(order.begin(), order.end() - 1, order.end());
  }
  const Tensor& tensor = manifest.tensors[group.front().tensor];
  auto step = static_cast<std::int64_t>(size_of(tensor.type));
  std::int64_t slot_step = 0;
  Dims stride = Dims::filled(rank, 0);
  for (std::size_t i = order.size(); i-- > 0;) {
    if (random.chance(1, 8)) step += random.between(1, 9);
    (order[i] == rank ? slot_step : stride[order[i]]) = step;
    step *= order[i] == rank ? static_cast<std::int64_t>(group.size()) : extent[order[i]];
  }
  for (std::size_t slot = 0; slot < group.size(); ++slot) {
    const auto shift = static_cast<std::int64_t>(slot) * slot_step;
    manifest.pieces.push_back({group[slot].tensor, region,
                               offset + static_cast<std::uint64_t>(shift), group[slot].box,
                               stride});
  }
  return offset + static_cast<std::uint64_t>(step);
}

/// A manifest of these boxes, in one to three regions.
inline Manifest manifest_of(Random& random, const ShardId& shard, std::uint32_t ranks,
                            const std::vector<Tensor>& model, std::vector<Held> held) {
  Manifest manifest;
  manifest.shard = shard;
  manifest.replica_ranks = ranks;
  manifest.inventory = inventory_of(model);
  manifest.encodings = {{Encoding::Kind::plus_one}};
  std::vector<std::uint32_t> local(model.size());
  for (std::uint32_t tensor = 0; tensor < model.size(); ++tensor) {
    const bool here =
        std::any_of(held.begin(), held.end(), [&](const Held& h) { return h.tensor == tensor; });
    if (!here && !(element_count(model[tensor].shape) == 0 && shard.rank == 0)) continue;
    local[tensor] = static_cast<std::uint32_t>(manifest.tensors.size());
    manifest.tensors.push_back(model[tensor]);
  }
  for (Held& one : held) one.tensor = local[one.tensor];
  if (random.chance(1, 2)) {
    for (std::size_t i = held.size(); i > 1; --i) std::swap(held[i - 1], held[random.below(i)]);
  }
  std::array<std::uint64_t, 3> used{};
  const std::size_t regions = 1 + random.below(used.size());
  while (!held.empty()) {
    std::vector<Held> group = {held.back()};
    held.pop_back();
    while (!held.empty() && group.size() < 4 && random.chance(1, 2) &&
           held.back().box.extent == group[0].box.extent &&
           manifest.tensors[held.back().tensor].type == manifest.tensors[group[0].tensor].type) {
      group.push_back(held.back());
      held.pop_back();
    }
    const std::size_t region = random.below(regions);
    if (random.chance(1, 4)) used[region] += random.below(9);
    used[region] = place(random, manifest, group, static_cast<std::uint32_t>(region), used[region]);
  }
  for (std::size_t i = 0; i < regions; ++i) {
    manifest.regions.push_back({static_cast<RegionKind>(i), used[i], {{"shm", "ticket"}}});
  }
  return manifest;
}

/// One replica: every tensor cut at random, each part at a random rank, some at several.
inline std::vector<Manifest> replica_of(Random& random, Side side, std::uint32_t replica,
                                        const std::vector<Tensor>& model) {
  const auto ranks = static_cast<std::uint32_t>(random.between(1, 4));
  std::vector<std::vector<Held>> held(ranks);
  for (std::uint32_t tensor = 0; tensor < model.size(); ++tensor) {
    const Dims& shape = model[tensor].shape;
    if (element_count(shape) == 0) continue;
    std::vector<Box> parts;
    cut(random, Box::whole(shape), 4, parts);
    for (const Box& part : parts) {
      held[random.below(ranks)].push_back({tensor, part});
      if (random.chance(1, 4)) held[random.below(ranks)].push_back({tensor, part});
    }
    if (random.chance(1, 4)) {  // A box that overlaps others and agrees with none.
      parts.clear();
      cut(random, Box::whole(shape), 6, parts);
      held[random.below(ranks)].push_back({tensor, parts[random.below(parts.size())]});
    }
  }
  std::vector<Manifest> shards;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    shards.push_back(manifest_of(random, {side, replica, rank}, ranks, model, held[rank]));
  }
  return shards;
}

inline std::vector<Tensor> random_tensors(Random& random) {
  std::vector<Tensor> model;
  const std::size_t count = 1 + random.below(5);
  for (std::size_t i = 0; i < count; ++i) {
    Dims shape = Dims::filled(static_cast<int>(random.below(rank_max + 1)), 0);
    const std::int64_t most = shape.rank() > 2 ? 5 : 12;
    for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = random.between(1, most);
    if (shape.rank() > 0 && random.chance(1, 16)) shape[0] = 0;
    model.push_back({"t" + std::to_string(i), static_cast<ElementType>(random.below(10)), shape,
                     random.chance(1, 4) ? TensorKind::buffer : TensorKind::parameter});
    const bool floats = model.back().type <= ElementType::bf16;
    if (floats && random.chance(1, 8)) model.back().encoding = 1;
  }
  return model;
}

/// One or two layouts on each side, in one to three replicas each. The rollouts may leave out the
/// last tensor, want another convertible type, or call the first by a name that the trainers only
/// have as an alias.
inline std::vector<Manifest> random_manifests(Random& random) {
  const std::vector<Tensor> model = random_tensors(random);
  std::vector<Manifest> manifests;
  for (const Side side : {Side::trainer, Side::rollout}) {
    std::uint32_t replica = 0;
    std::vector<Tensor> own = model;
    if (side == Side::rollout && own.size() > 1 && random.chance(1, 4)) own.pop_back();
    const bool renamed = side == Side::rollout && random.chance(1, 8);
    if (renamed) own[0].name = "t0.alias";
    for (std::size_t layout = 1 + random.below(2); layout > 0; --layout) {
      for (Tensor& tensor : own) {
        const bool floats = tensor.type == ElementType::f32 || tensor.type == ElementType::bf16;
        if (floats) tensor.type = random.chance(1, 2) ? ElementType::f32 : ElementType::bf16;
      }
      const std::vector<Manifest> shards = replica_of(random, side, replica, own);
      for (std::size_t copies = 1 + random.below(3); copies > 0; --copies, ++replica) {
        for (Manifest shard : shards) {
          shard.shard.replica = replica;
          if (side == Side::trainer || !renamed) shard.aliases = {{"t0.alias", "t0"}};
          manifests.push_back(std::move(shard));
        }
      }
    }
  }
  return manifests;
}

}  // namespace weir::testing
