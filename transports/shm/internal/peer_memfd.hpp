#pragma once
// Maps a memfd of another process, once it has proved to be the one that the ticket means.

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/mapping.hpp"
#include "transports/shm/internal/ticket.hpp"

namespace weir::shm {

/// Maps a shared region read-only. Errors: `unavailable` (the descriptor is closed or stands for
/// another file), `invalid` (not a memfd of that size that is sealed against shrinking), `refused`
/// (the kernel forbids the look into the owner, or has no room).
Result<std::unique_ptr<Mapping>> map_peer_memfd(const Ticket& ticket);

/// Mappings in use, so that many fetches from one region share one. Threading: any.
class MappingCache {
 public:
  /// As `map_peer_memfd`; the mapping ends with its last user.
  Result<std::shared_ptr<const Mapping>> map(const Ticket& ticket);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<const Mapping>> mappings_;
};

}  // namespace weir::shm
