#include "actors/internal/transport_worker.hpp"

#include <optional>

#include "actors/internal/errors.hpp"
#include "actors/internal/inbox.hpp"

namespace weir {
namespace {

class TransportWorker {
 public:
  using Self = TransportWorkerActor::stateful_pointer<TransportWorker>;
  using FetchPromise = caf::typed_response_promise<Fetched>;
  using PreparePromise = caf::typed_response_promise<std::uint64_t>;
  using OwnInbox = Inbox<TransportWorkerActor>;
  static constexpr const char* name = "transport worker";

  explicit TransportWorker(Self self)
      : self_(self), inbox_(std::make_shared<OwnInbox>(TransportWorkerActor{self})) {}
  ~TransportWorker() {
    inbox_->close();
    fetch_.reset();
  }
  TransportWorker(const TransportWorker&) = delete;
  TransportWorker& operator=(const TransportWorker&) = delete;

  TransportWorkerActor::behavior_type serve(Transport& transport,
                                            const std::vector<Region*>& targets) {
    return {
        [this, &transport, targets](PrepareAtom, const PlanPtr& plan) {
          return prepare(transport, targets, *plan);
        },
        [this](FetchAtom, std::uint64_t version) { return fetch(version); },
        [this](DoneAtom, std::uint64_t start, const FetchOutcome& outcome) {
          finish(start, outcome.result);
        },
    };
  }

 private:
  struct Running {
    std::uint64_t start;
    std::uint64_t version;
    FetchPromise promise;
  };

  PreparePromise prepare(Transport& transport, const std::vector<Region*>& targets,
                         const Plan& plan) {
    auto promise = self_->make_response_promise<PreparePromise>();
    const std::vector<Copy>& copies = plan.parts.front().copies;
    auto prepared = transport.prepare({copies, plan.sources, targets});
    if (!prepared) return promise.deliver(to_caf(prepared.error()));
    fetch_ = std::move(*prepared);
    std::uint64_t bytes = 0;
    for (const Copy& copy : copies) bytes += target_bytes(copy);
    return promise.deliver(bytes);
  }

  FetchPromise fetch(std::uint64_t version) {
    auto promise = self_->make_response_promise<FetchPromise>();
    if (!fetch_ || running_) {
      return promise.deliver(to_caf(
          {ErrorCode::refused, fetch_ ? "another fetch is running" : "nothing is prepared"}));
    }
    const std::uint64_t start = next_start_++;
    running_ = Running{start, version, promise};
    fetch_->start([inbox = inbox_, start](Result<FetchReport> result) {
      inbox->send(DoneAtom::value, start, FetchOutcome{std::move(result)});
    });
    return promise;
  }

  /// A second `done` of one start finds nothing to finish.
  void finish(std::uint64_t start, const Result<FetchReport>& result) {
    if (!running_ || running_->start != start) return;
    Running running = std::move(*running_);
    running_.reset();
    if (result) {
      running.promise.deliver(Fetched{running.version, result->bytes});
    } else {
      running.promise.deliver(to_caf(result.error()));
    }
  }

  Self self_;
  std::shared_ptr<OwnInbox> inbox_;
  std::unique_ptr<Fetch> fetch_;
  std::optional<Running> running_;
  std::uint64_t next_start_ = 1;
};

}  // namespace

TransportWorkerActor spawn_transport_worker(caf::actor_system& system, Transport& transport,
                                            const std::vector<Region*>& targets) {
  return system.spawn(
      [&transport](TransportWorker::Self self, const std::vector<Region*>& own) {
        return self->state.serve(transport, own);
      },
      targets);
}

}  // namespace weir
