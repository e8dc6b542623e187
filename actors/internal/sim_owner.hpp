#pragma once
// Who uses a simulated exchange: its owner, who has samples generated and batches trained, and the
// engines of the rollout replicas, which generate them.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/internal/protocol.hpp"
#include "actors/internal/sim_net.hpp"

namespace weir::sim {

class World;
class Owner;

/// How a world's owner uses its exchange; the rules are the exchange's.
struct Demand {
  std::uint64_t batch = 0;     ///< Samples of a training step; 0: no owner, and trainers run free.
  std::uint64_t requests = 4;  ///< For admission, that wait at once.
  std::uint64_t tokens_max = 16;
  /// One sample in so many gets a deadline that it may miss, or is given up; 0 for none.
  std::uint64_t trouble = 0;
};

/// The engines of one rollout replica: they generate a token of each sample at each decode step.
class Engines {
 public:
  explicit Engines(World& world) : world_(world) {}

  void submit(Owner& owner, const Attempt& attempt, std::uint64_t tokens);
  void cancel(const Attempt& attempt);
  /// A decode step has ended.
  void step(std::uint64_t version);
  /// Calls `then` once nothing that is to drain is left; until `resume`, nothing is begun.
  void drain(std::function<void()> then);
  void pause(InFlight in_flight);
  void resume() { draining_ = false; }
  /// A shard has died, or whoever asked.
  void drop(bool tell);

 private:
  struct Generation {
    Owner* owner = nullptr;
    std::uint64_t left = 0;  ///< Tokens.
    bool begun = false;
  };

  void tell_drained();

  World& world_;
  std::map<Attempt, Generation> generations_;
  bool draining_ = false;
  std::vector<std::function<void()>> drained_;
};

/// The host program of the exchange's process: one life of it. It asks for samples, has engines
/// generate them, says what they generated, and takes batches; and holds every answer against a
/// record of its own.
class Owner {
 public:
  Owner(World& world, Process& process, const SupervisorActor& exchange);
  ~Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  void start();
  /// The last version was published: training goes on without.
  void expect_no_more_versions();

  // From engines:
  void generated(const Attempt& attempt, std::uint64_t version, bool whole);
  void aborted(const Attempt& attempt);

  /// What it was last told of its samples, for a person.
  [[nodiscard]] std::string text() const;

 private:
  struct Held {
    Assignment assignment;
    std::vector<Span> counted;  ///< As the exchange has heard; without empty spans.
    std::vector<Span> untold;
    bool whole = false;
    bool asking = false;  ///< An answer about it is owed.
    bool finished = false;
    std::uint64_t tokens = 0;  ///< That it is to have.
  };

  template <class T, class... Content>
  void ask(std::function<void(const Result<T>&)> then, const Content&... content);
  void admit();
  void take(const Assignment& assignment);
  void submit(const Held& held);
  void go_on(SampleId sample);
  void tell_tokens(SampleId sample);
  void finish(SampleId sample);
  void give_up(SampleId sample);
  void ask_next(SampleId sample);
  void take_batch();
  /// Looks at the counts, and for a version to train from, now and again.
  void watch();
  void compare(const ExchangeStatus& status);
  void check(const Delivered& delivered);
  void later(Duration delay, std::function<void()> then);
  Held* find(const Attempt& attempt);

  World& world_;
  Process& process_;
  SupervisorActor exchange_;
  caf::actor desk_;  ///< Sends its requests.
  std::map<SampleId, Held> held_;
  std::set<SampleId> ended_;  ///< No sample comes back.
  std::uint64_t delivered_ = 0;
  AdmissionCounts counts_;
};

}  // namespace weir::sim
