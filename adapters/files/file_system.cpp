#include "adapters/files/file_system.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

namespace weir {
namespace {

constexpr std::size_t quoted_bytes_max = 200;

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

tl::unexpected<Error> system_failure(std::string_view doing, const std::filesystem::path& path,
                                     int number) {
  ErrorCode code = ErrorCode::io;
  if (number == ENOENT || number == ENOTDIR) code = ErrorCode::not_found;
  if (number == ENOSPC || number == EDQUOT) code = ErrorCode::refused;
  return failure(code, "cannot " + std::string(doing) + " " + path.string() + ": " +
                           std::generic_category().message(number));
}

Result<Descriptor> open_for_reading(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return system_failure("open", path, errno);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) return system_failure("examine", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return failure(ErrorCode::invalid, path.string() + " is not a regular file");
  }
  return file;
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const Result<Descriptor> file = open_for_reading(path);
  if (!file) return failure(file);
  std::string text;
  std::size_t used = 0;
  while (true) {
    text.resize(used + 65536);
    const ssize_t count = ::read(file->number(), text.data() + used, text.size() - used);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure("read", path, errno);
    used += static_cast<std::size_t>(count);
    if (used > bytes_max) {
      return failure(ErrorCode::refused, path.string() + " is larger than the " +
                                             std::to_string(bytes_max) +
                                             " bytes that such a file may have");
    }
    if (count == 0) break;
  }
  text.resize(used);
  return text;
}

Result<void> write_text_file(const std::filesystem::path& path, std::string_view text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.number() < 0) return system_failure("create", path, errno);
  while (!text.empty()) {
    const ssize_t count = ::write(file.number(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(file.number()) != 0) return system_failure("write", path, errno);
  return {};
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() < 0) return system_failure("open", folder, errno);
  // Some file systems cannot sync a folder and say EINVAL; their renames are durable or never are.
  if (::fsync(opened.number()) != 0 && errno != EINVAL) {
    return system_failure("sync", folder, errno);
  }
  return {};
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

std::string quoted_name(std::string_view name) {
  const bool cut = name.size() > quoted_bytes_max;
  if (cut) name = name.substr(0, quoted_bytes_max);
  const nlohmann::json text = std::string(name);
  std::string result = text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return cut ? result + "…" : result;
}

}  // namespace weir
