#include "runtime/internal/roster.hpp"

#include <algorithm>

namespace weir::internal {
namespace {

tl::unexpected<Error> invalid(const std::string& text) {
  return failure(ErrorCode::invalid, text);
}

bool same_regions(const std::vector<RegionInfo>& a, const std::vector<RegionInfo>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const RegionInfo& x, const RegionInfo& y) {
                      return x.kind == y.kind && x.bytes == y.bytes;
                    });
}

/// Whether both say the same, save the replica number and the tickets.
bool alike(const Manifest& a, const Manifest& b) {
  if (&a == &b) return true;
  return a.shard.rank == b.shard.rank && a.replica_ranks == b.replica_ranks &&
         a.inventory == b.inventory && a.tensors.size() == b.tensors.size() && a.slots == b.slots &&
         same_regions(a.regions, b.regions) && a.aliases == b.aliases && a.pieces == b.pieces &&
         a.tensors == b.tensors && a.encodings == b.encodings;
}

std::vector<Alias> sorted(std::vector<Alias> aliases) {
  std::sort(aliases.begin(), aliases.end());
  return aliases;
}

/// The ranks of one replica: all there, once, and of one mind.
Result<void> check_replica(std::span<const Participant> shards) {
  const ShardId& first_shard = shards.front().shard;
  const Manifest& first = *shards.front().manifest;
  const std::string replica = text_of_replica(first_shard);
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const auto& [shard, manifest] = shards[rank];
    if (rank > 0 && shard == shards[rank - 1].shard) {
      return invalid("there are two manifests of " + text_of(shard) +
                     ": give every shard a replica and rank of its own");
    }
    if (manifest->replica_ranks != first.replica_ranks) {
      return invalid(text_of(shard) + " states " + std::to_string(manifest->replica_ranks) +
                     " ranks in its replica, " + text_of(first_shard) + " states " +
                     std::to_string(first.replica_ranks) + ": make them agree");
    }
    if (shard.rank != rank) break;
  }
  for (std::uint32_t rank = 0; rank < first.replica_ranks; ++rank) {
    if (rank < shards.size() && shards[rank].shard.rank == rank) continue;
    return invalid(replica + " has " + std::to_string(first.replica_ranks) + " ranks, but rank " +
                   std::to_string(rank) + " is missing: start it, or state fewer ranks");
  }
  if (shards.size() > first.replica_ranks) {
    return invalid(text_of(shards[first.replica_ranks].shard) + " is one too many in " + replica +
                   ", which has " + std::to_string(first.replica_ranks) +
                   " ranks: leave it out, or state more ranks");
  }
  const std::vector<Alias> aliases = sorted(first.aliases);
  const auto disagree = [&](const ShardId& shard, const std::string& what) {
    return invalid(text_of(first_shard) + " and " + text_of(shard) + " state different " + what +
                   ": build both from the same model");
  };
  for (const auto& [shard, manifest] : shards) {
    if (manifest->inventory != first.inventory) return disagree(shard, "inventories");
    if (sorted(manifest->aliases) != aliases) return disagree(shard, "aliases");
  }
  return {};
}

/// Adds the replica whose rank 0 is shard `first` to the pattern that it follows.
Result<void> add_replica(Roster& roster, std::vector<Pattern>& patterns, std::uint32_t first,
                         std::uint32_t ranks) {
  for (Pattern& pattern : patterns) {
    bool equal = pattern.ranks == ranks;
    for (std::uint32_t rank = 0; equal && rank < ranks; ++rank) {
      equal = alike(*roster.shards[first + rank].manifest, roster.model_of(pattern, rank));
    }
    if (equal) {
      pattern.replicas.push_back(first);
      return {};
    }
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (auto good = check(*roster.shards[first + rank].manifest); !good) return good;
  }
  patterns.push_back({{first}, ranks});
  return {};
}

}  // namespace

std::string text_of_replica(const ShardId& shard) {
  return (shard.side == Side::trainer ? "trainer replica " : "rollout replica ") +
         std::to_string(shard.replica);
}

Result<Roster> make_roster(std::span<const Participant> participants) {
  Roster roster;
  roster.shards.assign(participants.begin(), participants.end());
  std::sort(roster.shards.begin(), roster.shards.end(),
            [](const Participant& a, const Participant& b) { return a.shard < b.shard; });
  const auto is_trainer = [](const Participant& p) { return p.shard.side == Side::trainer; };
  const auto rollouts =
      std::partition_point(roster.shards.begin(), roster.shards.end(), is_trainer);
  roster.trainer_count = static_cast<std::uint32_t>(rollouts - roster.shards.begin());
  if (rollouts == roster.shards.begin()) {
    return invalid("there is no trainer shard to copy from: add the trainers' manifests");
  }
  if (rollouts == roster.shards.end()) {
    return invalid("there is no rollout shard to copy to: add the rollouts' manifests");
  }
  for (std::size_t first = 0; first < roster.shards.size();) {
    const ShardId& id = roster.shards[first].shard;
    std::size_t end = first;
    while (end < roster.shards.size() && roster.shards[end].shard.side == id.side &&
           roster.shards[end].shard.replica == id.replica) {
      ++end;
    }
    const std::span<const Participant> replica(roster.shards.data() + first, end - first);
    if (auto good = check_replica(replica); !good) return failure(good);
    auto& patterns = id.side == Side::trainer ? roster.trainers : roster.rollouts;
    auto good = add_replica(roster, patterns, static_cast<std::uint32_t>(first),
                            static_cast<std::uint32_t>(replica.size()));
    if (!good) return failure(good);
    first = end;
  }
  return roster;
}

}  // namespace weir::internal
