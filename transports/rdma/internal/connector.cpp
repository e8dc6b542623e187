#include "transports/rdma/internal/connector.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "runtime/assert.hpp"

namespace weir::rdma {
namespace {

/// For each of the address and the route.
constexpr int resolve_milliseconds = 500;
/// A device waits 4.096 us * 2^16 = 268 ms for an answer before it asks again, and may take four
/// times that. After 3 more tries it gives up: after 1.1 s where it keeps to the time. Shorter
/// times make Soft-RoCE ask again while answers are on their way, and then it can lose some of
/// them without a word. (A count of 7 would stand for "for ever" there.)
constexpr std::uint8_t ack_timeout = 16;
constexpr std::uint8_t retries = 3;

/// What a reader says when it connects.
struct Hello {
  std::array<char, 8> magic{'w', 'e', 'i', 'r', 'r', 'd', 'm', '1'};
  std::uint64_t instance = 0;  ///< Whom it means. In the byte order of the ticket's bytes.
};
/// What is answered instead of a connection where it means somebody else.
constexpr std::array<char, 8> somebody_else{'w', 'e', 'i', 'r', 'n', 'o', 't', '1'};

constexpr int rejected_no_listener = 8;  // IB_CM_REJ_INVALID_SERVICE_ID
constexpr int rejected_by_program = 28;  // IB_CM_REJ_CONSUMER_DEFINED

std::string because() {
  return std::string(": ") + std::strerror(errno);
}

}  // namespace

Waker::Waker() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  WEIR_ASSERT(descriptor_ >= 0);
}

Waker::~Waker() {
  ::close(descriptor_);
}

void Waker::wake() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(write(descriptor_, &one, sizeof one));
}

void Waker::clear() const noexcept {
  std::uint64_t count = 0;
  static_cast<void>(read(descriptor_, &count, sizeof count));
}

/// A copy of the connection manager's event, which has to be acknowledged before an identifier is
/// destroyed.
struct Connector::Event {
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;
  std::uint8_t reads = 0;  ///< That the reader wants to have under way.
  std::array<char, 64> data{};
  std::size_t data_bytes = 0;

  explicit Event(const rdma_cm_event& event) noexcept
      : id(event.id), listener(event.listen_id), type(event.event), status(event.status) {
    if (type != RDMA_CM_EVENT_CONNECT_REQUEST && type != RDMA_CM_EVENT_REJECTED) return;
    const rdma_conn_param& parameters = event.param.conn;
    reads = parameters.responder_resources;
    data_bytes = std::min<std::size_t>(parameters.private_data_len, data.size());
    if (parameters.private_data == nullptr) data_bytes = 0;
    if (data_bytes > 0) std::memcpy(data.data(), parameters.private_data, data_bytes);
  }
};

Connector::Connector(rdma_event_channel* channel, const Devices& devices, std::uint64_t instance,
                     Engine& engine, const Waker& waker)
    : channel_(channel),
      devices_(devices),
      instance_(instance),
      engine_(engine),
      waker_(waker),
      thread_([this] { run(); }) {}

Connector::~Connector() {
  stop_ = true;
  waker_.wake();
  thread_.join();
}

void Connector::run() {
  TimePoint wake_at = TimePoint::max();
  while (!stop_) {
    wait_until(wake_at);
    waker_.clear();
    while (handle_next()) {
    }
    do_tasks(wake_at);
  }
  // Connections that are cut with requests on their way are given a second to be given back.
  engine_.lose_all();
  for (do_tasks(wake_at); wake_at != TimePoint::max(); do_tasks(wake_at)) wait_until(wake_at);
  while (!readers_.empty()) end_reader(readers_.front());
}

void Connector::wait_until(TimePoint time) const {
  int milliseconds = -1;
  if (time != TimePoint::max()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(time - std::chrono::steady_clock::now());
    milliseconds = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }
  std::array<pollfd, 2> waiting{{{channel_->fd, POLLIN, 0}, {waker_.descriptor(), POLLIN, 0}}};
  poll(waiting.data(), waiting.size(), milliseconds);
}

void Connector::do_tasks(TimePoint& wake_at) {
  wake_at = TimePoint::max();
  const TimePoint now = std::chrono::steady_clock::now();
  for (const RailTask& task : engine_.tasks(now, wake_at)) {
    Rail& rail = *task.rail;
    switch (task.kind) {
      case RailTask::Kind::connect:
        connect(rail);
        break;
      case RailTask::Kind::disconnect:
        // Puts the queue pair into its error state, upon which everything posted comes back.
        rdma_disconnect(rail.id);
        break;
      case RailTask::Kind::close:
        if (rail.state == RailState::connecting) {
          give_up(rail, {ErrorCode::timeout, rail.link->text(rail) + " does not answer " +
                                                 devices_[rail.device]->text()});
        } else {
          close(rail);
        }
        break;
    }
  }
}

bool Connector::handle_next() {
  rdma_cm_event* next = nullptr;
  if (rdma_get_cm_event(channel_, &next) != 0) return false;
  const Event event(*next);
  rdma_ack_cm_event(next);
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    answer(event);
  } else if (std::find(readers_.begin(), readers_.end(), event.id) != readers_.end()) {
    const bool ended = event.type != RDMA_CM_EVENT_ESTABLISHED;
    if (ended) end_reader(event.id);
  } else if (auto* const rail = static_cast<Rail*>(event.id->context);
             rail != nullptr && rail->id == event.id) {
    handle_own(*rail, event);
  }
  return true;
}

void Connector::connect(Rail& rail) {
  const Device& device = *devices_[rail.device];
  const Endpoint& endpoint = rail.link->endpoints[rail.endpoint];
  const auto cannot = [&] {
    give_up(rail, {ErrorCode::unavailable,
                   rail.link->text(rail) + " can't be reached from " + device.text() + because()});
  };
  if (is_ipv4(endpoint.address) != is_ipv4(device.address())) {
    errno = EAFNOSUPPORT;
    return cannot();
  }
  if (rdma_create_id(channel_, &rail.id, &rail, RDMA_PS_TCP) != 0) {
    rail.id = nullptr;
    return cannot();
  }
  std::uint8_t timeout = ack_timeout;
  rdma_set_option(rail.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  // The address of ours says which device to go through.
  sockaddr_in6 six[2] = {ipv6_socket_address(device.address(), 0),
                         ipv6_socket_address(endpoint.address, endpoint.port)};
  sockaddr_in four[2] = {ipv4_socket_address(device.address(), 0),
                         ipv4_socket_address(endpoint.address, endpoint.port)};
  const bool ipv4 = is_ipv4(endpoint.address);
  auto* const from =
      ipv4 ? reinterpret_cast<sockaddr*>(&four[0]) : reinterpret_cast<sockaddr*>(&six[0]);
  auto* const to =
      ipv4 ? reinterpret_cast<sockaddr*>(&four[1]) : reinterpret_cast<sockaddr*>(&six[1]);
  if (rdma_resolve_addr(rail.id, from, to, resolve_milliseconds) != 0) cannot();
}

void Connector::handle_own(Rail& rail, const Event& event) {
  const TimePoint now = std::chrono::steady_clock::now();
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (const auto went = go_on(rail, event); !went) give_up(rail, went.error());
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      engine_.connected(rail, now);
      return;
    case RDMA_CM_EVENT_DISCONNECTED:
      engine_.lost(rail, "has ended or has closed the connection");
      return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      engine_.lost(rail, "can't be reached from " + devices_[rail.device]->text() +
                             " any more: the device is gone or has another address");
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      give_up(rail, refusal(rail, event));
      return;
    default:
      return;
  }
}

Result<void> Connector::go_on(Rail& rail, const Event& event) {
  const Device& device = *devices_[rail.device];
  const auto cannot = [&](const char* what) {
    return failure(ErrorCode::io, std::string("can't ") + what + " on " + device.text() + " for " +
                                      rail.link->text(rail) + because());
  };
  if (event.type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
    Hello hello;
    hello.instance = rail.link->instance;
    rdma_conn_param parameters{};
    parameters.private_data = &hello;
    parameters.private_data_len = sizeof hello;
    parameters.initiator_depth = device.reads_as_reader();
    parameters.retry_count = retries;
    if (rdma_connect(rail.id, &parameters) != 0) return cannot("connect");
    return {};
  }
  if (rail.id->verbs != device.context()) {
    errno = EXDEV;
    return cannot("go through that device");
  }
  ibv_qp_init_attr attributes{};
  attributes.send_cq = device.completions();
  attributes.recv_cq = device.completions();
  attributes.cap = {.max_send_wr = connection_reads_max,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  if (rdma_create_qp(rail.id, device.domain(), &attributes) != 0) {
    return cannot("create a queue pair");
  }
  if (rdma_resolve_route(rail.id, resolve_milliseconds) != 0) return cannot("find a route");
  return {};
}

Error Connector::refusal(const Rail& rail, const Event& event) const {
  const std::string who = rail.link->text(rail);
  const Device& device = *devices_[rail.device];
  if (event.type == RDMA_CM_EVENT_REJECTED) {
    if (event.status == rejected_no_listener) return {ErrorCode::unavailable, who + " has ended"};
    if (event.status == rejected_by_program &&
        std::string_view(event.data.data(), event.data_bytes)
            .starts_with(std::string_view(somebody_else.data(), somebody_else.size()))) {
      return {ErrorCode::unavailable, who + " has ended: another one answers at its address"};
    }
    return {ErrorCode::unavailable,
            who + " refuses the connection (reason " + std::to_string(event.status) + ")"};
  }
  const std::string why = device.active() ? "no answer" : "the link is down";
  return {ErrorCode::unavailable, who + " can't be reached from " + device.text() + ": " + why +
                                      " (error " + std::to_string(event.status) + ")"};
}

void Connector::give_up(Rail& rail, Error why) {
  if (rail.id != nullptr) {
    if (rail.id->qp != nullptr) rdma_destroy_qp(rail.id);
    rdma_destroy_id(rail.id);
    rail.id = nullptr;
  }
  engine_.not_connected(rail, std::move(why), std::chrono::steady_clock::now());
  waker_.wake();
}

void Connector::close(Rail& rail) {
  rdma_destroy_qp(rail.id);
  rdma_destroy_id(rail.id);
  engine_.closed(rail);
  waker_.wake();
}

void Connector::answer(const Event& event) {
  const auto& device = *static_cast<const Device*>(event.listener->context);
  Hello hello;
  const Hello expected;
  const bool known = event.data_bytes >= sizeof hello;
  if (known) std::memcpy(&hello, event.data.data(), sizeof hello);
  event.id->context = nullptr;
  if (!known || hello.magic != expected.magic || hello.instance != instance_) {
    rdma_reject(event.id, somebody_else.data(), somebody_else.size());
    rdma_destroy_id(event.id);
    return;
  }
  if (readers_.size() >= readers_max * devices_.size()) end_reader(readers_.front());
  if (accept(event.id, device, event)) {
    readers_.push_back(event.id);
  } else {
    rdma_reject(event.id, nullptr, 0);
    if (event.id->qp != nullptr) rdma_destroy_qp(event.id);
    rdma_destroy_id(event.id);
  }
}

bool Connector::accept(rdma_cm_id* id, const Device& device, const Event& event) {
  if (id->verbs != device.context()) return false;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = device.completions();
  attributes.recv_cq = device.completions();
  // A source posts nothing; its device answers by itself.
  attributes.cap = {.max_send_wr = 1,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  if (rdma_create_qp(id, device.domain(), &attributes) != 0) return false;
  rdma_conn_param parameters{};
  parameters.responder_resources = std::min(event.reads, device.reads_as_source());
  return rdma_accept(id, &parameters) == 0;
}

void Connector::end_reader(rdma_cm_id* id) {
  readers_.remove(id);
  rdma_disconnect(id);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

}  // namespace weir::rdma
