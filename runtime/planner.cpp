#include "runtime/planner.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/convert.hpp"
#include "runtime/internal/box_index.hpp"
#include "runtime/internal/byte_overlap.hpp"
#include "runtime/internal/catalog.hpp"
#include "runtime/internal/copy_writer.hpp"
#include "runtime/internal/roster.hpp"

namespace weir {
namespace {

using namespace internal;

/// The pieces of each rank of a rollout pattern, in the order in which they lie in memory.
using RankOrders = std::vector<std::vector<std::uint32_t>>;

Result<std::vector<BoxIndex>> index_trainers(const Roster& roster, const Catalog& catalog) {
  std::vector<BoxIndex> indices;
  indices.reserve(roster.trainers.size());
  for (std::size_t i = 0; i < roster.trainers.size(); ++i) {
    const PatternTensors& tensors = catalog.trainers[i];
    indices.emplace_back(roster, roster.trainers[i], tensors);
    auto whole = check_whole(roster, roster.trainers[i], catalog, tensors, indices.back());
    if (!whole) return failure(whole);
  }
  return indices;
}

/// Proves that each rollout pattern asks for whole tensors, and for no byte twice.
Result<std::vector<RankOrders>> order_rollouts(const Roster& roster, const Catalog& catalog) {
  std::vector<RankOrders> orders(roster.rollouts.size());
  for (std::size_t i = 0; i < roster.rollouts.size(); ++i) {
    const Pattern& pattern = roster.rollouts[i];
    const PatternTensors& tensors = catalog.rollouts[i];
    const BoxIndex index(roster, pattern, tensors);
    auto whole = check_whole(roster, pattern, catalog, tensors, index);
    if (!whole) return failure(whole);
    for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
      auto order = disjoint_order(roster.model_of(pattern, rank));
      if (!order) return failure(order);
      orders[i].push_back(std::move(*order));
    }
  }
  return orders;
}

std::vector<Target> targets_of(const Roster& roster, const std::vector<RankOrders>& orders) {
  std::vector<Target> targets;
  targets.reserve(roster.shards.size() - roster.trainer_count);
  for (std::uint32_t i = 0; i < roster.rollouts.size(); ++i) {
    for (const std::uint32_t first : roster.rollouts[i].replicas) {
      for (std::uint32_t rank = 0; rank < roster.rollouts[i].ranks; ++rank) {
        targets.push_back({first + rank, i, rank, orders[i][rank]});
      }
    }
  }
  std::sort(targets.begin(), targets.end(),
            [](const Target& a, const Target& b) { return a.shard < b.shard; });
  return targets;
}

/// Sorted names of the trainers' tensors that no rollout copies from.
std::vector<std::string> unused_names(const Catalog& catalog) {
  std::vector<bool> used(catalog.names.size());
  std::vector<bool> held(catalog.names.size());
  for (TensorNumber tensor = 0; tensor < catalog.names.size(); ++tensor) {
    for (const PatternTensors& tensors : catalog.rollouts) {
      if (tensors.has(tensor)) used[catalog.source_of[tensor]] = true;
    }
    for (const PatternTensors& tensors : catalog.trainers) {
      if (tensors.has(tensor)) held[tensor] = true;
    }
  }
  std::vector<std::string> names;
  for (TensorNumber tensor = 0; tensor < catalog.names.size(); ++tensor) {
    if (held[tensor] && !used[tensor]) names.emplace_back(catalog.names[tensor]);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool convertible(ElementType source, ElementType target) noexcept {
  return source == target || conversion_exists(source, target);
}

Result<Plan> make_plan(std::span<const Manifest> manifests) {
  const auto roster = make_roster(manifests);
  if (!roster) return failure(roster);
  const auto catalog = make_catalog(*roster);
  if (!catalog) return failure(catalog);
  const auto indices = index_trainers(*roster, *catalog);
  if (!indices) return failure(indices);
  const auto orders = order_rollouts(*roster, *catalog);
  if (!orders) return failure(orders);

  const std::vector<Target> targets = targets_of(*roster, *orders);
  auto writer = CopyWriter::make(*roster, *catalog, *indices, targets);
  if (!writer) return failure(writer);
  Plan plan;
  plan.parts.reserve(targets.size());
  for (const Target& target : targets) {
    auto copies = writer->write(target);
    if (!copies) return failure(copies);
    plan.parts.push_back({roster->shards[target.shard]->shard, std::move(*copies)});
  }
  plan.sources.reserve(roster->trainer_count);
  for (std::uint32_t i = 0; i < roster->trainer_count; ++i) {
    const Manifest& trainer = *roster->shards[i];
    plan.sources.push_back({trainer.shard, trainer.regions, trainer.slots});
  }
  plan.unused = unused_names(*catalog);
  plan.digest = digest_of(plan);
  return plan;
}

}  // namespace weir
