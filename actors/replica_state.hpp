#pragma once
// One rollout replica: its shards switch to a version together, or not at all.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/roster.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What a coordinator is to do next. What is asked of a shard or of the ledger is answered by one
/// call of the `ReplicaState`.
namespace replica {
struct AskLease {
  std::uint64_t version;
  std::uint32_t slot;
};
struct Renew {
  std::uint64_t lease;
  ShardId failed;
};
struct Confirm {
  std::uint64_t lease;
};
struct Release {
  std::uint64_t lease;
};
struct Fetch {
  std::uint32_t rank;
  Lease lease;
  std::uint32_t slot;
};
/// More of the version stands than the shard was told when it was asked to fetch, or since.
struct Tell {
  std::uint32_t rank;
  std::uint64_t lease;
  std::vector<std::uint64_t> stands;
};
struct Cancel {
  std::uint32_t rank;
};
struct Pause {
  std::uint32_t rank;
  std::uint64_t version;
};
struct Install {
  std::uint32_t rank;
  std::uint64_t version;
  std::uint32_t slot;
};
struct Resume {
  std::uint32_t rank;
  std::uint64_t version;
};
/// The shard can't be counted on: it has to join again. No answer is expected.
struct Expel {
  std::uint32_t rank;
  std::uint64_t seat;
  Error why;
};
/// Call `retry` with that number after a pause; `attempt` counts from 1. No answer is expected.
struct Retry {
  std::uint64_t number;
  std::uint32_t attempt;
};
/// The replica is in service with `version` from now on: tell ledger and owner.
struct Committed {
  std::uint64_t version;
  std::uint32_t slot;
  std::uint64_t bytes_moved;
  bool readable;  ///< The slot of every shard still holds it: others may read it there.
};
/// The replica is out of service from now on.
struct Out {
  std::string why;
};
}  // namespace replica
using ReplicaEffect =
    std::variant<replica::AskLease, replica::Renew, replica::Confirm, replica::Release,
                 replica::Fetch, replica::Tell, replica::Cancel, replica::Pause, replica::Install,
                 replica::Resume, replica::Expel, replica::Retry, replica::Committed, replica::Out>;

/// The decisions of a replica coordinator. It keeps the newest version that was announced and not
/// begun; fetches it under a lease; and switches in two phases: no shard installs before every
/// shard has fetched and the lease is confirmed, and none resumes before every shard has installed.
/// Whatever goes wrong is an attempt that ends: the version before goes on being served where every
/// shard still has it, else the replica is out of service until it holds a whole version again.
/// It decides by what is so, not by what has just happened: `step` looks at the shards, at the
/// lease and at the newest version, whenever nobody owes an answer.
/// A plain value without clock or messages.
class ReplicaState {
 public:
  ReplicaState(std::uint32_t replica, std::uint32_t ranks, Follow follow);

  /// Takes over who is there. A shard with a new seat has what it says.
  void update(const Roster& roster);
  void announce(std::uint64_t version);
  /// The version is being written. It is read as far as it stands, once, by a replica that serves
  /// the newest one that is READY and has memory to spare: should the version come to nothing, the
  /// replica has lost nothing.
  void begun(std::uint64_t version);
  void standing(std::uint64_t lease, const std::vector<std::uint64_t>& stands);
  void revoked(std::uint64_t lease);
  void retry(std::uint64_t number);

  // Answers of the ledger.
  void leased(const Lease& lease);
  void not_leased();
  void renewed(const Lease& lease);
  void not_renewed();
  void confirmed(bool still_valid);

  // Answers of shards; one of another seat than the shard's present one says nothing.
  struct From {
    std::uint32_t rank = 0;
    std::uint64_t seat = 0;
  };
  void fetched(const From& from, std::uint64_t bytes);
  void source_failed(const From& from, const ShardId& source);
  /// Those who hold the version can't make up its plan's sources, so nothing was asked of it.
  void unreadable(const From& from);
  void cancelled(const From& from);
  void paused(const From& from);
  void installed(const From& from, std::uint64_t version, std::uint32_t slot);
  void install_failed(const From& from);
  void resumed(const From& from);
  void fetch_failed(const From& from, const Error& why);
  /// It gave another answer than a good one to anything else, or none.
  void failed(const From& from, const Error& why);

  /// What is to be done since the last call.
  std::vector<ReplicaEffect> take_effects() { return std::exchange(effects_, {}); }

  [[nodiscard]] bool in_service() const noexcept { return in_service_; }
  /// Served, or last served.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::uint64_t superseded() const noexcept { return superseded_; }
  [[nodiscard]] std::uint64_t seat(std::uint32_t rank) const { return shards_.at(rank).seat; }
  /// The newest seat: see `Roster::term`.
  [[nodiscard]] std::uint64_t term() const;
  /// What a shard is busy with, for messages: "fetching version 3".
  [[nodiscard]] std::string doing(std::uint32_t rank) const;

 private:
  enum class Busy : std::uint8_t { no, fetching, cancelling, pausing, installing, resuming };
  struct Shard {
    std::uint64_t seat = 0;       ///< 0: not there.
    std::uint64_t seat_lost = 0;  ///< Not counted on any more, even if the roster still has it.
    Placement placement = Placement::in_place;
    std::uint64_t bytes_needed = 0;
    std::uint64_t installed = 0;  ///< 0: its live weights are not whole.
    std::uint32_t slot = 0;       ///< Where `installed` lies.
    bool readable = false;        ///< It still lies there whole, which staging memory may not.
    bool running = false;
    Busy busy = Busy::no;
    std::uint64_t installing = 0;   ///< The version, while it is busy with that.
    bool fetched = false;           ///< All bytes of the goal, under the present lease.
    bool stalled = false;           ///< A source failed it: waits for another.
    std::vector<Holder> told = {};  ///< Whom it was told to read from.
  };
  struct Installed {
    std::uint64_t version = 0;
    std::uint32_t slot = 0;
  };

  /// The shard that owed just this answer.
  Shard* answering(const From& from, Busy busy);
  void drop(std::uint32_t rank);
  void expel(std::uint32_t rank, const Error& why);
  void step();
  /// Each returns true when it is now waiting for somebody, or there is nothing to go on with.
  bool wait_or_end_attempt();
  bool stay_out();
  bool go_back();
  bool choose_goal();
  bool choose_early_goal();
  bool obtain();
  void fetch(std::uint32_t rank);
  bool pause_if(bool (*which)(const ReplicaState&, const Shard&));
  bool install_all();
  void end_attempt();
  void try_later();
  void serve();
  void leave_service(const std::string& why);

  [[nodiscard]] std::string name(std::uint32_t rank) const {
    return text_of(ShardId{Side::rollout, replica_, rank});
  }
  [[nodiscard]] bool all_there() const;
  [[nodiscard]] bool anyone_busy() const;
  /// What all shards have installed, if it is the same.
  [[nodiscard]] std::optional<Installed> common() const;
  [[nodiscard]] std::uint32_t slot_for(std::uint64_t version) const;
  /// Whether a fetch into the goal's slot writes to what the shard's engine reads.
  [[nodiscard]] bool writes_live(const Shard& shard) const;

  std::uint32_t replica_;
  Follow follow_;
  std::vector<Shard> shards_;
  std::uint64_t newest_ = 0;  ///< Announced.
  std::uint64_t begun_ = 0;   ///< The newest that was begun; 0 once it was tried.
  std::uint64_t goal_ = 0;    ///< Being brought in; 0 for none.
  std::uint32_t goal_slot_ = 0;
  bool asking_ = false;  ///< The ledger owes an answer to a request for a lease or a confirmation.
  std::size_t renewing_ = 0;
  std::optional<Lease> lease_;
  bool confirmed_ = false;  ///< The goal's bytes are good in every shard that lacks it.
  bool abort_ = false;      ///< The attempt is to end as soon as nobody owes an answer.
  bool install_failed_ = false;
  std::optional<Installed> before_;  ///< What the replica can go back to, until all have installed.
  bool going_back_ = false;
  bool waiting_ = false;  ///< For `retry`.
  std::uint64_t retry_number_ = 0;
  std::uint32_t attempt_ = 0;
  std::uint64_t bytes_moved_ = 0;
  bool in_service_ = false;
  std::uint64_t version_ = 0;
  std::uint64_t floor_ = 0;  ///< The newest version that any of its shards ever had.
  std::uint64_t superseded_ = 0;
  std::vector<ReplicaEffect> effects_;
};

}  // namespace weir
