#include "actors/internal/transport_worker.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "actors/fetch_state.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/inbox.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

/// A fetch waits no longer than this for the next bytes of a version that is being written, since
/// it has others to read by then, or will have them.
constexpr Duration stall_max = std::chrono::seconds(5);

/// Chunks bound to memory on both sides, for the last few routes of each source: a trainer with two
/// slots and a rollout with two meet in four ways.
class BoundChunks {
 public:
  BoundChunks(Transport& transport, std::vector<Region*> targets, std::uint32_t slots)
      : transport_(transport), targets_(std::move(targets)), slots_(slots) {}

  /// Begins with another plan, and binds what it says to read as far as that can be done now, so
  /// that no version waits for memory to be mapped. Who can't be read is told of by the fetch.
  void begin(const std::vector<Chunk>& chunks, const std::vector<PlanSource>& sources) {
    // Memory that both plans read stays mapped in between.
    const std::vector<Origin> before = std::exchange(origins_, std::vector<Origin>(sources.size()));
    std::vector<bool> unreachable(sources.size());
    std::uint32_t slots = 0;
    for (const PlanSource& source : sources) slots = std::max(slots, source.slots);
    for (std::uint32_t slot = 0; slot < std::min<std::uint32_t>(slots, ways_max); ++slot) {
      FetchRoutes routes;
      for (std::uint32_t i = 0; i < sources.size(); ++i) {
        routes.by_source.push_back({i, std::min(slot, sources[i].slots - 1), false});
      }
      take(routes, sources);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const std::uint32_t source = chunks[i].source;
        // One refusal is enough: the next may take as long.
        if (!unreachable[source]) unreachable[source] = !bind(chunks[i], i);
      }
    }
  }

  /// The routes by which chunks are bound from now on. Nothing is in flight.
  void take(const FetchRoutes& routes, const std::vector<PlanSource>& sources) {
    target_slot_ = routes.target_slot;
    for (std::size_t i = 0; i < origins_.size(); ++i) {
      const Route& route = routes.by_source[i];
      Origin& origin = origins_[i];
      PlanSource from = read_by(route, routes, sources);
      // Whoever is not read any more may be gone, and what is bound to it holds its memory.
      if (origin.peer != route.peer || origin.from != from) {
        origin = {std::move(from), route.peer, {}};
      }
      auto& ways = origin.ways;
      const auto known = std::find_if(ways.begin(), ways.end(), [&](const Way& way) {
        return way.slot == route.slot && way.target_slot == routes.target_slot;
      });
      if (known == ways.end()) {
        ways.insert(ways.begin(), Way{route.slot, routes.target_slot, {}});
        if (ways.size() > ways_max) ways.pop_back();
      } else {
        std::rotate(ways.begin(), known, known + 1);
      }
    }
  }

  /// Who is read for that source of the plan.
  [[nodiscard]] const ShardId& shard(std::uint32_t source) const {
    return origins_[source].from.shard;
  }

  Result<Fetch*> bind(const Chunk& chunk, std::size_t number) {
    Origin& origin = origins_[chunk.source];
    auto& fetches = origin.ways.front().fetches;
    if (const auto found = fetches.find(number); found != fetches.end()) return found->second.get();
    const PlanSource slot = regions_of_slot(origin);
    const std::vector<Copy> copies = copies_along(chunk, origin.peer);
    const std::size_t in_slot = regions_per_slot(targets_.size(), slots_);
    const auto targets =
        std::span<Region* const>(targets_).subspan(target_slot_ * in_slot, in_slot);
    auto fetch = transport_.prepare({copies, std::span(&slot, 1), targets});
    if (!fetch) return failure(fetch);
    return fetches.emplace(number, std::move(*fetch)).first->second.get();
  }

  /// A bound chunk that is in flight.
  Fetch& bound(const Chunk& chunk, std::size_t number) {
    return *origins_[chunk.source].ways.front().fetches.at(number);
  }

  /// After a failure the chunk is bound anew.
  void drop(const Chunk& chunk, std::size_t number) {
    origins_[chunk.source].ways.front().fetches.erase(number);
  }

 private:
  static constexpr std::size_t ways_max = 4;

  struct Way {
    std::uint32_t slot = 0;
    std::uint32_t target_slot = 0;
    std::map<std::size_t, std::unique_ptr<Fetch>> fetches;  ///< By chunk.
  };
  struct Origin {
    PlanSource from;
    bool peer = false;
    std::vector<Way> ways;  ///< The present one first.
  };

  static PlanSource regions_of_slot(const Origin& origin) {
    const auto in_slot = static_cast<std::ptrdiff_t>(
        regions_per_slot(origin.from.regions.size(), origin.from.slots));
    const auto first = origin.from.regions.begin() + in_slot * origin.ways.front().slot;
    return {origin.from.shard, {first, first + in_slot}, 1};
  }

  Transport& transport_;
  std::vector<Region*> targets_;
  std::uint32_t slots_;
  std::uint32_t target_slot_ = 0;
  std::vector<Origin> origins_;  ///< By source of the plan.
};

class TransportWorker {
 public:
  using Self = TransportWorkerActor::stateful_pointer<TransportWorker>;
  using FetchPromise = caf::typed_response_promise<Fetched>;
  using PreparePromise = caf::typed_response_promise<std::uint64_t>;
  using CancelPromise = caf::typed_response_promise<caf::ok_atom>;
  using OwnInbox = Inbox<TransportWorkerActor>;
  static constexpr const char* name = "transport worker";

  explicit TransportWorker(Self self)
      : self_(self), inbox_(std::make_shared<OwnInbox>(TransportWorkerActor{self})) {}
  ~TransportWorker() {
    inbox_->close();
    cancel_flights();
    bound_.reset();
  }
  TransportWorker(const TransportWorker&) = delete;
  TransportWorker& operator=(const TransportWorker&) = delete;

  TransportWorkerActor::behavior_type serve(Transport& transport,
                                            const std::vector<Region*>& targets,
                                            const TransportWorkerOptions& options) {
    WEIR_ASSERT(options.slots > 0 && targets.size() % options.slots == 0);
    window_bytes_max_ = options.window_bytes_max;
    buggify_ = options.buggify;
    shape_.slots = options.slots;
    for (std::size_t i = 0; i < targets.size() / options.slots; ++i) {
      shape_.region_bytes.push_back(targets[i]->bytes().size());
    }
    bound_.emplace(transport, targets, options.slots);
    return {
        [this](PrepareAtom, const PlanPtr& plan) { return prepare(plan); },
        [this](FetchAtom, const FetchOrder& order) { return fetch(order); },
        [this](StandAtom, const Standing& standing) { stand(standing); },
        [this](CancelAtom) { return cancel(); },
        [this](DoneAtom, std::uint64_t number, const FetchOutcome& outcome) {
          finish(number, outcome.result);
        },
    };
  }

 private:
  struct Failure {
    ShardId shard;
    std::string why;
  };
  struct Running {
    std::uint64_t version;
    std::uint64_t lease;
    std::uint64_t late;  ///< Of the message that says so.
    FetchPromise promise;
    std::uint64_t stalled = 0;  ///< Of the message that says so; 0 while nothing more has to stand.
    std::optional<Failure> failed = std::nullopt;
    std::optional<Error> stopped = std::nullopt;
    std::vector<CancelPromise> cancels = {};
  };

  PreparePromise prepare(const PlanPtr& plan) {
    auto promise = self_->make_response_promise<PreparePromise>();
    if (running_) {
      return promise.deliver(to_caf({ErrorCode::refused, "a fetch of the last plan is running"}));
    }
    if (const auto good = check_part(*plan, shape_); !good) {
      return promise.deliver(to_caf(good.error()));
    }
    const PlanPart& part = plan->parts.front();
    state_ = FetchState(chunks_of(part, plan->sources, chunk_bytes_max(window_bytes_max_)),
                        window_bytes_max_);
    plan_ = plan;
    std::uint64_t bytes = 0;
    for (const Copy& copy : part.copies) bytes += target_bytes(copy);
    promise.deliver(bytes);
    // Large memory takes long to map, which nobody has to wait for who does not fetch yet.
    bound_->begin(state_.chunks(), plan->sources);
    return promise;
  }

  FetchPromise fetch(const FetchOrder& order) {
    auto promise = self_->make_response_promise<FetchPromise>();
    if (!plan_ || running_) {
      return promise.deliver(
          to_caf({ErrorCode::refused, plan_ ? "another fetch is running" : "nothing is prepared"}));
    }
    const FetchRoutes routes{order.target_slot, order.by_source,    order.peer_slots,
                             order.peer,        order.peer_regions, order.stands};
    if (const auto good = check(routes, plan_->sources, shape_); !good) {
      return promise.deliver(to_caf(good.error()));
    }
    bound_->take(routes, plan_->sources);
    state_.begin({order.seat, order.lease, order.version, order.target_slot}, routes);
    running_ = Running{order.version, order.lease, next_number_++, promise};
    const Duration deadline = bounded(order.deadline);
    self_->delayed_send(self_, deadline, DoneAtom::value, running_->late,
                        FetchOutcome{failure(ErrorCode::timeout, "the bytes did not all come in " +
                                                                     text_of(deadline))});
    advance();
    return promise;
  }

  void stand(const Standing& standing) {
    if (!running_ || running_->lease != standing.lease ||
        standing.stands.size() != plan_->sources.size()) {
      return;
    }
    running_->stalled = 0;
    state_.stand(standing.stands);
    advance();
  }

  CancelPromise cancel() {
    auto promise = self_->make_response_promise<CancelPromise>();
    if (!running_) return promise.deliver(caf::ok_atom::value);
    running_->cancels.push_back(promise);
    stop({ErrorCode::unavailable, "the fetch was cancelled"});
    return promise;
  }

  /// A second word on one start, or a deadline that is over, finds nothing to finish.
  void finish(std::uint64_t number, const Result<FetchReport>& result) {
    if (running_ && running_->late == number) return stop(result.error());
    if (running_ && running_->stalled == number) return stall();
    const auto flight = state_.in_flight().find(number);
    if (flight == state_.in_flight().end()) return;
    const std::size_t chunk = flight->second;
    const std::uint64_t bytes = state_.chunks()[chunk].bytes;
    const bool doubted = strikes(buggify_, "worker: a chunk that came is fetched again");
    const bool moved = result && result->bytes == bytes && !doubted;
    state_.end(number, moved);
    if (!moved) {
      bound_->drop(state_.chunks()[chunk], chunk);
      fail(state_.chunks()[chunk].source, result ? "it moved " + std::to_string(result->bytes) +
                                                       " bytes of " + std::to_string(bytes)
                                                 : result.error().text);
    }
    advance();
  }

  /// Starts what the window has room for; answers when nothing is left to wait for.
  void advance() {
    while (!running_->failed && !running_->stopped) {
      const bool busy = !state_.in_flight().empty();
      if (busy && strikes(buggify_, "worker: a chunk waits for the one before")) break;
      const std::uint64_t start = next_number_++;
      const auto chunk = state_.start_next(start);
      if (!chunk) break;
      const auto bound = bound_->bind(state_.chunks()[*chunk], *chunk);
      if (!bound) {
        state_.end(start, false);
        fail(state_.chunks()[*chunk].source, bound.error().text);
        break;
      }
      (*bound)->start([inbox = inbox_, start](Result<FetchReport> result) {
        inbox->send(DoneAtom::value, start, FetchOutcome{std::move(result)});
      });
    }
    if (!state_.in_flight().empty()) return;
    if (running_->failed || running_->stopped || state_.whole()) return answer();
    if (running_->stalled != 0) return;
    running_->stalled = next_number_++;
    self_->delayed_send(self_, stall_max, DoneAtom::value, running_->stalled,
                        FetchOutcome{failure(ErrorCode::timeout, "nothing more stands")});
  }

  /// Somebody else may have the version, whole or in the making; else it is read when it is READY.
  void stall() {
    fail(*state_.waits_for(), "it wrote nothing more of the version for " + text_of(stall_max));
    advance();
  }

  /// The first source that failed is the one that is told.
  void fail(std::uint32_t source, const std::string& why) {
    if (!running_->failed) running_->failed = Failure{bound_->shard(source), one_line(why)};
  }

  void stop(const Error& why) {
    if (!running_->stopped) running_->stopped = why;
    cancel_flights();
    if (state_.in_flight().empty()) answer();
  }

  void cancel_flights() {
    for (const auto& [start, chunk] : state_.in_flight()) {
      bound_->bound(state_.chunks()[chunk], chunk).cancel();
    }
  }

  void answer() {
    Running running = std::move(*running_);
    running_.reset();
    if (running.stopped) {
      running.promise.deliver(to_caf(*running.stopped));
    } else {
      WEIR_ASSERT(running.failed.has_value() || state_.whole());
      Fetched fetched{running.version, state_.bytes_done(), state_.chunks_done(), true, {}, {}};
      if (running.failed) {
        fetched.whole = false;
        fetched.failed = running.failed->shard;
        fetched.why = running.failed->why;
      }
      running.promise.deliver(fetched);
    }
    for (CancelPromise& cancel : running.cancels) cancel.deliver(caf::ok_atom::value);
  }

  Self self_;
  std::shared_ptr<OwnInbox> inbox_;
  std::uint64_t window_bytes_max_ = 0;
  Buggify buggify_;
  TargetShape shape_;
  PlanPtr plan_;
  std::optional<BoundChunks> bound_;
  FetchState state_;
  std::optional<Running> running_;
  std::uint64_t next_number_ = 1;  ///< Of starts and deadlines.
};

}  // namespace

TransportWorkerActor spawn_transport_worker(caf::actor_system& system, Transport& transport,
                                            const std::vector<Region*>& targets,
                                            const TransportWorkerOptions& options) {
  return system.spawn(
      [&transport](TransportWorker::Self self, const std::vector<Region*>& own,
                   const TransportWorkerOptions& limits) {
        return self->state.serve(transport, own, limits);
      },
      targets, options);
}

}  // namespace weir
