#include "transports/rdma/internal/memory.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace weir::rdma {
namespace {

int flags_of(Access access) noexcept {
  // Relaxed ordering lets a card write to memory in any order, where it knows how; a completion
  // still comes after all that it stands for.
  int flags = IBV_ACCESS_RELAXED_ORDERING;
  if (access != Access::source) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access != Access::target) flags |= IBV_ACCESS_REMOTE_READ;
  return flags;
}

Error registration_error(const Device& device, std::size_t bytes, int number) {
  std::string text = "can't register " + std::to_string(bytes) + " bytes of memory with " +
                     device.name() + ": " + std::strerror(number);
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  if (number == ENOMEM && locked.rlim_cur != RLIM_INFINITY) {
    text += "; this process may lock " + std::to_string(locked.rlim_cur) +
            " bytes (ulimit -l, RLIMIT_MEMLOCK): allow more with `ulimit -l unlimited`, in "
            "/etc/security/limits.conf, with LimitMEMLOCK=infinity in a systemd unit, or with "
            "--ulimit memlock=-1 for a container";
    return {ErrorCode::refused, text};
  }
  return {ErrorCode::io, text};
}

}  // namespace

Result<std::shared_ptr<const Registration>> Registration::make(const Devices& devices,
                                                               std::span<std::byte> bytes,
                                                               Access access) {
  const std::shared_ptr<Registration> registration(new Registration);
  for (const auto& device : devices) {
    ibv_mr* const region =
        ibv_reg_mr(device->domain(), bytes.data(), bytes.size(), flags_of(access));
    if (region == nullptr) {
      return tl::unexpected(registration_error(*device, bytes.size(), errno));
    }
    registration->regions_.push_back(region);
  }
  return registration;
}

Registration::~Registration() {
  for (ibv_mr* const region : regions_) ibv_dereg_mr(region);
}

Result<std::shared_ptr<const Registration>> Memory::expose(std::span<std::byte> bytes) {
  auto both = Registration::make(devices_, bytes, Access::exposed);
  if (both) {
    const std::lock_guard lock(mutex_);
    targets_[{bytes.data(), bytes.size()}] = *both;
    return both;
  }
  // Memory that is mapped read-only can still be a source.
  if (both.error().code == ErrorCode::refused) return both;
  auto source = Registration::make(devices_, bytes, Access::source);
  return source ? std::move(source) : std::move(both);
}

Result<std::shared_ptr<const Registration>> Memory::target(std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(targets_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = targets_[{bytes.data(), bytes.size()}];
  if (auto registration = known.lock()) return registration;
  auto registration = Registration::make(devices_, bytes, Access::target);
  if (registration) known = *registration;
  return registration;
}

}  // namespace weir::rdma
