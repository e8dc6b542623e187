#pragma once
// Mapped memory: the one place that calls mmap for memory that weights live in.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/result.hpp"

namespace weir {

/// Sizes are in bytes.
struct MappingOptions {
  std::uint64_t bytes = 0;
  /// A file to map shared, from its start; -1 for anonymous private memory.
  int descriptor = -1;
  bool writable = true;
  /// Align to huge pages and ask for them (madvise); the kernel may still give plain pages.
  bool huge_pages = true;
  /// Fault every page in now. Failures then come as errors and not as signals.
  bool prefault = true;
};

/// A mapped range of memory, unmapped when destroyed. A resource: neither copied nor moved.
/// Threading: immutable after it is made.
class Mapping {
 public:
  /// Errors: `refused` when the kernel has no room for it, `io` otherwise.
  static Result<std::unique_ptr<Mapping>> map(const MappingOptions& options);

  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// Valid for the life of the mapping. Writing to one that is not writable is a fault.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

}  // namespace weir
