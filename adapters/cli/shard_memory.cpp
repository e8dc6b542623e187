#include "adapters/cli/shard_memory.hpp"

#include <utility>

#include "adapters/model/checkpoint_model.hpp"

namespace weir::cli {

Result<std::unique_ptr<ShardMemory>> ShardMemory::open(const ShardMemoryOptions& options) {
  Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(options.model);
  if (!checkpoint) return failure(checkpoint);
  Result<Model> model = load_model(options.model);
  if (!model) return failure(model);
  std::unique_ptr<ShardMemory> own(new ShardMemory(*std::move(checkpoint), *std::move(model)));
  const Result<RankLayout> layout = lay_out(own->model_, options.spec, options.shard.rank);
  if (!layout) return failure(layout);
  own->placed_ = place(own->model_, *layout, options.shard, options.replica_ranks, options.kind);
  own->memory_.emplace(oracle::RankMemory{
      .model = own->model_,
      .spec = options.spec,
      .rank = options.shard.rank,
      .places = {},
      .canonical = [memory = own.get()](std::size_t tensor) -> std::span<const std::byte> {
        const Checkpoint::Entry* entry =
            memory->checkpoint_->find(memory->model_.tensors[tensor].name);
        return entry == nullptr ? std::span<const std::byte>() : memory->checkpoint_->data(*entry);
      },
      .passed_through = options.passed_through});
  for (std::size_t i = 0; i < layout->tensors.size(); ++i) {
    own->memory_->places.push_back({layout->tensors[i].name, own->placed_.offsets[i]});
  }
  return own;
}

Result<void> ShardMemory::fill(std::uint64_t version, std::span<std::byte> region,
                               Workers& workers) const {
  return oracle::fill_rank(*memory_, version, region, workers);
}

Result<std::uint64_t> ShardMemory::compare(std::uint64_t version, std::span<const std::byte> region,
                                           Workers& workers) const {
  return oracle::compare_rank(*memory_, version, region, workers);
}

}  // namespace weir::cli
