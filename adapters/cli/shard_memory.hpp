#pragma once
// One rank's weights as its engine lays them out, and the reference's view of them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "adapters/oracle/reference.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/element_type.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {

struct ShardMemoryOptions {
  std::filesystem::path model;  ///< A checkpoint.
  LayoutSpec spec;
  ShardId shard;
  std::uint32_t replica_ranks = 1;
  RegionKind kind = RegionKind::host_shared;
  /// The type that the trainers keep what they publish in; none for the model's own.
  std::optional<ElementType> passed_through;
};

/// What belongs into the memory of one rank, version by version. It owns no such memory.
/// Threading: one call at a time.
class ShardMemory {
 public:
  /// Errors: those of the checkpoint and of the layout.
  static Result<std::unique_ptr<ShardMemory>> open(const ShardMemoryOptions& options);

  /// With one region of `region_bytes`, and one slot.
  [[nodiscard]] const Manifest& manifest() const noexcept { return placed_.manifest; }
  [[nodiscard]] std::uint64_t region_bytes() const noexcept { return placed_.region_bytes; }

  /// Fills a region as the engine would. Not from a task of `workers`.
  Result<void> fill(std::uint64_t version, std::span<std::byte> region, Workers& workers) const;
  /// Compares every byte, and returns how many those were. Errors (`invalid`) name the first
  /// element that differs.
  Result<std::uint64_t> compare(std::uint64_t version, std::span<const std::byte> region,
                                Workers& workers) const;

 private:
  ShardMemory(std::unique_ptr<Checkpoint> checkpoint, Model model)
      : checkpoint_(std::move(checkpoint)), model_(std::move(model)) {}

  std::unique_ptr<Checkpoint> checkpoint_;
  Model model_;
  PlacedShard placed_;
  std::optional<oracle::RankMemory> memory_;  ///< Borrows the two above.
};

}  // namespace weir::cli
