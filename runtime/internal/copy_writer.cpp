#include "runtime/internal/copy_writer.hpp"

#include <algorithm>
#include <string>
#include <tuple>

#include "runtime/assert.hpp"
#include "runtime/internal/copy_form.hpp"
#include "runtime/internal/quoted.hpp"

namespace weir::internal {
namespace {

/// The slack is this share of the bytes that a trainer shard serves on average: it bounds how far
/// from level the sources end, and long runs of copies that can be joined still fit into it.
constexpr std::uint64_t slack_divisor = 32;
/// Parts are shared out in shares of at least this many bytes: shorter copies cost more than a
/// better balance gains.
constexpr std::uint64_t share_bytes_min = std::uint64_t{1} << 20;

std::uint64_t bytes_of(const Box& box, ElementType type) noexcept {
  return static_cast<std::uint64_t>(element_count(box.extent)) * size_of(type);
}

std::uint64_t offset_of(const Piece& piece, const Box& part) noexcept {
  std::uint64_t offset = piece.offset;
  for (int dim = 0; dim < part.start.rank(); ++dim) {
    // A piece may state any stride for a dimension that it never steps along.
    if (part.start[dim] == piece.box.start[dim]) continue;
    offset +=
        static_cast<std::uint64_t>((part.start[dim] - piece.box.start[dim]) * piece.stride[dim]);
  }
  return offset;
}

}  // namespace

CopyWriter::CopyWriter(const Roster& roster, const Catalog& catalog,
                       const std::vector<BoxIndex>& indices)
    : roster_(roster),
      catalog_(catalog),
      indices_(indices),
      served_bytes_(roster.trainer_count),
      pattern_served_bytes_(roster.trainers.size()),
      pattern_of_(roster.trainer_count),
      last_(roster.trainer_count) {
  for (std::uint32_t pattern = 0; pattern < roster.trainers.size(); ++pattern) {
    const std::size_t ranks = roster.trainers[pattern].ranks;
    forced_bytes_.resize(std::max(forced_bytes_.size(), ranks));
    for (const std::uint32_t first : roster.trainers[pattern].replicas) {
      std::fill_n(pattern_of_.begin() + first, roster.trainers[pattern].ranks, pattern);
    }
  }
}

Result<CopyWriter> CopyWriter::make(const Roster& roster, const Catalog& catalog,
                                    const std::vector<BoxIndex>& indices,
                                    const std::vector<Target>& targets) {
  CopyWriter writer(roster, catalog, indices);
  std::uint64_t bytes = 0;
  for (const Target& target : targets) {
    const Manifest& manifest = *roster.shards[target.shard].manifest;
    for (const Piece& piece : manifest.pieces) {
      bytes +=
          bytes_of(piece.box, manifest.tensors[piece.tensor].type) * target.weight * target.turns;
    }
  }
  writer.slack_bytes_ = bytes / roster.trainer_count / slack_divisor;
  if (roster.trainers.size() == 1) {
    if (auto good = writer.count_forced(targets); !good) return failure(good);
  }
  return writer;
}

/// Where trainer replicas are alike, most is held by one rank alone: what that rank of all of them
/// will serve is known beforehand. A rollout pattern's first replica speaks for the others.
Result<void> CopyWriter::count_forced(const std::vector<Target>& targets) {
  const std::size_t replicas = roster_.trainers.front().replicas.size();
  for (const Target& target : targets) {
    const Pattern& pattern = roster_.rollouts[target.pattern];
    if (target.shard != pattern.replicas.front() + target.rank) continue;
    for (const Piece& piece : roster_.shards[target.shard].manifest->pieces) {
      if (auto good = cover(target, piece, 0); !good) return good;
      for (const Cover::Part& part : cover_.parts) {
        find_choices(target, 0, part);
        if (!forced(target)) continue;
        const Holder& holder = choices_.front().holder;
        forced_bytes_[holder.rank] +=
            bytes_of(part.box, holder.type) * pattern.replicas.size() / replicas;
      }
    }
  }
  forced_counted_ = true;
  return {};
}

Result<std::vector<Copy>> CopyWriter::write(const Target& target) {
  copies_.clear();
  const Manifest& manifest = *roster_.shards[target.shard].manifest;
  for (const std::uint32_t index : target.order) {
    const Piece& piece = manifest.pieces[index];
    const std::uint32_t pattern = choose_pattern(source_of(target, piece));
    if (auto good = cover(target, piece, pattern); !good) return failure(good);
    for (const Cover::Part& part : cover_.parts) {
      find_choices(target, pattern, part);
      write_part(target, piece, part.box);
    }
  }
  const auto place = [](const Copy& copy) {
    return std::tie(copy.target_region, copy.target_offset);
  };
  const auto before = [&](const Copy& a, const Copy& b) { return place(a) < place(b); };
  if (!std::is_sorted(copies_.begin(), copies_.end(), before)) {
    std::sort(copies_.begin(), copies_.end(), before);
  }
  return std::vector<Copy>(copies_.begin(), copies_.end());
}

TensorNumber CopyWriter::source_of(const Target& target, const Piece& piece) const {
  const PatternTensors& tensors = catalog_.rollouts[target.pattern];
  return catalog_.source_of[tensors.numbers[target.rank][piece.tensor]];
}

/// Fills `cover_`. Each source pattern holds every tensor whole, so there is no hole.
Result<void> CopyWriter::cover(const Target& target, const Piece& piece, std::uint32_t pattern) {
  const TensorNumber source = source_of(target, piece);
  const auto hole = indices_[pattern].cover(source, piece.box, cover_);
  if (!hole) {
    return failure(hole.error().code, quoted(catalog_.names[source]) + " at " +
                                          text_of(roster_.shards[target.shard].shard) + ": " +
                                          hole.error().text);
  }
  WEIR_ASSERT(!hole->has_value());
  return {};
}

std::uint32_t CopyWriter::choose_pattern(TensorNumber source) {
  const auto load = [&](std::uint32_t pattern) {
    const Pattern& shards = roster_.trainers[pattern];
    return pattern_served_bytes_[pattern] / (shards.replicas.size() * shards.ranks);
  };
  std::uint32_t best = none;
  for (std::uint32_t pattern = 0; pattern < indices_.size(); ++pattern) {
    if (!catalog_.trainers[pattern].has(source)) continue;
    if (best == none || load(pattern) < load(best)) best = pattern;
  }
  WEIR_ASSERT(best != none);
  if (last_pattern_ != none && catalog_.trainers[last_pattern_].has(source) &&
      load(last_pattern_) <= load(best) + slack_bytes_) {
    best = last_pattern_;
  }
  last_pattern_ = best;
  return best;
}

/// Fills `choices_` with every shard of the pattern's replicas that holds the part; of the first
/// replica where they take turns.
void CopyWriter::find_choices(const Target& target, std::uint32_t pattern,
                              const Cover::Part& part) {
  choices_.clear();
  const std::span<const std::uint32_t> replicas = roster_.trainers[pattern].replicas;
  for (const std::uint32_t first : target.turns > 1 ? replicas.first(1) : replicas) {
    for (std::uint32_t i = part.entries_begin; i < part.entries_end; ++i) {
      for (const Holder& holder : indices_[pattern].holders(cover_.entries[i])) {
        choices_.push_back({first + holder.rank, holder});
      }
    }
  }
}

/// The least busy shard; or the one that wrote to this target last, while it is at most a slack
/// ahead of that.
const CopyWriter::Choice& CopyWriter::best_choice(const Target& target) const {
  const Choice* best = &choices_.front();
  const Choice* latest = nullptr;
  std::uint64_t least = busy(*best);
  for (const Choice& choice : choices_) {
    const std::uint64_t bytes = busy(choice);
    if (bytes < least || (bytes == least && choice.shard < best->shard)) {
      best = &choice;
      least = bytes;
    }
    const Last& last = last_[choice.shard];
    if (last.target != target.shard) continue;
    if (latest == nullptr || last.time > last_[latest->shard].time) latest = &choice;
  }
  const bool stay = latest != nullptr && busy(*latest) <= least + slack_bytes_;
  return stay ? *latest : *best;
}

void CopyWriter::write_part(const Target& target, const Piece& piece, const Box& box) {
  const std::uint64_t bytes = bytes_of(box, choices_.front().holder.type);
  std::uint64_t sharers = bytes / share_bytes_min;
  if (slack_bytes_ > 0) sharers = std::min(sharers, bytes * target.weight / slack_bytes_);
  sharers = std::min<std::uint64_t>(sharers, choices_.size());
  if (sharers > 1) {
    share_out(target, piece, box, sharers);
  } else {
    emit(target, piece, box, best_choice(target));
  }
}

/// Gives rows of a long part to the `sharers` least busy shards so that they end level, as water
/// poured into vessels does.
void CopyWriter::share_out(const Target& target, const Piece& piece, const Box& box,
                           std::size_t sharers) {
  const auto place = [&](const Choice& choice) {
    return std::tuple(busy(choice), choice.shard, choice.holder.piece);
  };
  std::vector<Choice> chosen = choices_;
  std::sort(chosen.begin(), chosen.end(),
            [&](const Choice& a, const Choice& b) { return place(a) < place(b); });
  int dim = 0;
  while (box.extent[dim] == 1) ++dim;
  const auto rows = static_cast<std::uint64_t>(box.extent[dim]);
  const std::uint64_t row_bytes = bytes_of(box, chosen.front().holder.type) / rows * target.weight;

  // The level to which so many vessels are filled; the next is left out if it stands higher.
  std::uint64_t filled = rows * row_bytes;
  std::uint64_t level = 0;
  std::size_t count = 0;
  for (; count < sharers; ++count) {
    const std::uint64_t bytes = busy(chosen[count]);
    if (count > 0 && level <= bytes) break;
    filled += bytes;
    level = filled / (count + 1);
  }
  Box part = box;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t left = box.start[dim] + box.extent[dim] - part.start[dim];
    const std::uint64_t room = level - std::min(level, busy(chosen[i]));
    const auto share = static_cast<std::int64_t>((room + row_bytes / 2) / row_bytes);
    part.extent[dim] = i + 1 == count ? left : std::min(left, share);
    if (part.extent[dim] == 0) continue;
    emit(target, piece, part, chosen[i]);
    part.start[dim] += part.extent[dim];
  }
}

void CopyWriter::emit(const Target& target, const Piece& piece, const Box& box,
                      const Choice& choice) {
  // The pattern's first replica says the same as the chosen one, and is more often at hand.
  const std::uint32_t pattern = pattern_of_[choice.shard];
  const Piece& held =
      roster_.model_of(roster_.trainers[pattern], choice.holder.rank).pieces[choice.holder.piece];
  Copy copy;
  copy.source = choice.shard;
  copy.source_region = held.region;
  copy.target_region = piece.region;
  copy.source_type = choice.holder.type;
  copy.target_type = roster_.shards[target.shard].manifest->tensors[piece.tensor].type;
  copy.source_offset = offset_of(held, box);
  copy.target_offset = offset_of(piece, box);
  copy.extent = box.extent;
  copy.source_stride = held.stride;
  copy.target_stride = piece.stride;
  normalize(copy);

  const std::uint64_t bytes = source_bytes(copy) * target.weight;
  const std::vector<std::uint32_t>& replicas = roster_.trainers[pattern].replicas;
  if (forced_counted_ && forced(target)) {
    forced_bytes_[choice.holder.rank] -= bytes * target.turns / replicas.size();
  }
  served_bytes_[choice.shard] += bytes;
  for (std::uint32_t i = 1; i < target.turns; ++i) {
    served_bytes_[replicas[i] + choice.holder.rank] += bytes;
  }
  pattern_served_bytes_[pattern] += bytes * target.turns;
  Last& last = last_[choice.shard];
  last.time = ++time_;
  if (last.target == target.shard && join(copies_[last.copy], copy)) return;
  last.target = target.shard;
  last.copy = static_cast<std::uint32_t>(copies_.size());
  copies_.push_back(copy);
}

}  // namespace weir::internal
