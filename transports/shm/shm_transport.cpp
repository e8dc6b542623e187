#include "transports/shm/shm_transport.hpp"

#include <sys/stat.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/strided_copy.hpp"
#include "runtime/workers.hpp"
#include "transports/shm/internal/fetch.hpp"
#include "transports/shm/internal/peer_memfd.hpp"
#include "transports/shm/internal/source.hpp"
#include "transports/shm/internal/staging_client.hpp"
#include "transports/shm/internal/staging_server.hpp"
#include "transports/shm/internal/ticket.hpp"

namespace weir {
namespace {

constexpr std::string_view shm_name = "shm";

constexpr std::string_view how_to_allow =
    "to allow that run both processes as one user and set the sysctl kernel.yama.ptrace_scope to "
    "0, "
    "or give their container the capability SYS_PTRACE (--cap-add=SYS_PTRACE)";

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const ShmOptions& options)
      : options_(options), workers_(options.worker_count) {}

  std::string_view name() const noexcept override { return shm_name; }
  bool reads(RegionKind source) const noexcept override { return source != RegionKind::device; }
  bool writes(RegionKind target) const noexcept override { return target != RegionKind::device; }

  Result<RegionInfo::Ticket> expose(const Region& region) override;
  void withdraw(const Region& region) noexcept override;
  Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) override;

 private:
  using Owner = std::shared_ptr<const shm::PeerProcess>;

  Result<shm::Ticket> ticket_for(const Region& region);
  Result<std::shared_ptr<shm::Source>> resolve(const RegionInfo& info);
  Result<std::shared_ptr<shm::Source>> stage(const shm::Ticket& ticket, Owner owner);
  std::shared_ptr<shm::StagingClient> client_for(const shm::Ticket& ticket, Owner owner);

  const ShmOptions options_;
  Workers workers_;
  shm::MappingCache mappings_;
  std::atomic<bool> noted_ = false;

  std::mutex mutex_;  ///< Guards what follows.
  std::map<const Region*, shm::Ticket> exposed_;
  std::uint64_t next_region_ = 1;
  std::unique_ptr<shm::StagingServer> server_;  ///< From the first region exposed on.
  /// By the name of the owner's socket.
  std::map<std::string, std::weak_ptr<shm::StagingClient>> clients_;
};

Result<shm::Ticket> ShmTransport::ticket_for(const Region& region) {
  const Result<shm::ProcessId> own = shm::own_process();
  if (!own) return failure(own);
  if (!server_) {
    auto server = shm::StagingServer::start(*own);
    if (!server) return failure(server);
    server_ = std::move(*server);
  }
  shm::Ticket ticket{.owner = *own,
                     .kind = region.kind(),
                     .bytes = region.bytes().size(),
                     .region = next_region_++,
                     .endpoint = server_->endpoint(),
                     .address = reinterpret_cast<std::uintptr_t>(region.bytes().data())};
  if (region.kind() == RegionKind::host_shared) {
    struct stat status {};
    if (fstat(region.descriptor(), &status) != 0) {
      return failure(ErrorCode::io, "can't look at a shared region's memfd");
    }
    ticket.descriptor = static_cast<std::uint32_t>(region.descriptor());
    ticket.device = status.st_dev;
    ticket.inode = status.st_ino;
  }
  return ticket;
}

Result<RegionInfo::Ticket> ShmTransport::expose(const Region& region) {
  if (!reads(region.kind())) {
    return failure(ErrorCode::refused, "shared memory does not reach device memory");
  }
  const std::lock_guard lock(mutex_);
  auto found = exposed_.find(&region);
  if (found == exposed_.end()) {
    const Result<shm::Ticket> ticket = ticket_for(region);
    if (!ticket) return failure(ticket);
    found = exposed_.emplace(&region, *ticket).first;
  }
  server_->add(found->second.region, region.bytes());
  return RegionInfo::Ticket{std::string(shm_name), encode(found->second)};
}

void ShmTransport::withdraw(const Region& region) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = exposed_.find(&region);
  if (found == exposed_.end()) return;
  server_->remove(found->second.region);
  exposed_.erase(found);
}

Result<std::shared_ptr<shm::Source>> ShmTransport::resolve(const RegionInfo& info) {
  const RegionInfo::Ticket* written = nullptr;
  for (const RegionInfo::Ticket& ticket : info.tickets) {
    if (ticket.transport == shm_name) written = &ticket;
  }
  if (written == nullptr) {
    return failure(ErrorCode::invalid, "it has no shm ticket; its owner has to expose it first");
  }
  const Result<shm::Ticket> ticket = shm::parse_ticket(written->bytes);
  if (!ticket) return failure(ticket);
  if (ticket->kind != info.kind || ticket->bytes != info.bytes) {
    return failure(ErrorCode::invalid, "its shm ticket is that of another region");
  }
  auto owner = shm::PeerProcess::find(ticket->owner);
  if (!owner) return failure(owner);
  if (ticket->kind == RegionKind::host_shared) {
    auto mapping = mappings_.map(*ticket);
    if (mapping) return shm::make_mapped_source(std::move(*mapping));
    if (mapping.error().code != ErrorCode::refused) return failure(mapping);
  } else if (!options_.staging_only) {
    auto source = shm::make_direct_source(*ticket, *owner);
    if (source) return std::move(*source);
    if (source.error().code != ErrorCode::refused) return failure(source);
  }
  return stage(*ticket, std::move(*owner));
}

Result<std::shared_ptr<shm::Source>> ShmTransport::stage(const shm::Ticket& ticket, Owner owner) {
  const std::shared_ptr<shm::StagingClient> client = client_for(ticket, std::move(owner));
  if (options_.note && !options_.staging_only && !noted_.exchange(true)) {
    options_.note("reading the memory of " + text_of(ticket.owner) +
                  " through a staging ring, which takes its processor time, since the kernel "
                  "forbids reading it directly; " +
                  std::string(how_to_allow));
  }
  // One connection now shows whether this way is open; the fetch will use it.
  const std::atomic<bool> never = false;
  auto connection = client->acquire(never);
  if (!connection) {
    if (options_.staging_only || !client->owner().alive()) return failure(connection);
    return failure(ErrorCode::refused, "the kernel forbids reading the memory of " +
                                           text_of(ticket.owner) + " directly, and " +
                                           connection.error().text + "; " +
                                           std::string(how_to_allow));
  }
  client->release(std::move(*connection), true);
  return shm::make_staged_source(ticket.region, client);
}

std::shared_ptr<shm::StagingClient> ShmTransport::client_for(const shm::Ticket& ticket,
                                                             Owner owner) {
  const std::lock_guard lock(mutex_);
  std::erase_if(clients_, [](const auto& entry) { return entry.second.expired(); });
  const std::string name = shm::staging_name(ticket.owner, ticket.endpoint);
  std::shared_ptr<shm::StagingClient> client = clients_[name].lock();
  if (!client) {
    client =
        std::make_shared<shm::StagingClient>(std::move(owner), name, options_.staging_deadline);
    clients_[name] = client;
  }
  return client;
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
    return failure(ErrorCode::refused, "shared memory does not write to device memory");
  }
  return check_bounds(copy, request.sources[copy.source].regions[copy.source_region].bytes,
                      target.bytes().size());
}

Result<std::unique_ptr<Fetch>> ShmTransport::prepare(const FetchRequest& request) {
  shm::FetchParts parts;
  for (const Region* target : request.targets) parts.targets.push_back(target->bytes());
  parts.copies.assign(request.copies.begin(), request.copies.end());
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> resolved;
  for (Copy& copy : parts.copies) {
    if (Result<void> checked = check_copy(request, copy); !checked) return failure(checked);
    const auto next = static_cast<std::uint32_t>(parts.sources.size());
    const auto [place, fresh] = resolved.try_emplace({copy.source, copy.source_region}, next);
    if (fresh) {
      const PlanSource& source = request.sources[copy.source];
      auto way = resolve(source.regions[copy.source_region]);
      if (!way) {
        return failure(way.error().code, "can't read region " + std::to_string(copy.source_region) +
                                             " of " + text_of(source.shard) + ": " +
                                             way.error().text);
      }
      parts.sources.push_back(std::move(*way));
    }
    copy.source = place->second;
  }
  return shm::make_fetch(parts, workers_);
}

}  // namespace

std::unique_ptr<Transport> make_shm_transport(const ShmOptions& options) {
  return std::make_unique<ShmTransport>(options);
}

}  // namespace weir
