#include "transports/rdma/rdma_transport.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "runtime/strided_copy.hpp"
#include "runtime/workers.hpp"
#include "transports/rdma/internal/completions.hpp"
#include "transports/rdma/internal/connector.hpp"
#include "transports/rdma/internal/device.hpp"
#include "transports/rdma/internal/engine.hpp"
#include "transports/rdma/internal/memory.hpp"
#include "transports/rdma/internal/ticket.hpp"

namespace weir {
namespace {

constexpr std::string_view rdma_name = "rdma";

/// The engine ends a transfer within five seconds of whatever goes wrong; this is for the case that
/// a device does not.
constexpr auto probe_time_max = std::chrono::seconds(10);

class RdmaFetch final : public Fetch {
 public:
  RdmaFetch(std::unique_ptr<rdma::Transfer> transfer, rdma::Engine& engine, rdma::Waker& waker)
      : transfer_(std::move(transfer)), engine_(engine), waker_(waker) {}

  ~RdmaFetch() override {
    engine_.cancel(*transfer_);
    engine_.wait(*transfer_);
    transfer_.reset();
    waker_.wake();  // Connections that nobody uses any more are closed.
  }

  void start(FetchDone done) override { engine_.start(*transfer_, std::move(done)); }
  void cancel() noexcept override { engine_.cancel(*transfer_); }

 private:
  std::unique_ptr<rdma::Transfer> transfer_;
  rdma::Engine& engine_;
  rdma::Waker& waker_;
};

class RdmaTransport final : public Transport {
 public:
  RdmaTransport(const RdmaOptions& options, rdma::Channel channel, rdma::Devices devices)
      : instance_(std::uint64_t{std::random_device{}()} << 32 | std::random_device{}()),
        channel_(std::move(channel)),
        devices_(std::move(devices)),
        memory_(devices_),
        workers_(options.worker_count),
        engine_(
            devices_, workers_, [this] { waker_.wake(); }, options.note),
        connector_(channel_.get(), devices_, instance_, engine_, waker_) {
    for (const auto& device : devices_) {
      completions_.push_back(std::make_unique<rdma::Completions>(
          *device, [this](std::span<const ibv_wc> taken) { engine_.completed(taken); }));
    }
  }

  std::string_view name() const noexcept override { return rdma_name; }
  bool reads(RegionKind source) const noexcept override { return source != RegionKind::device; }
  bool writes(RegionKind target) const noexcept override { return target != RegionKind::device; }

  Result<RegionInfo::Ticket> expose(const Region& region) override;
  void withdraw(const Region& region) noexcept override;
  Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) override;

 private:
  struct Exposed {
    std::shared_ptr<const rdma::Registration> memory;
    rdma::Ticket ticket;
  };

  Result<std::pair<std::shared_ptr<rdma::Link>, rdma::SourceRegion>> resolve(
      const RegionInfo& info);
  Result<void> probe(const std::shared_ptr<rdma::Link>& link, const rdma::SourceRegion& region);
  Result<void> add(rdma::Transfer& transfer, const FetchRequest& request, Copy copy,
                   std::uint32_t region, rdma::Lane& lane);

  const std::uint64_t instance_;
  rdma::Waker waker_;
  const rdma::Channel channel_;
  const rdma::Devices devices_;
  rdma::Memory memory_;
  Workers workers_;
  rdma::Engine engine_;
  rdma::Connector connector_;
  std::vector<std::unique_ptr<rdma::Completions>> completions_;

  std::mutex mutex_;  ///< Guards what follows.
  std::map<const Region*, Exposed> exposed_;
};

Result<RegionInfo::Ticket> RdmaTransport::expose(const Region& region) {
  if (!reads(region.kind())) {
    return failure(ErrorCode::refused, "rdma does not reach device memory yet");
  }
  const std::lock_guard lock(mutex_);
  auto found = exposed_.find(&region);
  if (found == exposed_.end()) {
    auto memory = memory_.expose(region.bytes());
    if (!memory) return failure(memory);
    rdma::Ticket ticket{.instance = instance_,
                        .pid = static_cast<std::uint32_t>(getpid()),
                        .kind = region.kind(),
                        .bytes = region.bytes().size(),
                        .address = reinterpret_cast<std::uintptr_t>(region.bytes().data()),
                        .endpoints = {}};
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      ticket.endpoints.push_back({.address = devices_[i]->address(),
                                  .port = devices_[i]->port(),
                                  .key = (*memory)->remote_key(i)});
    }
    found = exposed_.emplace(&region, Exposed{*std::move(memory), std::move(ticket)}).first;
  }
  return RegionInfo::Ticket{std::string(rdma_name), encode(found->second.ticket)};
}

void RdmaTransport::withdraw(const Region& region) noexcept {
  const std::lock_guard lock(mutex_);
  exposed_.erase(&region);
}

Result<std::pair<std::shared_ptr<rdma::Link>, rdma::SourceRegion>> RdmaTransport::resolve(
    const RegionInfo& info) {
  const RegionInfo::Ticket* written = nullptr;
  for (const RegionInfo::Ticket& ticket : info.tickets) {
    if (ticket.transport == rdma_name) written = &ticket;
  }
  if (written == nullptr) {
    return failure(ErrorCode::invalid, "it has no rdma ticket; its owner has to expose it first");
  }
  const Result<rdma::Ticket> ticket = rdma::parse_ticket(written->bytes);
  if (!ticket) return failure(ticket);
  if (ticket->kind != info.kind || ticket->bytes != info.bytes) {
    return failure(ErrorCode::invalid, "its rdma ticket is that of another region");
  }
  rdma::SourceRegion region{.address = ticket->address, .bytes = ticket->bytes, .keys = {}};
  for (const rdma::Endpoint& endpoint : ticket->endpoints) region.keys.push_back(endpoint.key);
  std::shared_ptr<rdma::Link> link = engine_.link_to(*ticket);
  const Result<void> probed = probe(link, region);
  if (!probed) return failure(probed);
  return std::pair(std::move(link), std::move(region));
}

/// Reads the region's last byte: whether the peer is there, the key is right, and the region is as
/// long as it is said to be.
Result<void> RdmaTransport::probe(const std::shared_ptr<rdma::Link>& link,
                                  const rdma::SourceRegion& region) {
  if (engine_.reaches(*link, region)) return {};
  std::byte last{};
  rdma::Transfer transfer;
  transfer.targets.push_back({.bytes = std::span(&last, 1), .memory = nullptr});
  rdma::Lane& lane = transfer.lanes.emplace_back();
  lane.transfer = &transfer;
  lane.link = link;
  lane.regions.push_back(region);
  Copy copy;
  copy.source_type = copy.target_type = ElementType::u8;
  copy.source_offset = region.bytes - 1;
  lane.steps.push_back({.copy = copy, .packed = true, .reads = 1, .bytes = 1});
  std::promise<Result<FetchReport>> promise;
  std::future<Result<FetchReport>> future = promise.get_future();
  engine_.start(transfer,
                [&promise](Result<FetchReport> report) { promise.set_value(std::move(report)); });
  const bool late = future.wait_for(probe_time_max) != std::future_status::ready;
  if (late) engine_.cancel(transfer);
  engine_.wait(transfer);
  const Result<FetchReport> report = future.get();
  if (!report && late) {
    return failure(ErrorCode::timeout,
                   "no read of it ended within " + std::to_string(probe_time_max.count()) + " s");
  }
  if (!report) return failure(report);
  engine_.set_reached(*link, region);
  return {};
}

/// Whether a copy's indices and offsets are within what the request has.
Result<void> check_copy(const FetchRequest& request, const Copy& copy) {
  if (copy.source >= request.sources.size() ||
      copy.source_region >= request.sources[copy.source].regions.size() ||
      copy.target_region >= request.targets.size()) {
    return failure(ErrorCode::invalid,
                   "a copy names a source, a source region or a target region "
                   "that the request does not have");
  }
  const Region& target = *request.targets[copy.target_region];
  if (target.kind() == RegionKind::device) {
    return failure(ErrorCode::refused, "rdma does not write to device memory yet");
  }
  return check_bounds(copy, request.sources[copy.source].regions[copy.source_region].bytes,
                      target.bytes().size());
}

Result<std::unique_ptr<Fetch>> RdmaTransport::prepare(const FetchRequest& request) {
  if (const auto have = engine_.have_bounce_buffers(memory_); !have) return failure(have);
  auto transfer = std::make_unique<rdma::Transfer>();
  for (Region* target : request.targets) transfer->targets.push_back({target->bytes(), nullptr});
  transfer->copies = request.copies.size();
  struct Place {
    std::size_t lane = 0;
    std::uint32_t region = 0;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Place> resolved;
  std::vector<rdma::Lane> lanes;
  for (Copy copy : request.copies) {
    if (Result<void> checked = check_copy(request, copy); !checked) return failure(checked);
    const auto [place, fresh] = resolved.try_emplace({copy.source, copy.source_region});
    if (fresh) {
      const PlanSource& source = request.sources[copy.source];
      auto way = resolve(source.regions[copy.source_region]);
      if (!way) {
        return failure(way.error().code, "can't read region " + std::to_string(copy.source_region) +
                                             " of " + text_of(source.shard) + ": " +
                                             way.error().text);
      }
      auto lane = std::find_if(lanes.begin(), lanes.end(),
                               [&](const rdma::Lane& known) { return known.link == way->first; });
      if (lane == lanes.end()) {
        lane = lanes.emplace(lanes.end());
        lane->transfer = transfer.get();
        lane->link = std::move(way->first);
      }
      place->second = {static_cast<std::size_t>(lane - lanes.begin()),
                       static_cast<std::uint32_t>(lane->regions.size())};
      lane->regions.push_back(std::move(way->second));
    }
    const auto added =
        add(*transfer, request, copy, place->second.region, lanes[place->second.lane]);
    if (!added) return failure(added);
  }
  transfer->lanes = std::move(lanes);
  return std::make_unique<RdmaFetch>(std::move(transfer), engine_, waker_);
}

Result<void> RdmaTransport::add(rdma::Transfer& transfer, const FetchRequest& request, Copy copy,
                                std::uint32_t region, rdma::Lane& lane) {
  copy.source = region;
  const std::vector<rdma::Step> steps = rdma::cut_to_steps(copy, engine_.message_bytes_max());
  rdma::Target& target = transfer.targets[copy.target_region];
  if (!steps.front().packed && !target.memory) {
    auto memory = memory_.target(request.targets[copy.target_region]->bytes());
    if (!memory) return failure(memory);
    target.memory = *std::move(memory);
  }
  lane.steps.insert(lane.steps.end(), steps.begin(), steps.end());
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> make_rdma_transport(const RdmaOptions& options) {
  auto channel = rdma::open_channel();
  if (!channel) return failure(channel);
  auto devices = rdma::open_devices(channel->get(), options.devices);
  if (!devices) return failure(devices);
  return std::make_unique<RdmaTransport>(options, *std::move(channel), *std::move(devices));
}

}  // namespace weir
