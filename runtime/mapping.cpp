#include "runtime/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/assert.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace weir {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

tl::unexpected<Error> mapping_failure(const char* what, std::size_t bytes, int error) {
  const bool no_room = error == ENOMEM || error == ENOSPC || error == EAGAIN;
  return failure(
      no_room ? ErrorCode::refused : ErrorCode::io,
      std::string("can't ") + what + " " + std::to_string(bytes) +
          " bytes of memory: " + std::strerror(error) +
          (no_room ? "; free memory, or raise this process's limits (ulimit -v, -d)" : ""));
}

/// Reserves a range of addresses that starts at a huge page where that can matter: a file mapping
/// only gets huge pages when its address and its offset agree, and the kernel does not see to it.
void* reserve(std::size_t bytes, bool huge_pages) {
  const std::size_t slack = huge_pages && bytes >= huge_page_bytes ? huge_page_bytes : 0;
  void* raw =
      mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED || slack == 0) return raw;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = (start + slack - 1) & ~(slack - 1);
  if (aligned > start) munmap(raw, aligned - start);
  const std::uintptr_t end = start + bytes + slack;
  if (end > aligned + bytes)
    munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
  return reinterpret_cast<void*>(aligned);
}

/// One access a page, for kernels older than 5.14, which can't fault pages in on request.
void touch(std::span<std::byte> bytes, bool writable) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t offset = 0; offset < bytes.size(); offset += page) {
    volatile std::byte& byte = bytes[offset];
    const std::byte value = byte;
    if (writable) byte = value;
  }
}

Result<void> fault_in(std::span<std::byte> bytes, const MappingOptions& options) {
  const int advice = options.writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  int outcome = 0;
  do {
    outcome = madvise(bytes.data(), bytes.size(), advice);
  } while (outcome != 0 && errno == EINTR);
  if (outcome == 0) return {};
  // EFAULT stands for what would have been a SIGBUS: the file could not give the page.
  if (errno != EINVAL) {
    return mapping_failure("fault in", bytes.size(), errno == EFAULT ? ENOMEM : errno);
  }
  if (options.descriptor >= 0 && options.writable) {
    const int error = posix_fallocate(options.descriptor, 0, static_cast<off_t>(bytes.size()));
    if (error != 0) return mapping_failure("allocate", bytes.size(), error);
  }
  touch(bytes, options.writable);
  return {};
}

}  // namespace

Result<std::unique_ptr<Mapping>> Mapping::map(const MappingOptions& options) {
  WEIR_ASSERT(options.bytes > 0);
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (options.bytes > (std::uint64_t{1} << 46)) {
    return mapping_failure("map", options.bytes, ENOMEM);
  }
  const std::size_t length = (options.bytes + page - 1) & ~(page - 1);
  void* address = reserve(length, options.huge_pages);
  if (address == MAP_FAILED) return mapping_failure("map", options.bytes, errno);
  const int protection = PROT_READ | (options.writable ? PROT_WRITE : 0);
  const int flags = MAP_FIXED | (options.descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(address, length, protection, flags, options.descriptor, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(address, length);
    return mapping_failure("map", options.bytes, error);
  }
  std::span bytes(static_cast<std::byte*>(address), options.bytes);
  std::unique_ptr<Mapping> mapping(new Mapping(bytes));
  // A kernel built without huge pages refuses the advice, which changes speed and nothing else.
  if (options.huge_pages) madvise(address, length, MADV_HUGEPAGE);
  if (options.prefault) {
    if (Result<void> faulted = fault_in(bytes, options); !faulted) return failure(faulted);
  }
  return mapping;
}

Mapping::~Mapping() {
  munmap(bytes_.data(), bytes_.size());
}

}  // namespace weir
