#pragma once
// Chooses a source for each part of each target piece, and writes the copies.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/internal/box_index.hpp"
#include "runtime/internal/catalog.hpp"
#include "runtime/internal/roster.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir::internal {

/// A rollout shard that copies are written for.
struct Target {
  std::uint32_t shard = 0;  ///< Index into the roster's shards.
  /// With more than one, the trainers are so many equal replicas that serve equal targets in turn:
  /// the copies are from the first, and others' targets will fetch the same from the others.
  std::uint32_t turns = 1;
  /// How many shards, this one included, will fetch by the same copies from the same sources.
  std::uint64_t weight = 1;
  std::uint32_t pattern = 0;  ///< Index into the roster's rollout patterns.
  std::uint32_t rank = 0;
  std::span<const std::uint32_t> order;  ///< Its pieces by region and offset.
};

/// Writes the copies into one target after another, and counts how many bytes each trainer shard
/// serves to all that a target stands for. Borrows all it is given.
///
/// How it balances: of the shards that hold a part, the one with the fewest bytes so far serves it,
/// unless the one that wrote to the target last is at most a slack ahead of it, for copies from one
/// source can be joined. A part much longer than the slack is shared out, so that its sources end
/// level. What only one rank of the trainers' replicas holds is counted before anything is chosen.
/// Trainer patterns that cut tensors differently are chosen between in the same way, by bytes per
/// shard.
class CopyWriter {
 public:
  /// `indices`: one per trainer pattern, each proved to be whole. `targets`: all that will be
  /// written. Errors: as `write`.
  static Result<CopyWriter> make(const Roster& roster, const Catalog& catalog,
                                 const std::vector<BoxIndex>& indices,
                                 const std::vector<Target>& targets);

  /// By target region and offset. Errors: `refused` where a piece would be cut too finely.
  Result<std::vector<Copy>> write(const Target& target);

 private:
  /// A shard that could serve a part, and how it holds the part.
  struct Choice {
    std::uint32_t shard = 0;
    Holder holder;
  };
  /// The copy written last from a source, which the next one from there may continue.
  struct Last {
    std::uint32_t target = 0;  ///< Index into the roster's shards; 0 (a trainer) for none.
    std::uint32_t copy = 0;    ///< Index into `copies_`.
    std::uint64_t time = 0;    ///< In parts written by any source.
  };
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  CopyWriter(const Roster& roster, const Catalog& catalog, const std::vector<BoxIndex>& indices);

  Result<void> count_forced(const std::vector<Target>& targets);
  Result<void> cover(const Target& target, const Piece& piece, std::uint32_t pattern);
  [[nodiscard]] std::uint32_t choose_pattern(TensorNumber source);
  [[nodiscard]] TensorNumber source_of(const Target& target, const Piece& piece) const;
  /// Whether one rank alone, of whichever replica, holds the part that `choices_` are of.
  [[nodiscard]] bool forced(const Target& target) const {
    return choices_.size() * target.turns == roster_.trainers.front().replicas.size();
  }
  /// What the shard has served and, as far as that is known, will have to.
  [[nodiscard]] std::uint64_t busy(const Choice& choice) const {
    return served_bytes_[choice.shard] + forced_bytes_[choice.holder.rank];
  }
  void find_choices(const Target& target, std::uint32_t pattern, const Cover::Part& part);
  [[nodiscard]] const Choice& best_choice(const Target& target) const;
  void write_part(const Target& target, const Piece& piece, const Box& box);
  void share_out(const Target& target, const Piece& piece, const Box& box, std::size_t sharers);
  void emit(const Target& target, const Piece& piece, const Box& box, const Choice& choice);

  const Roster& roster_;
  const Catalog& catalog_;
  const std::vector<BoxIndex>& indices_;
  std::uint64_t slack_bytes_ = 0;
  bool forced_counted_ = false;
  std::vector<std::uint64_t> served_bytes_;  ///< By trainer shard, times weights.
  /// By trainer rank: what each replica's will yet serve of what no other rank holds.
  std::vector<std::uint64_t> forced_bytes_;
  std::vector<std::uint64_t> pattern_served_bytes_;  ///< By trainer pattern.
  std::vector<std::uint32_t> pattern_of_;            ///< By trainer shard.
  std::vector<Last> last_;                           ///< By trainer shard.
  std::uint64_t time_ = 0;
  std::uint32_t last_pattern_ = none;
  Cover cover_;  // The rest is scratch, kept for its memory.
  std::vector<Choice> choices_;
  std::vector<Copy> copies_;
};

}  // namespace weir::internal
