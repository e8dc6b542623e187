#include "transports/sim/sim_transport.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/assert.hpp"
#include "runtime/strided_copy.hpp"

namespace weir {

using std::chrono::nanoseconds;

/// The network as its transports and fetches see it.
struct SimState {
  struct Exposed {
    std::uint32_t host;
    const Region* region;
    std::uint64_t bytes_read = 0;
  };

  [[nodiscard]] const SimLink& link(const SimPath& path) const {
    const auto found = links.find(path);
    return found == links.end() ? common_link : found->second;
  }
  [[nodiscard]] std::uint64_t life_of(std::uint32_t host) const {
    const auto found = lives.find(host);
    return found == lives.end() ? 0 : found->second;
  }
  [[nodiscard]] bool alive(std::uint32_t host, std::uint64_t life) const {
    return !down.contains(host) && life_of(host) == life;
  }
  SimFault take_fault() {
    if (faults.empty()) return SimFault::none;
    const SimFault fault = faults.front();
    faults.pop_front();
    return fault;
  }

  SimState(SimNetwork::After call_after, Random& numbers)
      : after(std::move(call_after)), random(numbers) {}

  /// Whether there is room to map more memory.
  [[nodiscard]] Result<void> map(std::uint32_t host) {
    if (!starved.contains(host) || random.chance(1, 2)) return {};
    return failure(ErrorCode::refused,
                   "host " + std::to_string(host) + " has no memory left: free some");
  }

  SimNetwork::After after;
  Random& random;
  SimLink common_link;
  std::map<SimPath, SimLink> links;
  nanoseconds late_by = std::chrono::seconds(1);
  std::deque<SimFault> faults;
  std::map<SimPath, SimCut> cuts;
  std::map<SimPath, std::vector<std::function<void()>>> hung;
  std::set<std::uint32_t> down;
  std::set<std::uint32_t> starved;
  std::map<std::uint32_t, std::uint64_t> lives;  ///< How often a host was taken down.
  std::map<std::uint64_t, Exposed> exposed;
  std::uint64_t next_region = 1;
  std::uint64_t starts = 0;
  std::uint64_t bytes_written = 0;
};

SimNetwork::SimNetwork(After after, Random& random)
    : state_(std::make_unique<SimState>(std::move(after), random)) {}
SimNetwork::~SimNetwork() = default;

void SimNetwork::set_link(const SimLink& link) {
  WEIR_ASSERT(link.delay_least.count() >= 0 && link.delay_least <= link.delay_most);
  state_->common_link = link;
}

void SimNetwork::set_link(const SimPath& path, const SimLink& link) {
  WEIR_ASSERT(link.delay_least.count() >= 0 && link.delay_least <= link.delay_most);
  state_->links[path] = link;
}

void SimNetwork::set_late_by(nanoseconds time) {
  state_->late_by = time;
}

void SimNetwork::fault_next(SimFault fault, int count) {
  for (int i = 0; i < count; ++i) state_->faults.push_back(fault);
}

void SimNetwork::cut(const SimPath& path, SimCut manner) {
  state_->cuts[path] = manner;
}

void SimNetwork::heal(const SimPath& path) {
  state_->cuts.erase(path);
  const auto waiting = state_->hung.extract(path);
  if (waiting.empty()) return;
  for (const auto& then : waiting.mapped()) state_->after(nanoseconds(1), then);
}

void SimNetwork::short_of_memory(std::uint32_t host, bool is_short) {
  if (is_short) {
    state_->starved.insert(host);
  } else {
    state_->starved.erase(host);
  }
}

void SimNetwork::take_down(std::uint32_t host) {
  state_->down.insert(host);
  ++state_->lives[host];
  std::erase_if(state_->exposed, [host](const auto& entry) { return entry.second.host == host; });
}

void SimNetwork::bring_up(std::uint32_t host) {
  state_->down.erase(host);
}

std::uint64_t SimNetwork::starts() const noexcept {
  return state_->starts;
}

std::uint64_t SimNetwork::bytes_written() const noexcept {
  return state_->bytes_written;
}

std::uint64_t SimNetwork::bytes_read(const Region& region) const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& [number, exposed] : state_->exposed) {
    if (exposed.region == &region) bytes += exposed.bytes_read;
  }
  return bytes;
}

namespace {

constexpr std::string_view transport_name = "sim";

/// "host:region:bytes", in decimal.
struct SimTicket {
  std::uint32_t host = 0;
  std::uint64_t region = 0;
  std::uint64_t bytes = 0;
};

std::string text_of(const SimTicket& ticket) {
  return std::to_string(ticket.host) + ":" + std::to_string(ticket.region) + ":" +
         std::to_string(ticket.bytes);
}

std::optional<SimTicket> parse(const std::string& text) {
  SimTicket ticket;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto take = [&at, end](auto& number) {
    const auto [next, error] = std::from_chars(at, end, number);
    const bool good = error == std::errc() && next != at;
    at = next;
    return good;
  };
  const auto colon = [&at, end] { return at != end && *at++ == ':'; };
  if (!take(ticket.host) || !colon() || !take(ticket.region) || !colon() || !take(ticket.bytes) ||
      at != end || text_of(ticket) != text) {
    return std::nullopt;
  }
  return ticket;
}

/// The process that a transport was made for.
struct Process {
  std::uint32_t host;
  std::uint64_t life;
};

/// One copy or a part of it, bound to memory on this side and to a number on the other.
struct Part {
  Copy copy;
  std::uint64_t source;  ///< The exposed region's number.
  std::span<std::byte> target;
};

constexpr std::size_t step_count = 2;

/// What a fetch consists of; callbacks that come after its end find it gone.
class Body : public std::enable_shared_from_this<Body> {
 public:
  Body(SimState& network, const Process& reader) : network_(network), reader_(reader) {}

  void add(const Copy& copy, const SimTicket& source, std::span<std::byte> target) {
    const std::uint64_t bytes = target_bytes(copy);
    const std::vector<Copy> parts = split(copy, std::max<std::uint64_t>(bytes / step_count, 1));
    // What can't be cut goes into either step.
    const std::size_t shift = parts.size() == 1 ? report_.copies % step_count : 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t step = shift + i * step_count / parts.size();
      steps_[std::min(step, step_count - 1)].push_back({parts[i], source.region, target});
    }
    sources_[source.region] = {source.host, reader_.host};
    report_.bytes += bytes;
    ++report_.copies;
  }

  void start(FetchDone done) {
    WEIR_ASSERT(!done_);
    done_ = std::move(done);
    ++start_;
    ++network_.starts;
    fault_ = network_.take_fault();
    cancelled_ = false;
    nanoseconds delay{};
    transfer_ = nanoseconds(0);
    for (const auto& [region, path] : sources_) {
      const SimLink& link = network_.link(path);
      delay = std::max(delay, nanoseconds(network_.random.between(link.delay_least.count(),
                                                                  link.delay_most.count())));
      if (link.bytes_per_second == 0) continue;
      const double seconds =
          static_cast<double>(report_.bytes) / static_cast<double>(link.bytes_per_second);
      transfer_ = std::max(transfer_, nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
    }
    if (fault_ == SimFault::late) delay += network_.late_by;
    run_after(delay, 0);
  }

  void cancel() {
    if (!done_ || cancelled_) return;
    cancelled_ = true;
    network_.after(nanoseconds(1), guarded([](Body& body) {
                     body.end(failure(ErrorCode::unavailable, "the fetch was cancelled"));
                   }));
  }

  /// The fetch is being destroyed, and nobody may wait in a world of one thread.
  void abandon() {
    if (done_) end(failure(ErrorCode::unavailable, "the fetch was cancelled"));
  }

 private:
  template <class Action>
  std::function<void()> guarded(Action action) {
    return [weak = weak_from_this(), start = start_, action] {
      const auto body = weak.lock();
      if (body && body->done_ && body->start_ == start) action(*body);
    };
  }
  void run_after(nanoseconds delay, std::size_t step) {
    network_.after(delay, guarded([step](Body& body) { body.run(step); }));
  }

  void run(std::size_t step) {
    if (cancelled_ || (fault_ == SimFault::never && step > 0)) return;
    if (!network_.alive(reader_.host, reader_.life)) {
      return end(failure(ErrorCode::unavailable, "this host is down"));
    }
    for (const auto& [region, path] : sources_) {
      if (!network_.exposed.contains(region)) {
        return end(failure(ErrorCode::unavailable, "host " + std::to_string(path.source) +
                                                       " is down or withdrew a region"));
      }
      const auto cut = network_.cuts.find(path);
      if (cut == network_.cuts.end()) continue;
      if (cut->second == SimCut::hang) {
        network_.hung[path].push_back(guarded([step](Body& body) { body.run(step); }));
        return;
      }
      return end(failure(ErrorCode::unavailable,
                         "the path from host " + std::to_string(path.source) + " is cut"));
    }
    copy(step);
    if (fault_ == SimFault::fail) return end(failure(ErrorCode::io, "the wire failed on order"));
    if (step + 1 == step_count) return end(report_);
    // At another time, whatever the link's speed.
    const std::int64_t pause = network_.random.between(1, 1 + transfer_.count() / 4);
    run_after(transfer_ + nanoseconds(pause), step + 1);
  }

  void copy(std::size_t step) {
    for (const Part& part : steps_[step]) {
      SimState::Exposed& source = network_.exposed.at(part.source);
      copy_strided(part.copy, source.region->bytes(), part.target);
      network_.bytes_written += target_bytes(part.copy);
      source.bytes_read += target_bytes(part.copy);
    }
  }

  void end(const Result<FetchReport>& result) {
    const FetchDone done = std::exchange(done_, nullptr);
    done(result);
    if (fault_ == SimFault::twice) done(result);
  }

  SimState& network_;
  Process reader_;
  std::array<std::vector<Part>, step_count> steps_;
  std::map<std::uint64_t, SimPath> sources_;  ///< By the exposed region's number.
  FetchReport report_;
  FetchDone done_;
  std::uint64_t start_ = 0;
  SimFault fault_ = SimFault::none;
  bool cancelled_ = false;
  nanoseconds transfer_{};
};

class SimFetch final : public Fetch {
 public:
  explicit SimFetch(std::shared_ptr<Body> body) : body_(std::move(body)) {}
  ~SimFetch() override { body_->abandon(); }

  void start(FetchDone done) override { body_->start(std::move(done)); }
  void cancel() noexcept override { body_->cancel(); }

 private:
  std::shared_ptr<Body> body_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(SimState& network, const Process& process) : network_(network), process_(process) {}
  ~SimTransport() override {
    for (const auto& [region, number] : exposed_) network_.exposed.erase(number);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return transport_name; }
  [[nodiscard]] bool reads(RegionKind) const noexcept override { return true; }
  [[nodiscard]] bool writes(RegionKind) const noexcept override { return true; }

  Result<RegionInfo::Ticket> expose(const Region& region) override {
    if (!network_.alive(process_.host, process_.life)) {
      return failure(ErrorCode::unavailable, "this host is down");
    }
    if (const auto room = network_.map(process_.host); !room) return failure(room);
    const auto [known, fresh] = exposed_.try_emplace(&region, network_.next_region);
    if (fresh) {
      network_.exposed[network_.next_region++] = {process_.host, &region, 0};
    }
    return RegionInfo::Ticket{
        std::string(transport_name),
        text_of(SimTicket{process_.host, known->second, region.bytes().size()})};
  }

  void withdraw(const Region& region) noexcept override {
    const auto found = exposed_.find(&region);
    if (found == exposed_.end()) return;
    network_.exposed.erase(found->second);
    exposed_.erase(found);
  }

  Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) override {
    if (!network_.alive(process_.host, process_.life)) {
      return failure(ErrorCode::unavailable, "this host is down");
    }
    if (const auto room = network_.map(process_.host); !room) return failure(room);
    auto body = std::make_shared<Body>(network_, process_);
    for (const Copy& copy : request.copies) {
      if (copy.source >= request.sources.size() ||
          copy.source_region >= request.sources[copy.source].regions.size() ||
          copy.target_region >= request.targets.size()) {
        return failure(ErrorCode::invalid, "a copy names a source or region that is not there");
      }
      const RegionInfo& source = request.sources[copy.source].regions[copy.source_region];
      const auto target = request.targets[copy.target_region]->bytes();
      const Result<SimTicket> ticket = resolve(source);
      if (!ticket) return failure(ticket);
      if (const auto good = check_bounds(copy, ticket->bytes, target.size()); !good) {
        return failure(good);
      }
      body->add(copy, *ticket, target);
    }
    return std::make_unique<SimFetch>(std::move(body));
  }

 private:
  [[nodiscard]] Result<SimTicket> resolve(const RegionInfo& info) const {
    const auto ours = [](const auto& ticket) { return ticket.transport == transport_name; };
    const auto found = std::find_if(info.tickets.begin(), info.tickets.end(), ours);
    const auto ticket = found == info.tickets.end() ? std::nullopt : parse(found->bytes);
    if (!ticket || ticket->region == 0 || ticket->region >= network_.next_region ||
        ticket->bytes != info.bytes) {
      return failure(ErrorCode::invalid, "a region has no good ticket of transport sim");
    }
    const auto exposed = network_.exposed.find(ticket->region);
    if (exposed == network_.exposed.end()) {
      return failure(ErrorCode::unavailable,
                     "host " + std::to_string(ticket->host) + " is down or withdrew the region");
    }
    if (exposed->second.host != ticket->host ||
        exposed->second.region->bytes().size() != ticket->bytes) {
      return failure(ErrorCode::invalid, "a ticket of transport sim has another host or size");
    }
    return *ticket;
  }

  SimState& network_;
  Process process_;
  std::map<const Region*, std::uint64_t> exposed_;
};

}  // namespace

std::unique_ptr<Transport> make_sim_transport(SimNetwork& network, std::uint32_t host) {
  SimState& state = *network.state_;
  return std::make_unique<SimTransport>(state, Process{host, state.life_of(host)});
}

}  // namespace weir
