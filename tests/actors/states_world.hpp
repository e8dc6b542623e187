#pragma once
// An exchange of plain decisions, whose members, memory and messages are naive models.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/ledger_state.hpp"
#include "actors/replica_state.hpp"
#include "actors/shard_state.hpp"
#include "runtime/random.hpp"

namespace weir {

/// Ledger, coordinators and shards decide with the real structs; a planner, processes, their memory
/// and the ways of messages between them are models. Each receiver has one queue in the order of
/// sending, each process one connection in either direction; which queue goes on next is drawn. A
/// cell of memory is the number of the version whose byte it is, and is written or copied in a step
/// of its own. The first broken promise is kept in `fault`.
class StatesWorld {
 public:
  struct Options {
    std::uint32_t trainer_replicas = 1;
    std::uint32_t trainer_ranks = 1;
    std::uint32_t trainer_slots = 1;
    std::uint32_t rollout_replicas = 1;
    std::uint32_t rollout_ranks = 1;
    std::vector<Placement> placements;  ///< Of each rollout replica.
    Follow follow = Follow::finish;
    bool dead_memory_is_read = false;  ///< Shared memory outlives the process that made it.
  };
  StatesWorld(const Options& options, std::uint64_t seed);

  /// One message, one cell, one answer of an engine, or one fault where they are allowed.
  void step(bool faults);
  /// Has the trainers publish once more, and then no further version.
  void begin_recovery();
  /// Restarts who is dead.
  void revive();
  [[nodiscard]] bool recovered() const;
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }
  /// What every member is doing, for a failure's text.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::uint64_t commits() const noexcept { return commits_; }
  [[nodiscard]] std::uint64_t faults() const noexcept { return faults_; }
  /// Cells that were copied before their version was ready.
  [[nodiscard]] std::uint64_t early() const noexcept { return early_; }

 private:
  using Message = std::function<void()>;
  using Box = std::deque<Message>;
  using Cells = std::vector<std::uint64_t>;
  using From = ReplicaState::From;

  enum class Order : std::uint8_t { none, pause, install, resume };
  enum class Work : std::uint8_t { idle, asking, writing, telling };
  struct Fetch {
    From from;
    std::uint64_t number = 0;  ///< Of the request.
    std::uint64_t version = 0;
    std::uint32_t slot = 0;
    std::vector<ShardId> shards;         ///< That are read, by source.
    std::vector<std::size_t> processes;  ///< The same as processes.
    std::vector<std::uint32_t> slots;
    std::vector<bool> peer;
    std::vector<std::uint32_t> sources;  ///< The plan's, that are read.
    std::vector<std::uint64_t> stands;   ///< Cells by source of the plan; none: all.
  };
  struct Process {
    ShardId shard;
    bool alive = true;
    bool joined = false;   ///< Has a seat of the present exchange.
    bool joining = false;  ///< Waits until it is idle.
    bool cut = false;      ///< Its connection is down, and the exchange does not know it yet.
    std::optional<TrainerState> trainer;
    std::optional<RolloutState> rollout;
    std::vector<Cells> slots;
    Cells live;  ///< Staging: what the engine reads.
    Box in, out;
    std::map<std::uint64_t, std::pair<From, bool>> owed;  ///< Answers; true for a fetch.
    // Rollouts:
    std::optional<Fetch> fetch;
    /// The cells that are there are of this seat and lease.
    std::pair<std::uint64_t, std::uint64_t> kept_claim;
    std::vector<bool> kept;
    Order order = Order::none;
    From order_from;
    std::uint64_t order_number = 0;
    std::uint64_t order_version = 0;
    std::uint32_t order_slot = 0;
    std::map<ShardId, std::size_t> sources;       ///< Whom it reads trainers' parts from.
    std::map<ShardId, std::size_t> sources_next;  ///< Once no fetch runs.
    std::uint64_t served = 0;
    // Trainers:
    Work work = Work::idle;
    std::uint64_t version = 0;
    std::uint32_t slot = 0;
    std::size_t cells_written = 0;
  };

  void fail(const std::string& why) {
    if (fault_.empty()) fault_ = why;
  }
  [[nodiscard]] const MemberInfo* seated(std::size_t process) const;
  [[nodiscard]] Process* holder_of(const ShardId& shard, std::uint64_t seat);
  std::size_t add_process(const ShardId& shard);
  /// Under the connection that it has with that seat; what is sent under an earlier one is lost.
  void post(std::size_t process, std::uint64_t seat, Message message);

  // Faults.
  void draw_fault();
  void crash(std::size_t process);
  void blink(std::size_t process);
  void disconnect(std::size_t process);
  void restart_exchange();

  // The planner.
  void ask_to_join(std::size_t process);
  void join(std::size_t process, const MemberStatus& status);
  void hold(std::size_t process, std::uint64_t seat, const MemberStatus& status);
  void lose(const ShardId& shard, std::uint64_t seat);
  void tell_roster();
  void send_sources(std::size_t process);

  // The ledger and its readers.
  void act_ledger();
  void carry_out(const ledger::Granted& granted);
  void carry_out(const ledger::Superseded& superseded);
  void carry_out(const ledger::Leased& leased);
  void carry_out(const ledger::NotLeased& refused);
  void carry_out(const ledger::Revoked& revoked);
  void carry_out(const ledger::Ready& ready);
  void carry_out(const ledger::Begun& begun);
  void carry_out(const ledger::Standing& standing);

  // Coordinators.
  void to_coordinator(std::uint32_t replica, std::function<void(ReplicaState&)> what);
  void act(std::uint32_t replica);
  void carry_out(std::uint32_t replica, const replica::AskLease& ask);
  void carry_out(std::uint32_t replica, const replica::Renew& renew);
  void carry_out(std::uint32_t replica, const replica::Confirm& confirm);
  void carry_out(std::uint32_t replica, const replica::Release& release);
  void carry_out(std::uint32_t replica, const replica::Fetch& fetch);
  void carry_out(std::uint32_t replica, const replica::Tell& tell);
  void carry_out(std::uint32_t replica, const replica::Cancel& cancel);
  void carry_out(std::uint32_t replica, const replica::Pause& pause);
  void carry_out(std::uint32_t replica, const replica::Install& install);
  void carry_out(std::uint32_t replica, const replica::Resume& resume);
  void carry_out(std::uint32_t replica, const replica::Expel& expel);
  void carry_out(std::uint32_t replica, const replica::Retry& retry);
  void carry_out(std::uint32_t replica, const replica::Committed& done);
  void carry_out(std::uint32_t, const replica::Out&) {}
  void order(std::uint32_t replica, std::uint32_t rank, Order what, std::uint64_t version,
             std::uint32_t slot);
  void check_resume(std::uint32_t replica, std::uint64_t version);

  // Members.
  void answer(std::size_t process, std::uint64_t number, std::function<void(ReplicaState&)> what);
  void begin_fetch(std::size_t process, const Fetch& fetch, std::uint64_t lease);
  void copy_cell(std::size_t process, bool faults);
  void end_fetch(Process& process, bool whole);
  void begin_order(std::size_t process, Order what, const From& from, std::uint64_t number,
                   std::uint64_t version, std::uint32_t slot);
  void end_order(std::size_t process, bool faults);
  void cancel(std::size_t process, const From& from, std::uint64_t number);
  void idle(std::size_t process);
  void train(std::size_t process);
  /// That it wants to write its version, or that its bytes stand.
  void tell_ledger(std::size_t process, bool asks);
  void tell_standing(std::size_t process);
  void check_served();

  [[nodiscard]] std::size_t group_count() const {
    return std::size_t{options_.trainer_replicas} * options_.trainer_ranks;
  }

  Options options_;
  Random random_;
  std::string fault_;
  std::uint64_t commits_ = 0;
  std::uint64_t faults_ = 0;
  std::uint64_t early_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<ShardId, std::size_t> places_;  ///< The latest process of each.
  std::map<std::uint64_t, std::size_t> by_seat_;
  std::vector<std::uint64_t> training_;  ///< By trainer replica: the version that it makes.
  bool recovering_ = false;
  std::uint64_t next_request_ = 1;
  // The exchange:
  Box planner_box_, ledger_box_, supervisor_box_;
  std::vector<Box> boxes_;                  ///< Of the coordinators.
  std::map<ShardId, std::uint64_t> seats_;  ///< Of those that have joined, holding or not.
  std::uint64_t last_seat_ = 0;
  Roster roster_;
  std::vector<Roster> rosters_;  ///< As the coordinators know them.
  std::optional<LedgerState> ledger_;
  std::vector<ReplicaState> replicas_;
  std::map<ShardId, std::uint64_t> writers_;         ///< The seats of those who asked to write.
  std::map<std::uint64_t, std::uint32_t> requests_;  ///< For leases: whose.
  std::vector<std::uint64_t> numbers_;               ///< Of leases, for their deadlines.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> retries_;
};

}  // namespace weir
