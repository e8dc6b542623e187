#pragma once
// A ledger's decisions driven directly: what follows from a call is compared as text.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/ledger_state.hpp"
#include "tests/actors/rosters.hpp"

namespace weir::driven_ledger {

inline constexpr ShardId trainer{Side::trainer, 0, 0};
inline constexpr ShardId second{Side::trainer, 0, 1};
inline constexpr ShardId other{Side::trainer, 1, 0};
inline const SlotReport empty;
constexpr SlotReport whole(std::uint64_t version) {
  return {SlotState::whole, version};
}
constexpr SlotReport writing(std::uint64_t version) {
  return {SlotState::writing, version};
}

inline std::string text_of_effect(const LedgerEffect& effect) {
  struct Texts {
    std::string operator()(const ledger::Granted& one) const {
      return "grant " + text_of(one.shard) + " " + std::to_string(one.version) + " in slot " +
             std::to_string(one.slot);
    }
    std::string operator()(const ledger::Superseded& one) const {
      return "supersede " + text_of(one.shard) + " " + std::to_string(one.version);
    }
    std::string operator()(const ledger::Leased& one) const {
      std::string text = "lease " + std::to_string(one.lease.version) + ":";
      for (const Holder& holder : one.lease.holders) {
        text += " " + text_of(holder) + " slot " + std::to_string(holder.slot) + ",";
      }
      return text;
    }
    std::string operator()(const ledger::NotLeased& one) const { return "no: " + one.why.text; }
    std::string operator()(const ledger::Revoked& one) const {
      return "revoke from " + std::to_string(one.replica);
    }
    std::string operator()(const ledger::Ready& one) const {
      return "ready " + std::to_string(one.version);
    }
    std::string operator()(const ledger::Begun& one) const {
      return "begun " + std::to_string(one.version);
    }
    std::string operator()(const ledger::Standing& one) const {
      std::string text = "stands for " + std::to_string(one.replica) + ":";
      for (const std::uint64_t bytes : one.stands) {
        text += " " + (bytes == everything ? "all" : std::to_string(bytes));
      }
      return text;
    }
  };
  return std::visit(Texts{}, effect);
}

using Texts = std::vector<std::string>;

struct Driven {
  LedgerState state;
  SmallRoster roster;
  std::uint64_t lease_number = 0;  ///< The last.

  explicit Driven(SmallRoster members, const LedgerState::Options& options = {})
      : state(options), roster(std::move(members)) {
    state.update(*roster);
  }

  Texts effects() {
    Texts texts;
    for (const LedgerEffect& effect : state.take_effects()) {
      if (const auto* leased = std::get_if<ledger::Leased>(&effect)) {
        lease_number = leased->lease.number;
      }
      texts.push_back(text_of_effect(effect));
    }
    return texts;
  }
  Texts update() {
    state.update(*roster);
    return effects();
  }
  Texts lease(std::uint64_t version, std::uint32_t replica, std::uint32_t slot = 0) {
    state.lease(version, replica, slot, (*roster).term({Side::rollout, replica}));
    return effects();
  }
  void commit(std::uint32_t replica, std::uint64_t version, std::uint32_t slot = 0) {
    state.committed(replica, version, slot, (*roster).term({Side::rollout, replica}));
  }
};

/// One trainer of those slots, two rollout replicas of one shard each.
inline Driven one_trainer(std::vector<SlotReport> slots) {
  SmallRoster roster(1, 1, 2, 1);
  roster.trainer(0, 0, std::move(slots));
  roster.rollout(0, 0, Placement::in_place).rollout(1, 0, Placement::in_place);
  return Driven(roster);
}

/// One trainer replica of two ranks with two slots each.
inline Driven two_ranks() {
  SmallRoster roster(1, 2, 1, 1);
  roster.trainer(0, 0, {empty, empty}).trainer(0, 1, {empty, empty});
  roster.rollout(0, 0, Placement::in_place);
  return Driven(roster);
}

}  // namespace weir::driven_ledger
