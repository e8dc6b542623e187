#pragma once
// A coordinator's decisions driven directly: what is to be done is compared as text. Replicas have
// two shards, "0" and "1", whose seats are 1 and 2 unless one has come back.

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "actors/replica_state.hpp"
#include "tests/actors/rosters.hpp"

namespace weir::driven_replica {

inline const Error broken{ErrorCode::unavailable, "it broke"};
inline constexpr ShardId source{Side::trainer, 0, 0};

inline std::string number(std::uint64_t value) {
  return " " + std::to_string(value);
}

inline std::string text_of_effect(const ReplicaEffect& effect) {
  struct Texts {
    std::string operator()(const replica::AskLease& one) const {
      return "lease" + number(one.version) + " into" + number(one.slot);
    }
    std::string operator()(const replica::Renew& one) const { return "renew" + number(one.lease); }
    std::string operator()(const replica::Confirm& one) const {
      return "confirm" + number(one.lease);
    }
    std::string operator()(const replica::Release& one) const {
      return "release" + number(one.lease);
    }
    std::string operator()(const replica::Fetch& one) const {
      return "fetch" + number(one.rank) + " into" + number(one.slot);
    }
    std::string operator()(const replica::Tell& one) const {
      return "tell" + number(one.rank) + " of" + number(one.stands.front());
    }
    std::string operator()(const replica::Cancel& one) const { return "cancel" + number(one.rank); }
    std::string operator()(const replica::Pause& one) const { return "pause" + number(one.rank); }
    std::string operator()(const replica::Install& one) const {
      return "install" + number(one.version) + " at" + number(one.rank);
    }
    std::string operator()(const replica::Resume& one) const {
      return "resume" + number(one.version) + " at" + number(one.rank);
    }
    std::string operator()(const replica::Expel& one) const { return "expel" + number(one.rank); }
    std::string operator()(const replica::Retry& one) const {
      return "retry" + number(one.attempt);
    }
    std::string operator()(const replica::Committed& one) const {
      return "committed" + number(one.version) + " in" + number(one.slot) + " moved" +
             number(one.bytes_moved) + (one.readable ? "" : " unreadable");
    }
    std::string operator()(const replica::Out& one) const { return "out: " + one.why; }
  };
  return std::visit(Texts{}, effect);
}

using Texts = std::vector<std::string>;

struct Driven {
  ReplicaState state;
  SmallRoster roster{1, 1, 1, 2};
  std::uint64_t seats[2] = {1, 2};
  std::uint64_t leases = 0;
  std::uint64_t retry = 0;

  explicit Driven(Placement placement, Follow follow = Follow::finish, std::uint64_t first = 0,
                  std::uint64_t second = 0)
      : state(0, 2, follow) {
    roster.rollout(0, 0, placement, first, first != 0);
    roster.rollout(0, 1, placement, second, second != 0);
    state.update(*roster);
  }

  [[nodiscard]] ReplicaState::From from(std::uint32_t rank) const { return {rank, seats[rank]}; }
  Texts effects() {
    Texts texts;
    for (const ReplicaEffect& effect : state.take_effects()) {
      if (const auto* later = std::get_if<replica::Retry>(&effect)) retry = later->number;
      texts.push_back(text_of_effect(effect));
    }
    return texts;
  }
  void lease(std::uint64_t version) { state.leased({++leases, version, {{Side::trainer, 0, 0}}}); }
  void both(void (ReplicaState::*what)(const ReplicaState::From&)) {
    for (std::uint32_t rank : {0U, 1U}) (state.*what)(from(rank));
  }
  void fetched() {
    for (std::uint32_t rank : {0U, 1U}) state.fetched(from(rank), 10);
  }
  void installed(std::uint64_t version, std::uint32_t slot) {
    for (std::uint32_t rank : {0U, 1U}) state.installed(from(rank), version, slot);
  }
  Texts lose(std::uint32_t rank) {
    roster.lose({Side::rollout, 0, rank});
    state.update(*roster);
    return effects();
  }
  Texts come(std::uint32_t rank, Placement placement, std::uint64_t seat, std::uint64_t version = 0,
             bool running = false) {
    roster.rollout(0, rank, placement, version, running);
    seats[rank] = seat;
    state.update(*roster);
    return effects();
  }
  /// From an announcement to the question whether what was fetched counts, of a paused replica.
  void fetch(std::uint64_t version) {
    state.announce(version);
    lease(version);
    fetched();
  }
};

/// Serves version 1 from slot 0, as members that had it already.
inline Driven serving(Placement placement, Follow follow = Follow::finish) {
  Driven replica(placement, follow, 1, 1);
  replica.effects();
  REQUIRE(replica.state.in_service());
  return replica;
}

}  // namespace weir::driven_replica
