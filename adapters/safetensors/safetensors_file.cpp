#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "adapters/files/file_system.hpp"
#include "adapters/safetensors/internal/header.hpp"
#include "adapters/safetensors/internal/pages.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/assert.hpp"

namespace weir {

std::uint64_t bytes_of(const FileTensor& tensor) noexcept {
  std::uint64_t bytes = size_of(tensor.type);
  for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::filesystem::path& path) {
  const Result<Descriptor> descriptor = open_for_reading(path);
  if (!descriptor) return failure(descriptor);
  struct stat status {};
  if (::fstat(descriptor->number(), &status) != 0) return system_failure("examine", path, errno);
  const auto bytes = static_cast<std::size_t>(status.st_size);

  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  if (bytes > 0) {
    void* start = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor->number(), 0);
    if (start == MAP_FAILED) return system_failure("map", path, errno);
    file->mapping_ = {static_cast<const std::byte*>(start), bytes};
  }
  Result<SafetensorsHeader> header = parse_safetensors_header(file->mapping_);
  if (!header) {
    return failure(header.error().code, path.string() + ": " + header.error().text);
  }
  file->metadata_ = std::move(header->metadata);
  for (PlacedTensor& placed : header->tensors) {
    file->tensors_.push_back(std::move(placed.tensor));
    file->offsets_.push_back(placed.begin);
  }
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (!mapping_.empty()) {
    ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
  }
}

std::span<const std::byte> SafetensorsFile::data(std::size_t index) const noexcept {
  WEIR_ASSERT(index < tensors_.size());
  return mapping_.subspan(offsets_[index], bytes_of(tensors_[index]));
}

void SafetensorsFile::release(std::size_t index) const noexcept {
  const std::span<const std::byte> pages = pages_around(mapping_, data(index));
  // The mapping is shared and of a file, so pages dropped here come back as they are when read.
  if (!pages.empty()) {
    ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
  }
}

}  // namespace weir
