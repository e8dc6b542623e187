#include "runtime/planner.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/convert.hpp"
#include "runtime/internal/box_index.hpp"
#include "runtime/internal/byte_overlap.hpp"
#include "runtime/internal/catalog.hpp"
#include "runtime/internal/copy_writer.hpp"
#include "runtime/internal/coverage.hpp"
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
    auto whole = check_whole(roster, roster.trainers[i], catalog, tensors);
    if (!whole) return failure(whole);
    const std::vector<bool> all(catalog.names.size(), true);
    indices.emplace_back(roster, roster.trainers[i], tensors, all);
  }
  return indices;
}

/// Proves that each rollout pattern asks for whole tensors, and for no byte twice.
Result<std::vector<RankOrders>> order_rollouts(const Roster& roster, const Catalog& catalog) {
  std::vector<RankOrders> orders(roster.rollouts.size());
  for (std::size_t i = 0; i < roster.rollouts.size(); ++i) {
    const Pattern& pattern = roster.rollouts[i];
    const PatternTensors& tensors = catalog.rollouts[i];
    auto whole = check_whole(roster, pattern, catalog, tensors);
    if (!whole) return failure(whole);
    for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
      auto order = disjoint_order(roster.model_of(pattern, rank));
      if (!order) return failure(order);
      orders[i].push_back(std::move(*order));
    }
  }
  return orders;
}

/// How the replicas of a rollout pattern come by their copies.
struct Sharing {
  std::uint32_t apart = 1;  ///< So many get copies of their own.
  std::uint32_t turns = 1;  ///< As `Target::turns`: with more than one, `apart` is one.

  /// Replica `i` has the copies of replica `i % lists()`.
  [[nodiscard]] std::size_t lists() const { return std::max(apart, turns); }
};

Sharing sharing_of(const Roster& roster, const Pattern& pattern, std::size_t apart_max) {
  std::size_t trainers = 0;
  for (const Pattern& trainer : roster.trainers) trainers += trainer.replicas.size();
  std::size_t pieces = 1;
  for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
    pieces += roster.model_of(pattern, rank).pieces.size();
  }
  const std::size_t replicas = pattern.replicas.size();
  const bool even = roster.trainers.size() == 1 && replicas % trainers == 0;
  if (even && pieces * trainers > apart_max) {
    return {.turns = static_cast<std::uint32_t>(trainers)};
  }
  // With fewer lists than trainer replicas, some of those would serve nobody.
  const std::size_t apart = std::min(replicas, std::max(trainers, apart_max / pieces));
  return {.apart = static_cast<std::uint32_t>(apart)};
}

/// The shards of all replicas that get copies of their own.
std::vector<Target> targets_of(const Roster& roster, const std::vector<RankOrders>& orders,
                               const std::vector<Sharing>& sharings) {
  std::vector<Target> targets;
  for (std::uint32_t i = 0; i < roster.rollouts.size(); ++i) {
    const Pattern& pattern = roster.rollouts[i];
    const Sharing& sharing = sharings[i];
    for (std::size_t replica = 0; replica < sharing.apart; ++replica) {
      const std::size_t lists = sharing.lists();
      const std::size_t weight = (pattern.replicas.size() - replica + lists - 1) / lists;
      for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
        targets.push_back(
            {pattern.replicas[replica] + rank, sharing.turns, weight, i, rank, orders[i][rank]});
      }
    }
  }
  std::sort(targets.begin(), targets.end(),
            [](const Target& a, const Target& b) { return a.shard < b.shard; });
  return targets;
}

/// The same copies from shards that lie `distance` behind in the roster.
CopyList shifted(const CopyList& copies, std::uint32_t distance) {
  std::vector<Copy> shifted(copies.begin(), copies.end());
  for (Copy& copy : shifted) copy.source += distance;
  return shifted;
}

/// Gives each rollout shard the copies that were written for it, or for the replica whose copies it
/// shares. `lists`: by index into the roster's shards.
std::vector<PlanPart> parts_of(const Roster& roster, const std::vector<Sharing>& sharings,
                               std::vector<CopyList> lists) {
  const std::vector<std::uint32_t>& trainers = roster.trainers.front().replicas;
  for (std::size_t i = 0; i < roster.rollouts.size(); ++i) {
    const Pattern& pattern = roster.rollouts[i];
    const Sharing& sharing = sharings[i];
    for (std::size_t replica = sharing.apart; replica < pattern.replicas.size(); ++replica) {
      for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
        const CopyList& first = lists[pattern.replicas.front() + rank];
        const CopyList& same = lists[pattern.replicas[replica % sharing.lists()] + rank];
        lists[pattern.replicas[replica] + rank] =
            replica < sharing.lists() ? shifted(first, trainers[replica] - trainers.front()) : same;
      }
    }
  }
  std::vector<PlanPart> parts;
  parts.reserve(roster.shards.size() - roster.trainer_count);
  for (std::size_t shard = roster.trainer_count; shard < roster.shards.size(); ++shard) {
    parts.push_back({roster.shards[shard].shard, std::move(lists[shard])});
  }
  return parts;
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

Result<Plan> make_plan(std::span<const Manifest> manifests, std::size_t apart_max) {
  std::vector<Participant> participants;
  participants.reserve(manifests.size());
  for (const Manifest& manifest : manifests) participants.push_back({manifest.shard, &manifest});
  return make_plan(participants, apart_max);
}

Result<Plan> make_plan(std::span<const Participant> participants, std::size_t apart_max) {
  const auto roster = make_roster(participants);
  if (!roster) return failure(roster);
  const auto catalog = make_catalog(*roster);
  if (!catalog) return failure(catalog);
  const auto indices = index_trainers(*roster, *catalog);
  if (!indices) return failure(indices);
  const auto orders = order_rollouts(*roster, *catalog);
  if (!orders) return failure(orders);

  std::vector<Sharing> sharings;
  for (const Pattern& pattern : roster->rollouts) {
    sharings.push_back(sharing_of(*roster, pattern, apart_max));
  }
  const std::vector<Target> targets = targets_of(*roster, *orders, sharings);
  auto writer = CopyWriter::make(*roster, *catalog, *indices, targets);
  if (!writer) return failure(writer);
  std::vector<CopyList> lists(roster->shards.size());
  for (const Target& target : targets) {
    auto copies = writer->write(target);
    if (!copies) return failure(copies);
    lists[target.shard] = std::move(*copies);
  }
  Plan plan;
  plan.parts = parts_of(*roster, sharings, std::move(lists));
  plan.sources.reserve(roster->trainer_count);
  for (std::uint32_t i = 0; i < roster->trainer_count; ++i) {
    const auto& [shard, manifest] = roster->shards[i];
    plan.sources.push_back({shard, manifest->regions, manifest->slots});
  }
  plan.unused = unused_names(*catalog);
  plan.digest = digest_of(plan);
  return plan;
}

}  // namespace weir
