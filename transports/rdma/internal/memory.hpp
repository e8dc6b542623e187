#pragma once
// Memory that the devices may read or write: registered once for each region.

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/result.hpp"
#include "transports/rdma/internal/device.hpp"

namespace weir::rdma {

/// Who may do what with registered memory.
enum class Access : std::uint8_t {
  target,   ///< Our READs write to it.
  source,   ///< Peers that have the key read it.
  exposed,  ///< Both.
};

/// Memory registered with every device, from its making to its end. It must stay mapped that long.
class Registration {
 public:
  /// Errors: `refused` (too little memory may be locked: says how much and how to allow more),
  /// `io`.
  static Result<std::shared_ptr<const Registration>> make(const Devices& devices,
                                                          std::span<std::byte> bytes,
                                                          Access access);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  [[nodiscard]] std::uint32_t local_key(std::size_t device) const noexcept {
    return regions_[device]->lkey;
  }
  [[nodiscard]] std::uint32_t remote_key(std::size_t device) const noexcept {
    return regions_[device]->rkey;
  }

 private:
  Registration() = default;
  std::vector<ibv_mr*> regions_;  ///< By device.
};

/// The registrations in use, so that many fetches into one region share one, and a region that is
/// also exposed has only that. Threading: any.
class Memory {
 public:
  explicit Memory(const Devices& devices) noexcept : devices_(devices) {}

  /// For peers to read; for our READs, too, unless the memory can only be read.
  Result<std::shared_ptr<const Registration>> expose(std::span<std::byte> bytes);
  /// For our READs; ends with the last user.
  Result<std::shared_ptr<const Registration>> target(std::span<std::byte> bytes);

 private:
  const Devices& devices_;
  std::mutex mutex_;
  std::map<std::pair<std::byte*, std::size_t>, std::weak_ptr<const Registration>> targets_;
};

}  // namespace weir::rdma
