#include "transports/rdma/rdma_devices.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include "transports/rdma/internal/device.hpp"

namespace weir {
namespace {

/// Far more than a card has by default; those past it are not looked at.
constexpr std::size_t gids_max = 256;

/// The entry of the GID table that belongs to the device's address.
std::string gid_of(const rdma::Device& device) {
  std::array<ibv_gid_entry, gids_max> entries{};
  const ssize_t count = ibv_query_gid_table(device.context(), entries.data(), entries.size(), 0);
  std::string text;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    if (std::memcmp(entry.gid.raw, device.address().data(), device.address().size()) != 0) continue;
    const bool newer = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    if (text.empty() || newer) {
      text = "GID " + std::to_string(entry.gid_index) + ", RoCE v" + (newer ? "2" : "1");
    }
  }
  return text;
}

/// A device that could register such memory finds fault with the descriptor only.
bool takes_dma_buf(const rdma::Device& device) {
  constexpr int no_descriptor = -1;
  errno = 0;
  ibv_mr* const region = ibv_reg_dmabuf_mr(device.domain(), 0, 4096, 0, no_descriptor, 0);
  if (region != nullptr) ibv_dereg_mr(region);
  return errno == EBADF;
}

}  // namespace

Result<std::vector<RdmaDevice>> rdma_devices() {
  const auto channel = rdma::open_channel();
  if (!channel) return failure(channel);
  const auto devices = rdma::open_devices(channel->get(), {});
  if (!devices) return failure(devices);
  std::vector<RdmaDevice> found;
  for (const auto& device : *devices) {
    found.push_back({.name = device->name(),
                     .address = rdma::text_of(device->address()),
                     .active = device->active(),
                     .megabits_per_second = device->megabits_per_second(),
                     .gid = gid_of(*device),
                     .message_bytes_max = device->message_bytes_max(),
                     .reads_in_flight_max = device->reads_as_reader(),
                     .dma_buf = takes_dma_buf(*device)});
  }
  return found;
}

}  // namespace weir
