#include "transports/rdma/internal/engine.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "runtime/assert.hpp"
#include "runtime/strided_copy.hpp"

namespace weir::rdma {
namespace {

using std::chrono::milliseconds;

/// What a work request's id says: which connection, which posted step, and whether it is the last
/// READ of that step, the only one that is told of when all goes well.
constexpr std::uint32_t sequence_mask = 0x7fffffff;

std::uint64_t request_id(std::uint32_t number, std::uint32_t sequence, bool last) noexcept {
  return std::uint64_t{number} << 32 | std::uint64_t{sequence & sequence_mask} << 1 |
         (last ? 1U : 0U);
}

/// Whether the peer or the device refused that very READ; else the connection is at fault.
bool refused(ibv_wc_status status) noexcept {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         status == IBV_WC_REM_OP_ERR || status == IBV_WC_LOC_PROT_ERR ||
         status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_QP_OP_ERR;
}

/// The READs of a step as one chain of requests.
struct Chain {
  std::array<ibv_sge, reads_per_step_max> places;
  std::array<ibv_send_wr, reads_per_step_max> requests;
  std::size_t count = 0;

  void add(std::uint64_t source, std::uint32_t source_key, std::byte* local,
           std::uint32_t local_key, std::uint64_t bytes) noexcept {
    WEIR_ASSERT(count < reads_per_step_max);
    places[count] = {.addr = reinterpret_cast<std::uintptr_t>(local),
                     .length = static_cast<std::uint32_t>(bytes),
                     .lkey = local_key};
    ibv_send_wr& request = requests[count];
    request = {};
    request.sg_list = &places[count];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = source;
    request.wr.rdma.rkey = source_key;
    if (count > 0) requests[count - 1].next = &request;
    ++count;
  }
};

/// Which endpoint each device reads from: in its own subnet where there is one, and there by
/// turns. Where we have fewer devices than the peer, readers begin at different ones.
std::vector<Rail> pair_up(const Devices& devices, const std::vector<Endpoint>& endpoints,
                          std::uint64_t shift) {
  std::vector<Rail> rails;
  for (std::size_t device = 0; device < devices.size(); ++device) {
    std::vector<std::size_t> near;
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      if (devices[device]->near(endpoints[i].address)) near.push_back(i);
    }
    std::size_t turn = 0;  // How many of our devices before this one are in the same subnet.
    for (std::size_t other = 0; other < device; ++other) {
      if (near.empty() || devices[device]->near(devices[other]->address())) ++turn;
    }
    const std::size_t count = near.empty() ? endpoints.size() : near.size();
    if (devices.size() < count) turn += shift % count;
    Rail rail;
    rail.device = device;
    rail.endpoint = near.empty() ? turn % count : near[turn % count];
    rails.push_back(std::move(rail));
  }
  // A device of a subnet that the peer is not in serves only where none is in one.
  const auto is_near = [&](const Rail& rail) {
    return devices[rail.device]->near(endpoints[rail.endpoint].address);
  };
  if (std::any_of(rails.begin(), rails.end(), is_near)) {
    std::erase_if(rails, [&](const Rail& rail) { return !is_near(rail); });
  }
  return rails;
}

}  // namespace

Engine::Engine(const Devices& devices, Workers& workers, std::function<void()> wake,
               std::function<void(std::string_view)> note)
    : devices_(devices),
      workers_(workers),
      wake_(std::move(wake)),
      note_(std::move(note)),
      message_bytes_max_(std::numeric_limits<std::uint32_t>::max()),
      connections_(devices.size()) {
  for (const auto& device : devices) {
    message_bytes_max_ = std::min(message_bytes_max_, device->message_bytes_max());
  }
}

Engine::~Engine() {
  WEIR_ASSERT(rails_.empty());
}

Result<void> Engine::have_bounce_buffers(Memory& memory) {
  const Lock lock(mutex_);
  if (bounce_memory_) return {};
  auto region = Region::allocate({.bytes = bounce_slots * bounce_bytes});
  if (!region) return failure(region);
  auto registered = memory.target((*region)->bytes());
  if (!registered) return failure(registered);
  bounce_ = *std::move(region);
  bounce_memory_ = *std::move(registered);
  for (std::uint32_t slot = 0; slot < bounce_slots; ++slot) free_slots_.push_back(slot);
  return {};
}

std::shared_ptr<Link> Engine::link_to(const Ticket& ticket) {
  std::vector<Endpoint> endpoints = ticket.endpoints;
  for (Endpoint& endpoint : endpoints) endpoint.key = 0;
  const Lock lock(mutex_);
  for (const auto& link : links_) {
    if (link->instance == ticket.instance && link->endpoints == endpoints) return link;
  }
  auto link = std::make_shared<Link>();
  link->instance = ticket.instance;
  link->pid = ticket.pid;
  // Two transports of a host are at different addresses, and so are those of different hosts.
  link->rails = pair_up(devices_, endpoints, devices_[0]->address().back() + devices_[0]->port());
  link->endpoints = std::move(endpoints);
  for (Rail& rail : link->rails) rail.link = link.get();
  links_.push_back(link);
  return link;
}

bool Engine::reaches(const Link& link, const SourceRegion& region) {
  const Lock lock(mutex_);
  return has_reached(link, region) &&
         std::any_of(link.rails.begin(), link.rails.end(),
                     [](const Rail& rail) { return rail.state == RailState::up; });
}

void Engine::set_reached(Link& link, const SourceRegion& region) {
  const Lock lock(mutex_);
  if (!has_reached(link, region)) link.reached.push_back(region);
}

void Engine::start(Transfer& transfer, FetchDone done) {
  const Lock lock(mutex_);
  WEIR_ASSERT(done && !transfer.done && transfer.in_flight == 0);
  transfer.done = std::move(done);
  transfer.error.reset();
  transfer.stopped = false;
  transfer.bytes = 0;
  for (Lane& lane : transfer.lanes) {
    lane.next = 0;
    lane.again.clear();
    requeue(lane);
  }
  for (const Lane& lane : transfer.lanes) {
    pump(*lane.link);
    // A rail that has rested since the last fetch is to be tried now.
    const auto idle = [](const Rail& rail) { return rail.state == RailState::idle; };
    if (std::any_of(lane.link->rails.begin(), lane.link->rails.end(), idle)) wake_();
  }
  end_if_over(transfer);
}

void Engine::cancel(Transfer& transfer) noexcept {
  const Lock lock(mutex_);
  if (!transfer.done) return;
  stop(transfer);
  end_if_over(transfer);
}

void Engine::wait(Transfer& transfer) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return !transfer.done && transfer.reporting == 0; });
}

void Engine::requeue(Lane& lane) {
  if (lane.queued || lane.exhausted()) return;
  lane.queued = true;
  lane.link->queue.push_back(&lane);
}

void Engine::pump(Link& link) {
  while (!link.queue.empty()) {
    Lane& lane = *link.queue.front();
    const std::uint32_t index = lane.again.empty() ? lane.next : lane.again.back();
    const Step& step = lane.steps[index];
    Rail* const rail = rail_for(link, step);
    if (rail == nullptr) {
      const auto up = [](const Rail& each) { return each.state == RailState::up; };
      if (std::none_of(link.rails.begin(), link.rails.end(), up)) wake_();
      return;
    }
    std::optional<std::uint32_t> slot;
    if (step.packed) {
      if (free_slots_.empty()) {
        if (!link.starved) starved_.push_back(&link);
        link.starved = true;
        return;
      }
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    if (!post(*rail, lane, index, slot)) {
      if (slot) free_slots_.push_back(*slot);
      continue;
    }
    if (lane.again.empty()) {
      ++lane.next;
    } else {
      lane.again.pop_back();
    }
    link.queue.pop_front();
    lane.queued = false;
    requeue(lane);
  }
}

Rail* Engine::rail_for(Link& link, const Step& step) const {
  Rail* best = nullptr;
  for (Rail& rail : link.rails) {
    if (rail.state != RailState::up) continue;
    if (rail.reads_in_flight + step.reads > connection_reads_max) continue;
    const std::uint64_t bytes = rail.bytes_in_flight + step.bytes;
    if (rail.bytes_in_flight > 0 && bytes > devices_[rail.device]->bytes_in_flight_max()) continue;
    if (best == nullptr || rail.bytes_in_flight < best->bytes_in_flight) best = &rail;
  }
  return best;
}

bool Engine::post(Rail& rail, Lane& lane, std::uint32_t index, std::optional<std::uint32_t> slot) {
  const Step& step = lane.steps[index];
  const SourceRegion& source = lane.regions[step.copy.source];
  const Registration* memory = bounce_memory_.get();
  std::byte* local = nullptr;
  if (slot) {
    local = bounce_->bytes().data() + *slot * bounce_bytes;
  } else {
    const Target& target = lane.transfer->targets[step.copy.target_region];
    local = target.bytes.data();
    memory = target.memory.get();
  }
  Chain chain;
  for_each_read(runs_of(step), message_bytes_max_,
                [&](std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
                  chain.add(source.address + from, source.keys[rail.endpoint], local + to,
                            memory->local_key(rail.device), bytes);
                });
  const auto sequence = rail.first_sequence + static_cast<std::uint32_t>(rail.posted.size());
  for (std::size_t i = 0; i < chain.count; ++i) {
    const bool last = i + 1 == chain.count;
    chain.requests[i].wr_id = request_id(rail.number, sequence, last);
    if (last) chain.requests[i].send_flags = IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(rail.id->qp, chain.requests.data(), &bad);
  if (error != 0) {
    lose(rail, {ErrorCode::io, "can't post to " + devices_[rail.device]->text() + " (error " +
                                   std::to_string(error) + ")"});
    // What went before is written to until the queue pair is destroyed, which `closed` tells.
    if (bad == chain.requests.data()) return false;
  }
  if (rail.posted.empty()) rail.progress_at = std::chrono::steady_clock::now();
  rail.posted.push_back({.lane = &lane, .step = index, .slot = slot});
  rail.reads_in_flight += step.reads;
  rail.bytes_in_flight += step.bytes;
  ++lane.transfer->in_flight;
  return true;
}

void Engine::completed(std::span<const ibv_wc> completions) {
  const Lock lock(mutex_);
  for (const ibv_wc& completion : completions) {
    const auto found = rails_.find(static_cast<std::uint32_t>(completion.wr_id >> 32));
    // What comes late, of a connection that was closed, has been accounted for.
    if (found == rails_.end()) continue;
    complete(*found->second, completion);
    pump(*found->second->link);
  }
}

void Engine::complete(Rail& rail, const ibv_wc& completion) {
  const auto sequence = static_cast<std::uint32_t>(completion.wr_id >> 1) & sequence_mask;
  const std::size_t at = (sequence - rail.first_sequence) & sequence_mask;
  WEIR_ASSERT(at < rail.posted.size());
  Posted& posted = rail.posted[at];
  if (completion.status != IBV_WC_SUCCESS) {
    posted.failed = true;
    const Error error = error_of(rail, completion, posted);
    if (refused(completion.status)) {
      fail(*posted.lane->transfer, error);
      rail.progressed = true;  // The peer answered: the next connection is as good.
    }
    if (completion.status != IBV_WC_WR_FLUSH_ERR) lose(rail, error);
  }
  if ((completion.wr_id & 1) == 0) return;
  posted.finished = true;
  while (!rail.posted.empty() && rail.posted.front().finished) {
    const Posted front = rail.posted.front();
    rail.posted.pop_front();
    ++rail.first_sequence;
    settle(rail, front);
  }
  if (rail.posted.empty() && rail.state == RailState::draining) wake_();
}

void Engine::settle(Rail& rail, const Posted& posted) {
  Lane& lane = *posted.lane;
  Transfer& transfer = *lane.transfer;
  const Step& step = lane.steps[posted.step];
  rail.reads_in_flight -= step.reads;
  rail.bytes_in_flight -= step.bytes;
  rail.progress_at = std::chrono::steady_clock::now();
  if (posted.failed) {
    if (!transfer.stopped) {
      lane.again.push_back(posted.step);
      requeue(lane);
    }
  } else {
    rail.progressed = true;
    if (posted.slot && !transfer.stopped) return unpack(posted);
    transfer.bytes += target_bytes(step.copy);
  }
  if (posted.slot) release(*posted.slot);
  step_ended(transfer);
}

void Engine::unpack(const Posted& posted) {
  workers_.post([this, posted] {
    Lane& lane = *posted.lane;
    const Step& step = lane.steps[posted.step];
    const auto buffer = bounce_->bytes().subspan(*posted.slot * bounce_bytes, bounce_bytes);
    copy_strided(from_bounce(step), buffer, lane.transfer->targets[step.copy.target_region].bytes);
    const Lock lock(mutex_);
    lane.transfer->bytes += target_bytes(step.copy);
    release(*posted.slot);
    step_ended(*lane.transfer);
  });
}

void Engine::release(std::uint32_t slot) {
  free_slots_.push_back(slot);
  // A link that needs none any more leaves the buffer to the next one.
  while (!starved_.empty() && !free_slots_.empty()) {
    Link& link = *starved_.front();
    starved_.pop_front();
    link.starved = false;
    pump(link);
  }
}

void Engine::step_ended(Transfer& transfer) {
  --transfer.in_flight;
  end_if_over(transfer);
}

void Engine::stop(Transfer& transfer) {
  transfer.stopped = true;
  for (Lane& lane : transfer.lanes) {
    if (lane.queued) std::erase(lane.link->queue, &lane);
    lane.queued = false;
  }
}

void Engine::fail(Transfer& transfer, const Error& error) {
  if (!transfer.error) transfer.error = error;
  stop(transfer);
}

void Engine::end_if_over(Transfer& transfer) {
  if (!transfer.done || transfer.in_flight > 0) return;
  const bool all = std::all_of(transfer.lanes.begin(), transfer.lanes.end(),
                               [](const Lane& lane) { return lane.exhausted(); });
  if (!all && !transfer.stopped) return;
  Result<FetchReport> report = FetchReport{.bytes = transfer.bytes, .copies = transfer.copies};
  if (transfer.error) {
    report = tl::unexpected(*transfer.error);
  } else if (!all || transfer.stopped) {
    report = failure(ErrorCode::unavailable, "the fetch was cancelled");
  }
  ++transfer.reporting;
  // On another thread, since `done` may start the transfer again, and this one holds the lock.
  workers_.post([this, &transfer, done = std::exchange(transfer.done, nullptr),
                 report = std::move(report)]() mutable {
    done(std::move(report));
    done = nullptr;
    const Lock lock(mutex_);
    --transfer.reporting;
    ended_.notify_all();
  });
}

}  // namespace weir::rdma
