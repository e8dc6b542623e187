#pragma once
// The input of a resharding: a checkpoint or a folder of rank files, opened, checked against its
// layout, and described by manifests.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/reshard/checkpoint_facts.hpp"
#include "adapters/reshard/rank_file.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir {

/// One local tensor of a rank, in its mapped file.
struct MappedTensor {
  const SafetensorsFile* file = nullptr;
  std::size_t index = 0;  ///< In the file's `tensors()`.

  /// Read-only; empty where the tensor has no bytes.
  [[nodiscard]] std::span<const std::byte> data() const noexcept { return file->data(index); }
  /// Tells the kernel that the tensor's pages will not be read again soon.
  void release() const noexcept { file->release(index); }
};

/// Immutable once open, so free-threaded. Files are mapped, not read.
class ReshardSource {
 public:
  /// `from` may be left out where the files say their layout, and for a checkpoint (`hf`); where
  /// it is given it must mean the same. A folder of rank files that say nothing needs `from`, and
  /// a `config.json` of a known family.
  /// Errors: those of the files; `not_found` for a missing file of a rank; `invalid` (names file,
  /// tensor and rank) where files contradict each other or the layout; those of `lay_out`.
  static Result<std::unique_ptr<ReshardSource>> open(const std::filesystem::path& path,
                                                     const std::optional<LayoutSpec>& from);

  [[nodiscard]] const CheckpointFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const LayoutSpec& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::vector<RankLayout>& ranks() const noexcept { return ranks_; }
  /// Where `config.json` would lie.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

  /// One per rank, trainer side, with a region for each local tensor that has bytes.
  [[nodiscard]] const std::vector<Manifest>& manifests() const noexcept { return manifests_; }
  /// By local tensor of `ranks()[rank]`.
  [[nodiscard]] const std::vector<MappedTensor>& tensors(std::uint32_t rank) const noexcept {
    return tensors_[rank];
  }
  /// What region `region` of a rank's manifest is.
  [[nodiscard]] const MappedTensor& region(std::uint32_t rank,
                                           std::uint32_t region) const noexcept {
    return tensors_[rank][tensor_of_region_[rank][region]];
  }
  /// The file that the rank's tensors are in; for a checkpoint of several, their folder.
  [[nodiscard]] const std::filesystem::path& file(std::uint32_t rank) const noexcept;
  /// Names in a checkpoint that are no tensors of the model: tied copies, what engines compute.
  [[nodiscard]] std::vector<std::string> left_out() const;

 private:
  ReshardSource() = default;
  static Result<std::unique_ptr<ReshardSource>> open_checkpoint(
      const std::filesystem::path& path, const std::optional<LayoutSpec>& from);
  static Result<std::unique_ptr<ReshardSource>> open_ranks(const std::filesystem::path& folder,
                                                           const std::vector<RankNumber>& numbers,
                                                           const std::optional<LayoutSpec>& from);
  Result<void> lay_out_ranks();
  Result<void> bind(std::uint32_t rank);
  [[nodiscard]] Result<MappedTensor> find(std::uint32_t rank, const FileTensor& wanted) const;

  std::filesystem::path path_;  ///< As it was given.
  std::filesystem::path folder_;
  LayoutSpec layout_;
  CheckpointFacts facts_;
  std::unique_ptr<Checkpoint> checkpoint_;               ///< One of these two:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  ///< by rank.
  std::vector<RankLayout> ranks_;
  std::vector<Manifest> manifests_;
  std::vector<std::vector<MappedTensor>> tensors_;          ///< By rank and local tensor.
  std::vector<std::vector<std::size_t>> tensor_of_region_;  ///< By rank and region.
};

}  // namespace weir
