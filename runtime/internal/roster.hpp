#pragma once
// Who takes part in a plan: the manifests sorted, each replica complete, equal replicas together.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/planner.hpp"
#include "runtime/result.hpp"

namespace weir::internal {

/// Replicas of one side whose manifests say the same, rank by rank, save their replica number and
/// their regions' tickets. What is proved for one of them holds for all, so that the planner's
/// proofs cost what one replica of each pattern costs, however many there are.
struct Pattern {
  /// Rank 0 of each replica, as an index into `Roster::shards`; the other ranks follow it.
  std::vector<std::uint32_t> replicas;
  std::uint32_t ranks = 0;
};

/// The participants in order of their shards, trainers first. Borrows their manifests.
struct Roster {
  std::vector<Participant> shards;
  std::uint32_t trainer_count = 0;  ///< So many of `shards` are trainers.
  std::vector<Pattern> trainers;
  std::vector<Pattern> rollouts;

  /// Rank `rank` of the pattern's first replica, which stands for all of them.
  [[nodiscard]] const Manifest& model_of(const Pattern& pattern, std::uint32_t rank) const {
    return *shards[pattern.replicas.front() + rank].manifest;
  }
};

/// Checks every manifest (one of each pattern), and that both sides are there, no shard twice, and
/// each replica with all its ranks, which agree on inventory and aliases.
Result<Roster> make_roster(std::span<const Participant> participants);

/// "trainer replica 0", for messages.
std::string text_of_replica(const ShardId& shard);

}  // namespace weir::internal
