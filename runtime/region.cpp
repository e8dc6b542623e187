#include "runtime/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/available_memory.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace weir {
namespace {

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

Result<void> check_room(std::uint64_t bytes) {
  const std::uint64_t available = available_memory_bytes();
  if (bytes <= available) return {};
  return failure(ErrorCode::refused,
                 "a region of " + mebibytes(bytes) + " is wanted but only " + mebibytes(available) +
                     " of memory are available; free memory, raise the container's memory limit "
                     "or use fewer or smaller shards");
}

tl::unexpected<Error> memfd_failure(const char* what, std::uint64_t bytes, int error) {
  return failure(error == ENOMEM || error == EFBIG ? ErrorCode::refused : ErrorCode::io,
                 std::string("can't ") + what + " a shared region of " + mebibytes(bytes) + ": " +
                     std::strerror(error));
}

/// A memfd whose size can never change again: a peer that maps it can't be hurt by a SIGBUS.
Result<int> make_memfd(std::uint64_t bytes) {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int descriptor = memfd_create("weir-region", flags | MFD_NOEXEC_SEAL);
  // Kernels older than 6.3 do not know the second flag; newer ones may be set to demand it.
  if (descriptor < 0 && errno == EINVAL) descriptor = memfd_create("weir-region", flags);
  if (descriptor < 0) return memfd_failure("make", bytes, errno);
  const bool sized = ftruncate(descriptor, static_cast<off_t>(bytes)) == 0;
  if (!sized || fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(descriptor);
    return memfd_failure(sized ? "seal" : "size", bytes, error);
  }
  return descriptor;
}

}  // namespace

Result<std::unique_ptr<Region>> Region::allocate(const RegionOptions& options) {
  if (options.kind == RegionKind::device) {
    return failure(ErrorCode::invalid, "a region of device memory can't be made as host memory");
  }
  if (options.bytes == 0) {
    return failure(ErrorCode::invalid, "a region needs at least one byte, 0 were asked for");
  }
  if (Result<void> room = check_room(options.bytes); !room) return failure(room);
  MappingOptions wanted{
      .bytes = options.bytes, .huge_pages = options.huge_pages, .prefault = options.prefault};
  if (options.kind == RegionKind::host_shared) {
    const Result<int> descriptor = make_memfd(options.bytes);
    if (!descriptor) return failure(descriptor);
    wanted.descriptor = *descriptor;
  }
  Result<std::unique_ptr<Mapping>> mapping = Mapping::map(wanted);
  if (!mapping) {
    if (wanted.descriptor >= 0) close(wanted.descriptor);
    return failure(mapping);
  }
  const std::span<std::byte> bytes = (*mapping)->bytes();
  return std::unique_ptr<Region>(
      new Region(options.kind, bytes, wanted.descriptor, std::move(*mapping)));
}

std::unique_ptr<Region> Region::borrow(std::span<std::byte> bytes) {
  return std::unique_ptr<Region>(new Region(RegionKind::host_private, bytes, -1, nullptr));
}

Region::~Region() {
  mapping_.reset();
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace weir
