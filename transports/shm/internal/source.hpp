#pragma once
// The ways to read a peer's region. One source per region and fetch.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/mapping.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"
#include "transports/shm/internal/process.hpp"
#include "transports/shm/internal/ticket.hpp"

namespace weir::shm {

/// The target regions of a fetch, by index.
using Targets = std::vector<std::span<std::byte>>;

/// Threading: `read` from several threads at once, for disjoint targets.
class Source {
 public:
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Cuts a checked copy into parts that `read` can do, of about `part_bytes` or less.
  [[nodiscard]] virtual std::vector<Copy> cut(const Copy& copy, std::uint64_t part_bytes) const = 0;
  /// Does copies that `cut` made. Returns early, with anything, once `stop` is true.
  /// Errors: `unavailable` (the owner has gone or took the region back), `timeout`, `refused`.
  virtual Result<void> read(std::span<const Copy> copies, const Targets& targets,
                            const std::atomic<bool>& stop) = 0;

 protected:
  Source() = default;
};

/// From a mapped memfd: one copy, no staging.
std::unique_ptr<Source> make_mapped_source(std::shared_ptr<const Mapping> mapping);

/// With `process_vm_readv`. Errors: `refused` when the kernel's policy or a filter forbids the
/// call (another way must be found), `unavailable` when the region is not there.
Result<std::unique_ptr<Source>> make_direct_source(const Ticket& ticket,
                                                   std::shared_ptr<const PeerProcess> owner);

class StagingClient;

/// Through the staging ring of the owner's transport.
std::unique_ptr<Source> make_staged_source(std::uint64_t region,
                                           std::shared_ptr<StagingClient> client);

}  // namespace weir::shm
