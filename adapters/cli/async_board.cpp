#include "adapters/cli/async_board.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace weir::cli {

void Durations::add(std::chrono::nanoseconds duration) noexcept {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(0, duration.count()));
  ++count;
  total += nanoseconds;
  longest = std::max(longest.load(), nanoseconds);
}

Result<std::unique_ptr<AsyncBoard>> AsyncBoard::make(const Scene& scene) {
  std::unique_ptr<AsyncBoard> board(new AsyncBoard());
  board->shape_ = {scene.train.replicas, scene.train.ranks, scene.rollout.replicas,
                   scene.rollout.ranks};
  const std::size_t shards = board->shape_.shards();
  auto region = Region::allocate({.kind = RegionKind::host_shared,
                                  .bytes = records_offset + shards * sizeof(ShardRecord),
                                  .huge_pages = false});
  if (!region) return failure(region);
  board->region_ = *std::move(region);
  std::byte* memory = board->region_->bytes().data();
  std::memcpy(memory, &board->shape_, sizeof(Shape));
  auto* first = reinterpret_cast<ShardRecord*>(memory + records_offset);
  for (std::size_t i = 0; i < shards; ++i) new (first + i) ShardRecord();
  board->records_ = {first, shards};
  return board;
}

Result<std::unique_ptr<AsyncBoard>> AsyncBoard::open(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || status.st_size < std::int64_t{records_offset}) {
    return failure(ErrorCode::invalid, "no board was handed down: only a demo starts its shards");
  }
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  auto mapping = Mapping::map({.bytes = bytes, .descriptor = descriptor, .huge_pages = false});
  if (!mapping) return failure(mapping);
  std::unique_ptr<AsyncBoard> board(new AsyncBoard());
  board->mapping_ = *std::move(mapping);
  std::byte* memory = board->mapping_->bytes().data();
  std::memcpy(&board->shape_, memory, sizeof(Shape));
  const std::size_t shards = board->shape_.shards();
  if (shards > (bytes - records_offset) / sizeof(ShardRecord)) {
    return failure(ErrorCode::invalid, "the board that was handed down is too small");
  }
  board->records_ = {std::launder(reinterpret_cast<ShardRecord*>(memory + records_offset)), shards};
  return board;
}

std::size_t AsyncBoard::index_of(const ShardId& shard) const noexcept {
  if (shard.side == Side::trainer) {
    return std::size_t{shard.replica} * shape_.trainer_ranks + shard.rank;
  }
  return shape_.trainers() + std::size_t{shard.replica} * shape_.rollout_ranks + shard.rank;
}

std::span<ShardRecord> AsyncBoard::replica(Side side, std::uint32_t replica) noexcept {
  const std::uint32_t ranks = side == Side::trainer ? shape_.trainer_ranks : shape_.rollout_ranks;
  return records_.subspan(index_of({side, replica, 0}), ranks);
}

std::uint64_t AsyncBoard::published() const noexcept {
  std::uint64_t newest = 0;
  for (std::uint32_t replica = 0; replica < shape_.trainer_replicas; ++replica) {
    std::uint64_t oldest = UINT64_MAX;
    for (std::uint32_t rank = 0; rank < shape_.trainer_ranks; ++rank) {
      oldest = std::min(oldest, records_[index_of({Side::trainer, replica, rank})].newest.load());
    }
    newest = std::max(newest, oldest);
  }
  return newest;
}

std::optional<std::chrono::nanoseconds> AsyncBoard::begun_at(std::uint64_t version) const noexcept {
  std::optional<std::chrono::nanoseconds> first;
  for (const ShardRecord& record : records_.first(shape_.trainers())) {
    const Beginning& begun = record.begun[version % beginnings_kept];
    const std::chrono::nanoseconds at(begun.at.load());
    if (begun.version != version) continue;
    first = first ? std::min(*first, at) : at;
  }
  return first;
}

}  // namespace weir::cli
