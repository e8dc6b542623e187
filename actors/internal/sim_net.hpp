#pragma once
// Processes and the connections between them, in virtual time: what CAF's middleman and the kernel
// are in production.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/internal/protocol.hpp"
#include "actors/internal/system.hpp"
#include "runtime/digest.hpp"
#include "runtime/random.hpp"

namespace weir::sim {

class Connection;

/// One process: an actor system of its own, with a clock of its own that runs a little wrong.
class Process {
 public:
  Process(std::string name, Random& random);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  caf::actor_system& system() noexcept { return system_; }
  caf::scheduler::test_coordinator& scheduler() noexcept { return scheduler_; }

  /// What its clock shows at that time of the world. It never goes back.
  [[nodiscard]] Duration local(Duration world) const;
  /// When its next timeout is due, in the world's time.
  [[nodiscard]] std::optional<Duration> next_timeout();
  /// Its clock goes on to the world's `now`, and what is due becomes a message.
  void advance(Duration now);

  bool alive = true;
  bool hung = false;                     ///< Stopped: runs nothing until it goes on.
  std::set<caf::actor_id> stalled;       ///< Actors that run nothing for now.
  std::vector<caf::resumable*> waiting;  ///< Those that have something to run.
  /// What has to be ended with it.
  std::vector<caf::strong_actor_ptr> actors;

 private:
  std::string name_;
  ActorSystemConfig config_;
  caf::actor_system system_;
  caf::scheduler::test_coordinator& scheduler_;
  Duration offset_;
  std::int64_t parts_per_million_;  ///< That its clock is fast.
};

/// The world's time, its events and its processes. One thread.
class Net {
 public:
  explicit Net(std::uint64_t seed);
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  Random& random() noexcept { return random_; }
  [[nodiscard]] Duration now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Those from one process to another that have arrived.
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }
  Digester& trace() noexcept { return trace_; }

  void after(Duration delay, std::function<void()> then);
  /// One actor handles one message, or one event happens; time goes on when there is neither.
  /// False when nothing is left at all.
  bool step();

  /// Ends all actors. Nothing happens any more.
  void end();

  Process& add_process(const std::string& name);
  /// Nothing of it runs any more. Peers see it at once, or, without notice, when it is silent.
  void kill(Process& process, bool notice);
  void hang(Process& process, Duration time);
  /// An actor that is about to run gets no processor for so long: what it is sent waits. False when
  /// there is none in that process.
  bool stall(Process& process, Duration time);

  /// A connection from `member` to `exchange`; the handle by which the one reaches `door` of the
  /// other. Null when it can't be made now.
  caf::strong_actor_ptr connect(Process& member, Process& exchange,
                                const caf::strong_actor_ptr& door);
  enum class Way : std::uint8_t { to_exchange, to_member, both };
  /// Messages of the member wait. Whoever hears nothing for `silence` closes the connection.
  void cut(Process& member, Way way, Duration time);

  Duration silence = std::chrono::seconds(2);
  /// Messages take from nothing to this long; a few take ten times as long.
  Duration delay_max = std::chrono::milliseconds(1);

 private:
  friend class Connection;

  void close_of(Process& process);
  void run(Process& process, std::size_t job);

  Random random_;
  Digester trace_;
  Duration now_{};
  std::uint64_t steps_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t next_event_ = 0;
  std::map<std::pair<Duration, std::uint64_t>, std::function<void()>> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Connection>> connections_;
  /// Until when the member of that name is cut off, each way.
  std::map<std::string, std::pair<Duration, Duration>> cuts_;
};

}  // namespace weir::sim
