#include "actors/ledger_state.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/assert.hpp"

namespace weir {
namespace {

std::string version_text(std::uint64_t version) {
  return "version " + std::to_string(version);
}

}  // namespace

// ---- members -----------------------------------------------------------------------------------

void LedgerState::update(const Roster& roster) {
  // Of a thousand members few have changed, and what is known of the others can stay. Both maps are
  // in the same order, so that going through them side by side finds those few.
  roster_.trainer_ranks = roster.trainer_ranks;
  roster_.rollout_ranks = roster.rollout_ranks;
  roster_.sources = roster.sources;
  auto now = roster.members.begin();
  std::erase_if(roster_.members, [this, &roster, &now](const auto& entry) {
    while (now != roster.members.end() && now->first < entry.first) ++now;
    const bool there = now != roster.members.end() && now->first == entry.first;
    if (there && now->second.seat == entry.second.seat) return false;
    lose(entry.second);
    return true;
  });
  std::set<std::uint32_t> trainers;
  auto known = roster_.members.begin();
  for (const auto& [shard, member] : roster.members) {
    if (known != roster_.members.end() && known->first == shard) {
      ++known;
      continue;
    }
    roster_.members.emplace_hint(known, shard, member);
    revoke_readers_of(shard);
    if (shard.side == Side::trainer) {
      contents_[shard] = member.status.slots;
      contents_[shard].resize(member.slots);
      trainers.insert(shard.replica);
    }
  }
  for (const std::uint32_t replica : trainers) put_together(replica);
  settle();
}

void LedgerState::lose(const MemberInfo& member) {
  const ShardId& shard = member.shard;
  std::erase_if(held_, [&shard](const auto& entry) {
    return entry.first.side == shard.side && entry.first.replica == shard.replica;
  });
  if (shard.side == Side::trainer) {
    contents_.erase(shard);
    stands_.erase(shard);
    std::erase_if(begun_,
                  [&shard](const auto& entry) { return entry.first.replica == shard.replica; });
    end_early_leases();
    // Its peers' parts stay where they are: they count again when it comes back and stages its own.
    const auto target = targets_.find(shard.replica);
    if (target != targets_.end()) target->second.wanting.erase(shard);
    return;
  }
  const auto reading = reading_.find(shard.replica);
  if (reading != reading_.end()) end_lease(reading->second, true);
}

/// Whoever is told to read there may have read the memory of the member that has come.
void LedgerState::revoke_readers_of(const ShardId& shard) {
  std::vector<std::uint64_t> ended;
  for (const auto& [number, live] : leases_) {
    if (std::any_of(live.used.begin(), live.used.end(), [&shard](const Holder& holder) {
          return holder.side == shard.side && holder.replica == shard.replica;
        })) {
      ended.push_back(number);
    }
  }
  for (const std::uint64_t number : ended) end_lease(number, true);
}

void LedgerState::put_together(std::uint32_t replica) {
  if (!roster_.whole({Side::trainer, replica})) return;
  const std::vector<SlotReport>& first = contents_.at({Side::trainer, replica, 0});
  for (std::uint32_t slot = 0; slot < first.size(); ++slot) {
    bool same = first[slot].state != SlotState::empty;
    bool whole = first[slot].state == SlotState::whole;
    for (std::uint32_t rank = 1; same && rank < roster_.trainer_ranks; ++rank) {
      const std::vector<SlotReport>& other = contents_.at({Side::trainer, replica, rank});
      same = slot < other.size() && other[slot].state != SlotState::empty &&
             other[slot].version == first[slot].version;
      whole = whole && same && other[slot].state == SlotState::whole;
    }
    const Holder holder{Side::trainer, replica, slot};
    begun_.erase(holder);
    if (whole) {
      hold(holder, first[slot].version);
      continue;
    }
    held_.erase(holder);
    if (same && !is_closing(holder)) begun_[holder] = first[slot].version;
  }
  end_early_leases();
}

// ---- trainers ----------------------------------------------------------------------------------

Result<void> LedgerState::acquire(const ShardId& trainer, std::uint64_t version) {
  if (!contents_.contains(trainer)) {
    return failure(ErrorCode::refused, text_of(trainer) + " is no trainer of this exchange");
  }
  std::uint64_t last = 0;
  for (const auto& [holder, held] : held_) {
    if (holder.side == Side::trainer && holder.replica == trainer.replica) {
      last = std::max(last, held);
    }
  }
  // Another replica may have made the newest version READY; this one may still add itself to it.
  if (ready_ && *ready_ > 0) last = std::max(last, *ready_ - 1);
  const auto found = targets_.find(trainer.replica);
  if (found != targets_.end()) last = std::max(last, found->second.version - 1);
  if (version <= last) {
    return failure(ErrorCode::invalid, "can't publish " + version_text(version) +
                                           ": it must be greater than the last one, " +
                                           std::to_string(last));
  }
  if (found == targets_.end() || found->second.version != version) {
    if (options_.when_full == WhenFull::refuse && full(trainer.replica)) {
      return failure(ErrorCode::refused,
                     "no room for " + version_text(version) + ": all slots of " +
                         text_of(Holder{Side::trainer, trainer.replica, 0}) +
                         " are being read; wait, give it more slots, or set when_full to wait");
    }
    // A rank that is ahead of what its replica was staging leaves that one unfinished for ever.
    if (found != targets_.end()) abandon(trainer.replica);
    targets_[trainer.replica].version = version;
  }
  targets_[trainer.replica].wanting.insert(trainer);
  settle();
  return {};
}

bool LedgerState::full(std::uint32_t replica) const {
  if (!roster_.whole({Side::trainer, replica})) return false;
  const Holder holder{Side::trainer, replica, slot_for(replica, 0)};
  return is_read(holder) && !begun_.contains(holder);
}

/// Where its shards have begun `version`; else an empty slot while there is one, else that of the
/// oldest version, one without readers before one with, and the newest only where there is no
/// other.
std::uint32_t LedgerState::slot_for(std::uint32_t replica, std::uint64_t version) const {
  const MemberInfo* first = roster_.find({Side::trainer, replica, 0});
  std::uint32_t slots = first->slots;
  for (std::uint32_t rank = 0; rank < roster_.trainer_ranks; ++rank) {
    const std::vector<SlotReport>& contents = contents_.at({Side::trainer, replica, rank});
    slots = std::min(slots, static_cast<std::uint32_t>(contents.size()));
    for (std::uint32_t slot = 0; slot < contents.size(); ++slot) {
      if (version != 0 && contents[slot].version == version) return slot;
    }
  }
  if (options_.versions_max != 0) slots = std::min(slots, options_.versions_max);
  const auto rank_of = [&](std::uint32_t slot) {
    const Holder holder{Side::trainer, replica, slot};
    const auto held = held_.find(holder);
    const std::uint64_t holds = held == held_.end() ? 0 : held->second;
    return std::tuple(ready_ && holds == *ready_, is_read(holder), holds, slot);
  };
  std::uint32_t best = 0;
  for (std::uint32_t slot = 1; slot < slots; ++slot) {
    if (rank_of(slot) < rank_of(best)) best = slot;
  }
  return best;
}

void LedgerState::abandon(std::uint32_t replica) {
  const auto found = targets_.find(replica);
  for (const ShardId& shard : found->second.wanting) {
    effects_.emplace_back(ledger::Superseded{shard, found->second.version});
  }
  targets_.erase(found);
}

void LedgerState::press(const ShardId& trainer) {
  const auto found = targets_.find(trainer.replica);
  if (found == targets_.end() || !found->second.wanting.contains(trainer) || !found->second.slot) {
    return;
  }
  const Holder holder{Side::trainer, trainer.replica, *found->second.slot};
  std::vector<std::uint64_t> readers;
  for (const auto& [number, live] : leases_) {
    if (live.used.contains(holder)) readers.push_back(number);
  }
  for (const std::uint64_t number : readers) end_lease(number, true);
  settle();
}

std::string LedgerState::forget(const ShardId& trainer) {
  const auto found = targets_.find(trainer.replica);
  if (found != targets_.end()) found->second.wanting.erase(trainer);
  for (std::uint32_t rank = 0; rank < roster_.trainer_ranks; ++rank) {
    const ShardId peer{Side::trainer, trainer.replica, rank};
    if (roster_.find(peer) == nullptr) return text_of(peer) + " to join again";
  }
  return "its readers";
}

Result<void> LedgerState::staged(const ShardId& trainer, std::uint64_t version) {
  const auto contents = contents_.find(trainer);
  if (contents != contents_.end()) {
    for (SlotReport& slot : contents->second) {
      if (slot.version != version) continue;
      slot.state = SlotState::whole;
      put_together(trainer.replica);
      tell_begun(version);
      settle();
      return {};
    }
  }
  return failure(ErrorCode::refused, text_of(trainer) + " reports " + version_text(version) +
                                         ", which it was not asked to stage");
}

void LedgerState::hold(const Holder& holder, std::uint64_t version) {
  held_[holder] = version;
  if (holder.side == Side::trainer) {
    const auto target = targets_.find(holder.replica);
    if (target != targets_.end() && target->second.version <= version) abandon(holder.replica);
  }
  if (ready_ && version <= *ready_) return;
  ready_ = version;
  effects_.emplace_back(ledger::Ready{version});
  for (auto& [number, live] : leases_) live.ready = live.ready || live.lease.version == version;
  tell_standing();
}

// ---- readers -----------------------------------------------------------------------------------

std::uint64_t LedgerState::lease(std::uint64_t version, std::uint32_t replica,
                                 std::uint32_t target_slot, std::uint64_t term) {
  const std::uint64_t request = next_number_++;
  wishes_.emplace(request, Wish{version, replica, target_slot, term});
  settle();
  return request;
}

std::optional<Error> LedgerState::refusal(const Wish& wish) const {
  const std::string who = "rollout replica " + std::to_string(wish.replica) + " can't read " +
                          version_text(wish.version) + ": ";
  if (!is_as_then(wish.replica, wish.term)) {
    return Error{ErrorCode::refused, who + "its members have changed"};
  }
  if (ready_ != wish.version && !is_begun(wish.version)) {
    return Error{ErrorCode::refused,
                 who + (ready_ && wish.version < *ready_ ? version_text(*ready_) + " took its place"
                                                         : "it is not ready")};
  }
  if (reading_.contains(wish.replica)) {
    return Error{ErrorCode::refused, who + "it holds a lease already"};
  }
  if (choice(wish.version, wish.replica, {}).empty()) {
    return Error{ErrorCode::unavailable, who + "nobody holds it any more"};
  }
  return std::nullopt;
}

std::vector<Holder> LedgerState::choice(std::uint64_t version, std::uint32_t reader,
                                        const std::set<ShardId>& failed) const {
  std::vector<Holder> chosen;
  const std::size_t trainers = trainer_replicas();
  std::size_t trainers_chosen = 0;
  const auto struck = [&failed](const Holder& holder) {
    return std::any_of(failed.begin(), failed.end(), [&holder](const ShardId& shard) {
      return shard.side == holder.side && shard.replica == holder.replica;
    });
  };
  for (const auto& [holder, held] : held_) {
    // Rollout replicas stand in where a trainer replica is missing; else they are left in peace.
    // They come after all trainers.
    if (holder.side == Side::rollout && !chosen.empty() && trainers_chosen >= trainers) break;
    const bool own = holder.side == Side::rollout && holder.replica == reader;
    if (held != version || own || struck(holder) || is_closing(holder)) continue;
    if (holder.side == Side::trainer) ++trainers_chosen;
    chosen.push_back(holder);
  }
  if (ready_ && version <= *ready_) return chosen;
  for (const auto& [holder, begun] : begun_) {
    if (begun == version && !struck(holder)) chosen.push_back(holder);
  }
  return chosen;
}

std::size_t LedgerState::trainer_replicas() const {
  std::set<std::uint32_t> replicas;
  for (const ShardId& source : roster_.sources) replicas.insert(source.replica);
  return replicas.size();
}

Result<Lease> LedgerState::renew(std::uint64_t lease, const ShardId& failed) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) {
    return failure(ErrorCode::refused, "there is no lease " + std::to_string(lease));
  }
  LiveLease& live = found->second;
  live.failed.insert(failed);
  std::vector<Holder> left = choice(live.lease.version, live.replica, live.failed);
  if (left.empty()) {
    return failure(ErrorCode::unavailable, text_of(failed) +
                                               " can't be read, and nobody else holds " +
                                               version_text(live.lease.version));
  }
  use(live, left);
  live.lease.holders = std::move(left);
  return live.lease;
}

Result<void> LedgerState::confirm(std::uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) {
    return failure(ErrorCode::refused, "lease " + std::to_string(lease) + " was taken away");
  }
  const bool ready = found->second.ready;
  const std::uint64_t version = found->second.lease.version;
  end_lease(lease, false);
  settle();
  if (ready) return {};
  return failure(ErrorCode::refused, version_text(version) + " is not ready");
}

void LedgerState::release(std::uint64_t lease) {
  if (!leases_.contains(lease)) return;
  end_lease(lease, false);
  settle();
}

void LedgerState::expire(std::uint64_t number) {
  const auto wish = wishes_.find(number);
  if (wish != wishes_.end()) {
    effects_.emplace_back(ledger::NotLeased{
        number, {ErrorCode::timeout, "what it would overwrite is still being read"}});
    wishes_.erase(wish);
  } else if (leases_.contains(number)) {
    end_lease(number, true);
  }
  settle();
}

void LedgerState::end_lease(std::uint64_t number, bool tell) {
  const auto found = leases_.find(number);
  const LiveLease& live = found->second;
  if (tell) effects_.emplace_back(ledger::Revoked{number, live.replica});
  for (const Holder& holder : live.used) {
    const auto read = read_.find(holder);
    if (--read->second == 0) read_.erase(read);
  }
  reading_.erase(live.replica);
  leases_.erase(found);
}

void LedgerState::use(LiveLease& live, const std::vector<Holder>& holders) {
  for (const Holder& holder : holders) {
    if (live.used.insert(holder).second) ++read_[holder];
  }
}

void LedgerState::committed(std::uint32_t replica, std::uint64_t version, std::uint32_t slot,
                            std::uint64_t term) {
  if (!is_as_then(replica, term)) return;
  hold({Side::rollout, replica, slot}, version);
  settle();
}

/// The term alone does not tell: it stays as it is when a member of an older seat is lost.
bool LedgerState::is_as_then(std::uint32_t replica, std::uint64_t term) const {
  const ReplicaId id{Side::rollout, replica};
  return roster_.whole(id) && roster_.term(id) == term;
}

/// Whether it will be overwritten as soon as nobody reads it. Where nobody waits any more to write
/// it, what it holds may go on being read.
bool LedgerState::is_closing(const Holder& holder) const {
  if (holder.side == Side::trainer) {
    const auto target = targets_.find(holder.replica);
    return target != targets_.end() && target->second.slot == holder.slot &&
           !target->second.wanting.empty();
  }
  return std::any_of(wishes_.begin(), wishes_.end(), [&holder](const auto& entry) {
    return entry.second.replica == holder.replica && entry.second.target_slot == holder.slot;
  });
}

void LedgerState::settle() {
  // A grant of the one kind can only take away from the other, so that one round is enough.
  grant_trainers();
  grant_leases();
}

void LedgerState::grant_trainers() {
  std::vector<std::uint32_t> granted;
  for (auto& [replica, target] : targets_) {
    if (!roster_.whole({Side::trainer, replica})) continue;
    if (!target.slot) target.slot = slot_for(replica, target.version);
    const Holder holder{Side::trainer, replica, *target.slot};
    if (target.wanting.empty()) continue;
    // Those who read what is begun anew can't go on.
    if (begun_.erase(holder) != 0) end_early_leases();
    if (is_read(holder)) continue;
    held_.erase(holder);
    for (const ShardId& shard : target.wanting) {
      // A shard writes one version at a time: what it had begun in another slot is left unfinished.
      for (SlotReport& slot : contents_.at(shard)) {
        if (slot.state == SlotState::writing) slot = {};
      }
      contents_.at(shard)[*target.slot] = {SlotState::writing, target.version};
      stands_.erase(shard);
      effects_.emplace_back(ledger::Granted{shard, target.version, *target.slot});
    }
    target.wanting.clear();
    granted.push_back(replica);
  }
  for (const std::uint32_t replica : granted) put_together(replica);
}

void LedgerState::grant_leases() {
  for (auto wish = wishes_.begin(); wish != wishes_.end();) {
    const auto [request, wanted] = *wish;
    if (auto why = refusal(wanted)) {
      effects_.emplace_back(ledger::NotLeased{request, *std::move(why)});
      wish = wishes_.erase(wish);
      continue;
    }
    const Holder own{Side::rollout, wanted.replica, wanted.target_slot};
    if (is_read(own)) {
      ++wish;
      continue;
    }
    held_.erase(own);
    Lease lease{next_number_++, wanted.version, choice(wanted.version, wanted.replica, {}), {}};
    const bool ready = ready_ == wanted.version;
    if (!ready) lease.stands = stands_by_source(wanted.version);
    reading_[wanted.replica] = lease.number;
    use(leases_.emplace(lease.number, LiveLease{lease, wanted.replica, {}, {}, ready})
            .first->second,
        lease.holders);
    effects_.emplace_back(ledger::Leased{request, std::move(lease)});
    wish = wishes_.erase(wish);
  }
}

std::vector<LedgerEffect> LedgerState::take_effects() {
  return std::exchange(effects_, {});
}

std::vector<Holder> LedgerState::holders(std::uint64_t version) const {
  std::vector<Holder> found;
  for (const auto& [holder, held] : held_) {
    if (held == version && !is_closing(holder)) found.push_back(holder);
  }
  return found;
}

std::set<std::uint64_t> LedgerState::versions() const {
  std::set<std::uint64_t> found;
  for (const auto& [holder, held] : held_) found.insert(held);
  return found;
}

}  // namespace weir
