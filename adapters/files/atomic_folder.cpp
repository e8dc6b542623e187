#include "adapters/files/atomic_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

namespace weir {
namespace {

/// That `target` is free, or a folder that may be replaced.
Result<void> require_room(const std::filesystem::path& target, ExistingFolder existing) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(target, error);
  if (status.type() == std::filesystem::file_type::not_found) return {};
  const bool folder = status.type() == std::filesystem::file_type::directory;
  if (folder && existing == ExistingFolder::replace) return {};
  return failure(ErrorCode::refused,
                 target.string() + " exists already: remove it or name another folder");
}

Result<void> remove_content(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; entry != end;
       entry.increment(error)) {
    if (error) break;
    std::filesystem::remove_all(entry->path(), error);
    if (error) break;
  }
  if (error) return system_failure("clear", folder, error.value());
  return {};
}

}  // namespace

Result<std::unique_ptr<AtomicFolder>> AtomicFolder::create(const std::filesystem::path& target,
                                                           ExistingFolder existing) {
  std::unique_ptr<AtomicFolder> folder(new AtomicFolder);
  folder->existing_ = existing;
  // "dir/" has an empty file name; the folder meant is "dir".
  folder->target_ = target.has_filename() ? target : target.parent_path();
  const std::filesystem::path parent = folder_of(folder->target_);
  folder->partial_ = parent / ("." + folder->target_.filename().string() + ".partial");
  if (auto room = require_room(folder->target_, existing); !room) return failure(room);

  if (::mkdir(folder->partial_.c_str(), 0777) != 0 && errno != EEXIST) {
    return system_failure("make folder", folder->partial_, errno);
  }
  folder->lock_ =
      Descriptor(::open(folder->partial_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder->lock_.number() < 0) return system_failure("open", folder->partial_, errno);
  if (::flock(folder->lock_.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_failure("lock", folder->partial_, errno);
    return failure(ErrorCode::refused, "another process is making " + folder->target_.string() +
                                           " now: wait for it, or name another folder");
  }
  folder->ours_ = true;
  if (auto cleared = remove_content(folder->partial_); !cleared) return failure(cleared);
  return folder;
}

AtomicFolder::~AtomicFolder() {
  if (!ours_) return;
  std::error_code ignored;
  std::filesystem::remove_all(partial_, ignored);
}

Result<void> AtomicFolder::commit() {
  if (auto synced = sync_folder(partial_); !synced) return synced;
  if (auto room = require_room(target_, existing_); !room) return room;
  // An empty folder is replaced by a plain rename; another one is exchanged, then removed.
  const bool renamed = ::rename(partial_.c_str(), target_.c_str()) == 0;
  const bool occupied = !renamed && (errno == ENOTEMPTY || errno == EEXIST);
  if (occupied &&
      ::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    std::error_code ignored;
    std::filesystem::remove_all(partial_, ignored);
  } else if (!renamed) {
    return system_failure("rename to", target_, errno);
  }
  ours_ = false;
  return sync_folder(folder_of(target_));
}

}  // namespace weir
