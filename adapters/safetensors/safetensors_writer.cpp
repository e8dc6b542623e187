#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "adapters/files/file_system.hpp"
#include "adapters/safetensors/internal/file_plan.hpp"
#include "adapters/safetensors/internal/pages.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

/// So many writers of one process may be at work on one path at once.
constexpr int temporary_names_max = 100;

Result<void> check_target(const std::filesystem::path& path) {
  std::error_code error;
  switch (std::filesystem::symlink_status(path, error).type()) {
    case std::filesystem::file_type::not_found:
    case std::filesystem::file_type::regular:
      return {};
    case std::filesystem::file_type::symlink:
      return failure(ErrorCode::refused, path.string() +
                                             " is a symbolic link, which is not replaced: "
                                             "remove it or write to where it points");
    default:
      return failure(ErrorCode::refused,
                     path.string() + " exists and is no file: remove it or name another");
  }
}

Result<void> check_space(const std::filesystem::path& folder, std::uint64_t bytes) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return system_failure("examine", folder, errno);
  const std::uint64_t free = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  if (bytes <= free) return {};
  return failure(ErrorCode::refused, "not enough space in " + folder.string() + ": " +
                                         std::to_string(bytes) + " bytes needed, " +
                                         std::to_string(free) +
                                         " free: make room or choose another folder");
}

/// Creates a new file beside `path`; the process's own umask decides on its permissions.
Result<std::pair<std::filesystem::path, int>> create_beside(const std::filesystem::path& path) {
  const std::string stem =
      "." + path.filename().string() + ".tmp-" + std::to_string(::getpid()) + "-";
  for (int number = 0; number < temporary_names_max; ++number) {
    std::filesystem::path temporary = folder_of(path) / (stem + std::to_string(number));
    const int descriptor = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return std::pair(std::move(temporary), descriptor);
    if (errno != EEXIST) return system_failure("create", temporary, errno);
  }
  return failure(ErrorCode::refused, "too many temporary files " + stem + "* in " +
                                         folder_of(path).string() + ": remove them");
}

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(
    const std::filesystem::path& path, const std::vector<FileTensor>& tensors,
    const FileMetadata& metadata) {
  const Result<SafetensorsPlan> plan = plan_safetensors_file(tensors, metadata);
  if (!plan) return failure(plan.error().code, path.string() + " " + plan.error().text);
  if (auto target = check_target(path); !target) return failure(target);
  if (auto space = check_space(folder_of(path), plan->file_bytes); !space) return failure(space);

  auto created = create_beside(path);
  if (!created) return failure(created);
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  writer->path_ = path;
  writer->temporary_ = std::move(created->first);
  writer->descriptor_ = created->second;
  // Writing a mapped page for which the disk has no block would kill the process, so every block
  // is had now. (posix_fallocate returns its error.)
  const int number =
      ::posix_fallocate(writer->descriptor_, 0, static_cast<off_t>(plan->file_bytes));
  if (number != 0) return system_failure("reserve space for", path, number);
  void* start =
      ::mmap(nullptr, plan->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer->descriptor_, 0);
  if (start == MAP_FAILED) return system_failure("map", writer->temporary_, errno);
  writer->mapping_ = {static_cast<std::byte*>(start), plan->file_bytes};
  const auto head = std::as_bytes(std::span(plan->head));
  std::copy(head.begin(), head.end(), writer->mapping_.begin());
  writer->offsets_ = plan->begins;
  writer->sizes_.reserve(tensors.size());
  for (const FileTensor& tensor : tensors) writer->sizes_.push_back(bytes_of(tensor));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!mapping_.empty()) ::munmap(mapping_.data(), mapping_.size());
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

std::span<std::byte> SafetensorsWriter::data(std::size_t index) const noexcept {
  WEIR_ASSERT(!mapping_.empty() && index < offsets_.size());
  return mapping_.subspan(offsets_[index], sizes_[index]);
}

void SafetensorsWriter::flush(std::size_t index) const noexcept {
  const std::span<const std::byte> pages = pages_around(mapping_, data(index));
  if (pages.empty()) return;
  // Letting go of a shared file mapping's pages loses nothing: they stay dirty in the page cache,
  // also where another thread writes to a neighbour on the same page.
  ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
  ::sync_file_range(descriptor_, pages.data() - mapping_.data(), static_cast<off_t>(pages.size()),
                    SYNC_FILE_RANGE_WRITE);
}

Result<void> SafetensorsWriter::commit() {
  WEIR_ASSERT(!mapping_.empty());
  ::munmap(mapping_.data(), mapping_.size());
  mapping_ = {};
  if (::fsync(descriptor_) != 0) return system_failure("write", path_, errno);
  if (auto target = check_target(path_); !target) return target;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return system_failure("rename to", path_, errno);
  }
  temporary_.clear();
  return sync_folder(folder_of(path_));
}

}  // namespace weir
