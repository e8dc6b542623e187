#include "transports/shm/internal/peer_memfd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "transports/shm/internal/unix_socket.hpp"

namespace weir::shm {
namespace {

tl::unexpected<Error> open_failure(const Ticket& ticket, int error) {
  const std::string who = text_of(ticket.owner);
  if (error == EACCES || error == EPERM) {
    return failure(ErrorCode::refused,
                   "the kernel forbids opening the shared region of " + who +
                       "; run both processes as one user, and the owner dumpable (prctl)");
  }
  return failure(ErrorCode::unavailable,
                 "can't open the shared region of " + who + ": " + std::strerror(error));
}

}  // namespace

Result<std::unique_ptr<Mapping>> map_peer_memfd(const Ticket& ticket) {
  const std::string link =
      "/proc/" + std::to_string(ticket.owner.pid) + "/fd/" + std::to_string(ticket.descriptor);
  // First only a handle, which opens nothing: the number may stand for a pipe or a device by now.
  const Descriptor handle(open(link.c_str(), O_PATH | O_CLOEXEC));
  if (!handle.valid()) return open_failure(ticket, errno);
  struct stat status {};
  if (fstat(handle.get(), &status) != 0) return open_failure(ticket, errno);
  if (status.st_dev != ticket.device || status.st_ino != ticket.inode) {
    return failure(ErrorCode::unavailable,
                   "the shared region of " + text_of(ticket.owner) +
                       " is closed: its descriptor stands for another file now");
  }
  if (!S_ISREG(status.st_mode) || status.st_size != static_cast<off_t>(ticket.bytes)) {
    return failure(ErrorCode::invalid, "the shared region of " + text_of(ticket.owner) +
                                           " is not a memfd of " + std::to_string(ticket.bytes) +
                                           " bytes");
  }
  const std::string own_link = "/proc/self/fd/" + std::to_string(handle.get());
  const Descriptor file(open(own_link.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return open_failure(ticket, errno);
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return failure(ErrorCode::invalid, "the shared region of " + text_of(ticket.owner) +
                                           " is not sealed against shrinking");
  }
  return Mapping::map(
      {.bytes = ticket.bytes, .descriptor = file.get(), .writable = false, .prefault = true});
}

Result<std::shared_ptr<const Mapping>> MappingCache::map(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  const std::pair key(ticket.device, ticket.inode);
  if (auto found = mappings_[key].lock(); found && found->bytes().size() == ticket.bytes) {
    return found;
  }
  std::erase_if(mappings_, [](const auto& entry) { return entry.second.expired(); });
  Result<std::unique_ptr<Mapping>> mapping = map_peer_memfd(ticket);
  if (!mapping) return failure(mapping);
  std::shared_ptr<const Mapping> shared = std::move(*mapping);
  mappings_[key] = shared;
  return shared;
}

}  // namespace weir::shm
