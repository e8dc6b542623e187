#pragma once
// Regions: the few large blocks of memory that pieces lie in and transports move bytes between.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "runtime/manifest.hpp"
#include "runtime/mapping.hpp"
#include "runtime/result.hpp"

namespace weir {

/// How a region of host memory is made. Sizes are in bytes.
struct RegionOptions {
  RegionKind kind = RegionKind::host_private;  ///< `host_private` or `host_shared`.
  std::uint64_t bytes = 0;
  /// Ask for huge pages where the kernel allows them (madvise); plain pages otherwise.
  bool huge_pages = true;
  /// Fault every page in now: a first touch is tens of times slower than a copy, and without it
  /// a lack of memory shows later, as a signal and not as an error.
  bool prefault = true;
};

/// One block of memory, zeroed when made, unmapped when destroyed. A resource: neither copied nor
/// moved, held by `unique_ptr`, and it must outlive every transfer that uses it.
/// Threading: the object is immutable after it is made; who may touch its bytes when is decided by
/// versions and leases, not here.
class Region {
 public:
  /// A shared region is a memfd sealed against shrinking and growing; it takes no room in /dev/shm.
  /// Errors: `refused` when memory is too small (says how much is wanted and free), `invalid` for a
  /// size of zero or a kind that is not host memory, `io` otherwise.
  static Result<std::unique_ptr<Region>> allocate(const RegionOptions& options);

  /// Borrows memory that someone else owns (a mapped file, an engine's tensor) as a private
  /// region; the memory must outlive the region. `bytes` may be read-only memory, so long as the
  /// region is only ever a source.
  static std::unique_ptr<Region> borrow(std::span<std::byte> bytes);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] RegionKind kind() const noexcept { return kind_; }
  /// Valid for the life of the region.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The memfd of a shared region, -1 for others. Owned by the region.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  Region(RegionKind kind, std::span<std::byte> bytes, int descriptor,
         std::unique_ptr<Mapping> mapping) noexcept
      : kind_(kind), bytes_(bytes), descriptor_(descriptor), mapping_(std::move(mapping)) {}

  RegionKind kind_;
  std::span<std::byte> bytes_;
  int descriptor_;
  std::unique_ptr<Mapping> mapping_;  ///< Null for borrowed memory.
};

}  // namespace weir
