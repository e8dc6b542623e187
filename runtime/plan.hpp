#pragma once
// Plans: which copies bring every target byte, exactly once, from which source.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/box.hpp"
#include "runtime/digest.hpp"
#include "runtime/element_type.hpp"
#include "runtime/manifest.hpp"

namespace weir {

/// One strided copy: for every index (i, j, …) below `extent`, the element at
/// `source_offset + i * source_stride[0] + …` of the source's region goes to
/// `target_offset + i * target_stride[0] + …` of the target's region, converted where the types
/// differ. In normal form: no extent is 1 or 0 (a single element has rank 0), dimensions that are
/// dense in both source and target are merged, and dimensions go from the largest target stride
/// to the smallest. Never expanded to rows. Both regions are of slot 0; the same copy with other
/// slots' regions moves the version that lies there.
struct Copy {
  std::uint32_t source = 0;  ///< Index into `Plan::sources`.
  std::uint32_t source_region = 0;
  std::uint32_t target_region = 0;
  ElementType source_type = ElementType::bf16;
  ElementType target_type = ElementType::bf16;
  std::uint64_t source_offset = 0;  ///< Bytes.
  std::uint64_t target_offset = 0;  ///< Bytes.
  Dims extent;                      ///< Elements.
  Dims source_stride;               ///< Bytes.
  Dims target_stride;               ///< Bytes.

  friend bool operator==(const Copy&, const Copy&) = default;
};

/// Bytes that the copy writes.
std::uint64_t target_bytes(const Copy& copy) noexcept;
/// Bytes that the copy reads.
std::uint64_t source_bytes(const Copy& copy) noexcept;

/// Copies that any number of lists share: a list is immutable, and copying it copies no copy. Equal
/// replicas need equal copies, of which a plan for many replicas of a large model would not fit
/// into memory otherwise. Threading: as a value; lists may share from several threads.
class CopyList {
 public:
  CopyList() = default;
  CopyList(std::vector<Copy> copies)  // NOLINT(google-explicit-constructor): it is that vector.
      : copies_(std::make_shared<const std::vector<Copy>>(std::move(copies))) {}
  CopyList(std::initializer_list<Copy> copies) : CopyList(std::vector<Copy>(copies)) {}

  [[nodiscard]] const Copy* data() const noexcept { return copies_ ? copies_->data() : nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return copies_ ? copies_->size() : 0; }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] const Copy* begin() const noexcept { return data(); }
  [[nodiscard]] const Copy* end() const noexcept { return data() + size(); }
  [[nodiscard]] const Copy& operator[](std::size_t index) const { return data()[index]; }

  /// Whether they hold equal copies, shared or not.
  friend bool operator==(const CopyList& a, const CopyList& b) {
    return a.copies_ == b.copies_ || std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<const std::vector<Copy>> copies_;
};

/// A trainer shard that copies read from, and its regions and slots as its manifest stated them.
struct PlanSource {
  ShardId shard;
  std::vector<RegionInfo> regions;  ///< Of all slots, in the manifest's order.
  std::uint32_t slots = 1;

  friend bool operator==(const PlanSource&, const PlanSource&) = default;
};

/// All copies into one target shard, ordered by target region and offset.
struct PlanPart {
  ShardId target;
  CopyList copies;

  friend bool operator==(const PlanPart&, const PlanPart&) = default;
};

/// A plan is a pure function of a set of manifests: the same set, in whatever order, gives the
/// same plan and digest. Computed once per membership, replayed for every version.
struct Plan {
  std::vector<PlanSource> sources;  ///< Sorted by shard; every trainer shard, read from or not.
  std::vector<PlanPart> parts;      ///< Sorted by target; one for every rollout shard.
  std::vector<std::string> unused;  ///< Sorted names of source tensors that nobody needs.
  Digest digest;                    ///< Over everything above, save the regions' tickets.

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Over sources (without tickets, which differ from run to run), parts and unused names: what both
/// sides compare. Of copies that several parts share, a digest is made once.
Digest digest_of(const Plan& plan);

}  // namespace weir
