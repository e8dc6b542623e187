// Reading a version while it is being written: how much of it stands, and who has to stop.

#include <algorithm>
#include <string>

#include "actors/ledger_state.hpp"

namespace weir {

void LedgerState::standing(const ShardId& trainer, std::uint64_t version, std::uint64_t bytes) {
  const auto contents = contents_.find(trainer);
  if (contents == contents_.end()) return;
  const SlotReport writing{SlotState::writing, version};
  const auto& slots = contents->second;
  if (std::find(slots.begin(), slots.end(), writing) == slots.end()) return;
  // Whole it is only by its own word.
  stands_[trainer] = std::min(bytes, everything - 1);
  tell_begun(version);
}

std::uint64_t LedgerState::stands(const ShardId& trainer, std::uint64_t version) const {
  const auto contents = contents_.find(trainer);
  if (contents == contents_.end()) return 0;
  for (const SlotReport& slot : contents->second) {
    if (slot.state == SlotState::empty || slot.version != version) continue;
    if (slot.state == SlotState::whole) return everything;
    const auto found = stands_.find(trainer);
    return found == stands_.end() ? 0 : found->second;
  }
  return 0;
}

std::vector<std::uint64_t> LedgerState::stands_by_source(std::uint64_t version) const {
  std::vector<std::uint64_t> all;
  all.reserve(roster_.sources.size());
  for (const ShardId& source : roster_.sources) all.push_back(stands(source, version));
  return all;
}

/// By all replicas of the plan, so that readers are spread over them as they are later. And while
/// the one before is whole in a trainer: readers give up an older one for it, which others may need
/// should it come to nothing.
bool LedgerState::is_begun(std::uint64_t version) const {
  if (!ready_ || version <= *ready_) return false;
  const bool kept = std::any_of(held_.begin(), held_.end(), [this](const auto& entry) {
    return entry.first.side == Side::trainer && entry.second == *ready_;
  });
  if (!kept) return false;
  std::set<std::uint32_t> writing;
  for (const auto& [holder, begun] : begun_) {
    if (begun == version) writing.insert(holder.replica);
  }
  return std::all_of(roster_.sources.begin(), roster_.sources.end(), [&](const ShardId& source) {
    return writing.contains(source.replica) && stands(source, version) != 0;
  });
}

void LedgerState::tell_begun(std::uint64_t version) {
  if (version <= begun_told_ || !is_begun(version)) return;
  begun_told_ = version;
  effects_.emplace_back(ledger::Begun{version});
}

void LedgerState::tell_standing() {
  std::map<std::uint64_t, std::vector<std::uint64_t>> by_version;
  for (auto& [number, live] : leases_) {
    std::vector<std::uint64_t>& told = live.lease.stands;
    if (told.empty()) continue;
    auto [now, fresh] = by_version.try_emplace(live.lease.version);
    if (fresh) now->second = stands_by_source(live.lease.version);
    bool more = false;
    for (std::size_t i = 0; i < told.size(); ++i) {
      more = more || now->second[i] > told[i];
      told[i] = std::max(told[i], now->second[i]);
    }
    if (more) effects_.emplace_back(ledger::Standing{number, live.replica, told});
  }
}

void LedgerState::end_early_leases() {
  std::vector<std::uint64_t> ended;
  for (const auto& [number, live] : leases_) {
    if (live.ready) continue;
    const auto is_written = [this, &one = live](const Holder& holder) {
      const auto begun = begun_.find(holder);
      return begun != begun_.end() && begun->second == one.lease.version;
    };
    if (!std::all_of(live.used.begin(), live.used.end(), is_written)) ended.push_back(number);
  }
  for (const std::uint64_t number : ended) end_lease(number, true);
}

}  // namespace weir
