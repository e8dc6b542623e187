#include "transports/rdma/internal/device.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "transports/rdma/internal/steps.hpp"

namespace weir::rdma {
namespace {

constexpr std::size_t ipv4_at = 12;
/// Requests to connect that may wait while the thread that answers them is busy.
constexpr int backlog = 128;
/// What any card can do; `Step` counts on it.
constexpr std::uint64_t message_bytes_least = 4096;

Address address_of(const sockaddr& socket_address) noexcept {
  Address address{};
  if (socket_address.sa_family == AF_INET6) {
    std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in6&>(socket_address).sin6_addr,
                address.size());
  } else {
    address[10] = address[11] = 0xff;
    std::memcpy(address.data() + ipv4_at,
                &reinterpret_cast<const sockaddr_in&>(socket_address).sin_addr, 4);
  }
  return address;
}

Address mask_of(const sockaddr* socket_mask) noexcept {
  Address mask{};
  if (socket_mask == nullptr) return mask;
  mask = address_of(*socket_mask);
  if (socket_mask->sa_family == AF_INET) std::fill_n(mask.begin(), ipv4_at, std::uint8_t{0xff});
  return mask;
}

bool link_local(const Address& address) noexcept {
  return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

/// An address of this host, which may be an RDMA device's.
struct LocalAddress {
  Address address{};
  Address mask{};
};

/// IPv4 before IPv6, which is how a port's address is chosen.
std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const LocalAddress local{address_of(*entry->ifa_addr), mask_of(entry->ifa_netmask)};
    if (!link_local(local.address)) found.push_back(local);
  }
  freeifaddrs(all);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return is_ipv4(a.address) && !is_ipv4(b.address);
  });
  return found;
}

/// See `bytes_in_flight_max`. A Mb/s is a bit in a microsecond.
constexpr std::uint64_t in_flight_microseconds = 80;
constexpr std::uint64_t in_flight_least = 2 * step_bytes_max;
constexpr std::uint64_t in_flight_most = std::uint64_t{4} << 20;

std::string because() {
  return std::string(": ") + std::strerror(errno);
}

}  // namespace

Result<Channel> open_channel() {
  Channel channel(rdma_create_event_channel());
  if (!channel) {
    return failure(ErrorCode::refused,
                   "no RDMA here: can't open /dev/infiniband/rdma_cm" + because() +
                       "; load the kernel module rdma_ucm, and give a container the devices "
                       "(--device=/dev/infiniband)");
  }
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  return channel;
}

sockaddr_in6 ipv6_socket_address(const Address& address, std::uint16_t port) noexcept {
  sockaddr_in6 result{};
  result.sin6_family = AF_INET6;
  result.sin6_port = htons(port);
  std::memcpy(&result.sin6_addr, address.data(), address.size());
  return result;
}

sockaddr_in ipv4_socket_address(const Address& address, std::uint16_t port) noexcept {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  std::memcpy(&result.sin_addr, address.data() + ipv4_at, 4);
  return result;
}

Device::~Device() {
  if (completions_ != nullptr) ibv_destroy_cq(completions_);
  if (completion_channel_ != nullptr) ibv_destroy_comp_channel(completion_channel_);
  if (domain_ != nullptr) ibv_dealloc_pd(domain_);
  if (listener_ != nullptr) rdma_destroy_id(listener_);
}

bool Device::near(const Address& other) const noexcept {
  if (is_ipv4(other) != is_ipv4(address_)) return false;
  for (std::size_t i = 0; i < address_.size(); ++i) {
    if ((address_[i] & mask_[i]) != (other[i] & mask_[i])) return false;
  }
  return true;
}

std::string Device::text() const {
  return name_ + " (" + text_of(address_) + ")";
}

bool Device::active() const noexcept {
  ibv_port_attr port{};
  return ibv_query_port(listener_->verbs, listener_->port_num, &port) == 0 &&
         port.state == IBV_PORT_ACTIVE;
}

std::uint64_t Device::megabits_per_second() const noexcept {
  ibv_port_attr port{};
  if (ibv_query_port(context(), listener_->port_num, &port) != 0) return 0;
  // The codes of speeds and widths in the InfiniBand specification's PortInfo.
  static constexpr std::pair<int, std::uint64_t> speeds[] = {{1, 2500},   {2, 5000},    {4, 10000},
                                                             {8, 10000},  {16, 14000},  {32, 25000},
                                                             {64, 50000}, {128, 100000}};
  static constexpr std::pair<int, std::uint64_t> widths[] = {
      {1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  const auto meaning = [](const auto& codes, int code) {
    for (const auto& [known, value] : codes) {
      if (known == code) return value;
    }
    return std::uint64_t{0};
  };
  return meaning(speeds, port.active_speed) * meaning(widths, port.active_width);
}

Result<void> Device::open() {
  const auto cannot = [this](const std::string& what) {
    return failure(ErrorCode::io, "can't " + what + " on " + text() + because());
  };
  ibv_device_attr limits{};
  ibv_port_attr port{};
  if (ibv_query_device(context(), &limits) != 0 ||
      ibv_query_port(context(), listener_->port_num, &port) != 0) {
    return cannot("look at the limits");
  }
  message_bytes_max_ = std::max<std::uint64_t>(port.max_msg_sz, message_bytes_least);
  const std::uint64_t rate = megabits_per_second();
  bytes_in_flight_max_ =
      rate == 0 ? in_flight_most
                : std::clamp(rate * in_flight_microseconds / 8, in_flight_least, in_flight_most);
  const auto reads = [](int most) {
    return static_cast<std::uint8_t>(std::clamp<int>(most, 1, device_reads_max));
  };
  reads_as_reader_ = reads(limits.max_qp_init_rd_atom);
  reads_as_source_ = reads(limits.max_qp_rd_atom);
  const int entries = std::min(limits.max_cqe, completions_max);
  connections_max_ = static_cast<std::uint32_t>(entries) / connection_reads_max;
  domain_ = ibv_alloc_pd(context());
  if (domain_ == nullptr) return cannot("allocate a protection domain");
  completion_channel_ = ibv_create_comp_channel(context());
  if (completion_channel_ == nullptr) return cannot("open a completion channel");
  fcntl(completion_channel_->fd, F_SETFL, fcntl(completion_channel_->fd, F_GETFL) | O_NONBLOCK);
  completions_ = ibv_create_cq(context(), entries, nullptr, completion_channel_, 0);
  if (completions_ == nullptr) return cannot("create a completion queue");
  if (rdma_listen(listener_, backlog) != 0) return cannot("listen");
  port_ = ntohs(rdma_get_src_port(listener_));
  return {};
}

/// Binds one address after another and keeps those that belong to a device.
class DeviceFinder {
 public:
  explicit DeviceFinder(rdma_event_channel* channel) noexcept : channel_(channel) {}

  Result<Devices> find(const std::vector<std::string>& wanted) {
    for (const LocalAddress& local : local_addresses()) consider(local, wanted);
    for (const std::string& want : wanted) {
      if (!met_.contains(want)) {
        return failure(ErrorCode::not_found,
                       "no RDMA device has the name or address " + want + " here" + those_there());
      }
    }
    if (devices_.empty()) {
      return failure(ErrorCode::not_found,
                     "no RDMA device has an address here: `rdma link` lists the devices, and each "
                     "needs an address on its network interface");
    }
    std::sort(devices_.begin(), devices_.end(),
              [](const auto& a, const auto& b) { return a->name() < b->name(); });
    if (devices_.size() > endpoints_max) devices_.resize(endpoints_max);
    for (const auto& device : devices_) {
      if (const auto opened = device->open(); !opened) return failure(opened);
    }
    return std::move(devices_);
  }

 private:
  void consider(const LocalAddress& local, const std::vector<std::string>& wanted) {
    std::unique_ptr<Device> device(new Device);
    device->address_ = local.address;
    device->mask_ = local.mask;
    if (rdma_create_id(channel_, &device->listener_, nullptr, RDMA_PS_TCP) != 0) {
      device->listener_ = nullptr;
      return;
    }
    sockaddr_in6 six = ipv6_socket_address(local.address, 0);
    sockaddr_in four = ipv4_socket_address(local.address, 0);
    auto* const bound = is_ipv4(local.address) ? reinterpret_cast<sockaddr*>(&four)
                                               : reinterpret_cast<sockaddr*>(&six);
    if (rdma_bind_addr(device->listener_, bound) != 0 || device->context() == nullptr) return;
    device->name_ = ibv_get_device_name(device->context()->device);
    there_ += (there_.empty() ? "; there are " : ", ") + device->text();
    const auto is_it = [&](const std::string& want) {
      return want == device->name_ || want == text_of(local.address);
    };
    if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), is_it)) return;
    for (const std::string& want : wanted) {
      if (is_it(want)) met_.insert(want);
    }
    if (!ports_.emplace(device->context(), device->listener_->port_num).second) return;
    device->listener_->context = device.get();
    devices_.push_back(std::move(device));
  }

  std::string those_there() const { return there_.empty() ? "; there is none" : there_; }

  rdma_event_channel* channel_;
  Devices devices_;
  std::set<std::string> met_;
  std::set<std::pair<ibv_context*, std::uint8_t>> ports_;
  std::string there_;
};

Result<Devices> open_devices(rdma_event_channel* channel, const std::vector<std::string>& wanted) {
  return DeviceFinder(channel).find(wanted);
}

}  // namespace weir::rdma
