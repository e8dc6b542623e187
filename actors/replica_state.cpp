#include "actors/replica_state.hpp"

#include <algorithm>
#include <utility>

#include "runtime/assert.hpp"
#include "runtime/manifest.hpp"

namespace weir {
namespace {

std::string version_text(std::uint64_t version) {
  return "version " + std::to_string(version);
}

}  // namespace

ReplicaState::ReplicaState(std::uint32_t replica, std::uint32_t ranks, Follow follow)
    : replica_(replica), follow_(follow), shards_(ranks) {}

// ---- what happens ------------------------------------------------------------------------------

void ReplicaState::update(const Roster& roster) {
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    const MemberInfo* member = roster.find({Side::rollout, replica_, rank});
    Shard& shard = shards_[rank];
    if (member == nullptr || (shard.seat != 0 && member->seat != shard.seat)) drop(rank);
    if (member == nullptr || shard.seat == member->seat || member->seat <= shard.seat_lost)
      continue;
    shard.seat = member->seat;
    shard.placement = member->status.placement;
    shard.bytes_needed = member->bytes_needed;
    shard.installed = member->status.installed;
    shard.slot = member->status.installed_slot;
    shard.readable = shard.placement != Placement::staging;
    shard.running = member->status.running;
    floor_ = std::max({floor_, shard.installed, member->status.served});
    // Under whatever lease the attempt is, it is not this member's.
    if (goal_ != 0) abort_ = true;
  }
  step();
}

/// The shard does not count any more; whatever it owes will not come.
void ReplicaState::drop(std::uint32_t rank) {
  Shard& shard = shards_[rank];
  if (shard.seat == 0) return;
  shard = {.seat_lost = shard.seat};
  if (goal_ != 0) abort_ = true;
  before_.reset();
  going_back_ = false;
}

void ReplicaState::announce(std::uint64_t version) {
  if (version <= newest_) return;
  const bool begun = goal_ == newest_ || version_ >= newest_;
  if (newest_ != 0 && !begun) ++superseded_;
  newest_ = version;
  waiting_ = false;
  if (follow_ == Follow::jump && goal_ != 0 && goal_ != version && !confirmed_ && !abort_) {
    abort_ = true;
    ++superseded_;
  }
  step();
}

void ReplicaState::begun(std::uint64_t version) {
  begun_ = std::max(begun_, version);
  step();
}

void ReplicaState::standing(std::uint64_t lease, const std::vector<std::uint64_t>& stands) {
  if (!lease_ || lease_->number != lease || abort_) return;
  lease_->stands = stands;
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    if (shards_[rank].busy == Busy::fetching) {
      effects_.emplace_back(replica::Tell{rank, lease, stands});
    }
  }
}

void ReplicaState::revoked(std::uint64_t lease) {
  if (!lease_ || lease_->number != lease) return;
  lease_.reset();
  abort_ = true;
  step();
}

void ReplicaState::retry(std::uint64_t number) {
  if (number != retry_number_) return;
  waiting_ = false;
  step();
}

void ReplicaState::leased(const Lease& lease) {
  asking_ = false;
  lease_ = lease;
  step();
}

void ReplicaState::not_leased() {
  asking_ = false;
  abort_ = true;
  try_later();
  step();
}

void ReplicaState::renewed(const Lease& lease) {
  WEIR_ASSERT(renewing_ > 0);
  --renewing_;
  if (lease_ && lease_->number == lease.number) lease_ = lease;
  step();
}

void ReplicaState::not_renewed() {
  WEIR_ASSERT(renewing_ > 0);
  --renewing_;
  abort_ = true;
  try_later();
  step();
}

void ReplicaState::confirmed(bool still_valid) {
  asking_ = false;
  lease_.reset();
  confirmed_ = still_valid && !abort_;
  if (confirmed_) before_ = common();
  // An attempt that was to end anyway has not failed: what follows it need not wait.
  if (!still_valid && !abort_) try_later();
  abort_ = !confirmed_;
  step();
}

ReplicaState::Shard* ReplicaState::answering(const From& from, Busy busy) {
  if (from.rank >= shards_.size() || from.seat == 0) return nullptr;
  Shard& shard = shards_[from.rank];
  if (shard.seat != from.seat || shard.busy != busy) return nullptr;
  shard.busy = Busy::no;
  return &shard;
}

void ReplicaState::fetched(const From& from, std::uint64_t bytes) {
  Shard* shard = answering(from, Busy::fetching);
  if (shard == nullptr) return;
  if (bytes != shard->bytes_needed) {
    return expel(from.rank,
                 {ErrorCode::invalid, name(from.rank) + " moved " + std::to_string(bytes) +
                                          " of the " + std::to_string(shard->bytes_needed) +
                                          " bytes of " + version_text(goal_)});
  }
  shard->fetched = true;
  bytes_moved_ += bytes;
  step();
}

void ReplicaState::source_failed(const From& from, const ShardId& source) {
  Shard* shard = answering(from, Busy::fetching);
  if (shard == nullptr) return;
  const bool told =
      std::any_of(shard->told.begin(), shard->told.end(), [&source](const Holder& holder) {
        return holder.side == source.side && holder.replica == source.replica;
      });
  // Each report strikes off one of those, so that they come to an end.
  if (!told) {
    return expel(from.rank, {ErrorCode::invalid, name(from.rank) + " says that " + text_of(source) +
                                                     " failed, which it was not told to read"});
  }
  if (lease_ && !abort_) {
    shard->stalled = true;
    ++renewing_;
    effects_.emplace_back(replica::Renew{lease_->number, source});
  }
  step();
}

void ReplicaState::unreadable(const From& from) {
  if (answering(from, Busy::fetching) == nullptr) return;
  if (!abort_) try_later();
  abort_ = true;
  step();
}

void ReplicaState::cancelled(const From& from) {
  if (answering(from, Busy::cancelling) != nullptr) step();
}

void ReplicaState::paused(const From& from) {
  Shard* shard = answering(from, Busy::pausing);
  if (shard == nullptr) return;
  shard->running = false;
  step();
}

void ReplicaState::installed(const From& from, std::uint64_t version, std::uint32_t slot) {
  Shard* shard = answering(from, Busy::installing);
  if (shard == nullptr) return;
  shard->installed = version;
  shard->slot = slot;
  shard->readable = true;
  step();
}

void ReplicaState::install_failed(const From& from) {
  Shard* shard = answering(from, Busy::installing);
  if (shard == nullptr) return;
  shard->installed = 0;
  install_failed_ = true;
  step();
}

void ReplicaState::resumed(const From& from) {
  Shard* shard = answering(from, Busy::resuming);
  if (shard == nullptr) return;
  shard->running = true;
  step();
}

void ReplicaState::fetch_failed(const From& from, const Error& why) {
  // A fetch that is called off fails, of course.
  if (answering(from, Busy::fetching) != nullptr) expel(from.rank, why);
}

void ReplicaState::failed(const From& from, const Error& why) {
  if (from.rank >= shards_.size() || from.seat == 0 || shards_[from.rank].seat != from.seat) return;
  expel(from.rank, why);
}

void ReplicaState::expel(std::uint32_t rank, const Error& why) {
  effects_.emplace_back(replica::Expel{rank, shards_[rank].seat, why});
  drop(rank);
  step();
}

// ---- what follows ------------------------------------------------------------------------------

void ReplicaState::step() {
  if (!all_there()) leave_service("not all of its shards are there");
  while (true) {
    if (wait_or_end_attempt() || stay_out() || go_back()) return;
    if (goal_ == 0) {
      if (choose_goal()) return;
      continue;
    }
    if (!confirmed_) {
      if (obtain()) return;
      continue;
    }
    if (install_all()) return;
  }
}

/// While somebody owes an answer, running fetches of an ended attempt are called off, and those
/// that stopped at a failed source go on with another.
bool ReplicaState::wait_or_end_attempt() {
  if (abort_) {
    for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
      if (shards_[rank].busy != Busy::fetching) continue;
      shards_[rank].busy = Busy::cancelling;
      effects_.emplace_back(replica::Cancel{rank});
    }
  } else if (lease_ && renewing_ == 0) {
    for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
      if (shards_[rank].stalled) fetch(rank);
    }
  }
  if (asking_ || anyone_busy() || (abort_ && renewing_ > 0)) return true;
  if (abort_) end_attempt();
  return false;
}

void ReplicaState::end_attempt() {
  if (lease_) effects_.emplace_back(replica::Release{lease_->number});
  lease_.reset();
  goal_ = 0;
  abort_ = false;
  confirmed_ = false;
  install_failed_ = false;
  for (Shard& shard : shards_) shard.fetched = shard.stalled = false;
}

/// A replica without all its shards does not generate.
bool ReplicaState::stay_out() {
  if (all_there()) return false;
  pause_if([](const ReplicaState&, const Shard& shard) { return shard.running; });
  return true;
}

/// After a failed installation: to the version before where all shards still have it in their other
/// slot, else out of service until another fetch.
bool ReplicaState::go_back() {
  if (install_failed_) {
    const bool second_buffer = shards_.front().placement == Placement::second_buffer;
    const bool can = second_buffer && before_ && !going_back_;
    if (!can) leave_service("a shard could not install " + version_text(goal_));
    end_attempt();
    going_back_ = can;
    if (!can) before_.reset();
    try_later();
  }
  if (!going_back_) return false;
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    Shard& shard = shards_[rank];
    if (shard.installed == before_->version) continue;
    shard.busy = Busy::installing;
    shard.installing = before_->version;
    effects_.emplace_back(replica::Install{rank, before_->version, before_->slot});
  }
  if (anyone_busy()) return true;
  going_back_ = false;
  before_.reset();
  return false;
}

bool ReplicaState::choose_goal() {
  const std::optional<Installed> all = common();
  if (all) {
    for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
      if (shards_[rank].running) continue;
      shards_[rank].busy = Busy::resuming;
      effects_.emplace_back(replica::Resume{rank, all->version});
    }
    if (anyone_busy()) return true;
    if (!in_service_ || version_ != all->version) serve();
    if (newest_ > all->version ? waiting_ : !choose_early_goal()) return true;
  } else {
    leave_service("its shards hold no common version");
    if (pause_if([](const ReplicaState&, const Shard& shard) { return shard.running; }))
      return true;
    if (newest_ == 0 || newest_ < floor_ || waiting_) return true;
  }
  if (goal_ == 0) goal_ = newest_;
  goal_slot_ = slot_for(goal_);
  bytes_moved_ = 0;
  return false;
}

/// Only what is written while it is not live may come to nothing.
bool ReplicaState::choose_early_goal() {
  const std::uint64_t version = std::exchange(begun_, 0);
  goal_slot_ = slot_for(version);
  const auto lives_there = [this](const Shard& shard) { return writes_live(shard); };
  if (version <= version_ || std::any_of(shards_.begin(), shards_.end(), lives_there)) return false;
  goal_ = version;
  return true;
}

/// Lease, then fetch, then confirmation. What is written to may not be in use.
bool ReplicaState::obtain() {
  if (!lease_) {
    asking_ = true;
    effects_.emplace_back(replica::AskLease{goal_, goal_slot_});
    return true;
  }
  if (pause_if([](const ReplicaState& state, const Shard& shard) {
        return shard.running && shard.installed != state.goal_ && state.writes_live(shard);
      })) {
    return true;
  }
  bool whole = true;
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    Shard& shard = shards_[rank];
    if (shard.installed == goal_ || shard.fetched) continue;
    whole = false;
    // One that is stalled has to wait for another source.
    if (!shard.stalled) fetch(rank);
  }
  if (!whole) return true;
  asking_ = true;
  effects_.emplace_back(replica::Confirm{lease_->number});
  return true;
}

void ReplicaState::fetch(std::uint32_t rank) {
  Shard& shard = shards_[rank];
  shard.stalled = false;
  if (writes_live(shard)) shard.installed = 0;
  if (shard.slot == goal_slot_) shard.readable = false;
  shard.busy = Busy::fetching;
  shard.told = lease_->holders;
  effects_.emplace_back(replica::Fetch{rank, *lease_, goal_slot_});
}

bool ReplicaState::pause_if(bool (*which)(const ReplicaState&, const Shard&)) {
  bool any = false;
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    Shard& shard = shards_[rank];
    if (shard.seat == 0 || !which(*this, shard)) continue;
    shard.busy = Busy::pausing;
    effects_.emplace_back(replica::Pause{rank, goal_});
    any = true;
  }
  return any;
}

bool ReplicaState::install_all() {
  if (pause_if([](const ReplicaState&, const Shard& shard) { return shard.running; })) return true;
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    Shard& shard = shards_[rank];
    if (shard.installed == goal_) continue;
    shard.busy = Busy::installing;
    shard.installing = goal_;
    effects_.emplace_back(replica::Install{rank, goal_, goal_slot_});
  }
  if (anyone_busy()) return true;
  // The commit: from here on only this version is resumed.
  before_.reset();
  end_attempt();
  return false;
}

void ReplicaState::try_later() {
  // What has taken the place of a failed goal has not failed yet; an early one has to be READY.
  if (goal_ != 0 && goal_ != newest_) return;
  waiting_ = true;
  effects_.emplace_back(replica::Retry{++retry_number_, ++attempt_});
}

void ReplicaState::serve() {
  const Installed all = *common();
  in_service_ = true;
  version_ = all.version;
  floor_ = std::max(floor_, version_);
  if (!waiting_) attempt_ = 0;
  const bool readable = std::all_of(shards_.begin(), shards_.end(),
                                    [](const Shard& shard) { return shard.readable; });
  effects_.emplace_back(
      replica::Committed{all.version, all.slot, std::exchange(bytes_moved_, 0), readable});
}

void ReplicaState::leave_service(const std::string& why) {
  if (!std::exchange(in_service_, false)) return;
  effects_.emplace_back(replica::Out{why});
}

// ---- what is so --------------------------------------------------------------------------------

bool ReplicaState::all_there() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const Shard& shard) { return shard.seat != 0; });
}

bool ReplicaState::anyone_busy() const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const Shard& shard) { return shard.busy != Busy::no; });
}

std::optional<ReplicaState::Installed> ReplicaState::common() const {
  const Shard& first = shards_.front();
  const bool same = std::all_of(shards_.begin(), shards_.end(), [&first](const Shard& shard) {
    return shard.installed != 0 && shard.installed == first.installed && shard.slot == first.slot;
  });
  if (!same) return std::nullopt;
  return Installed{first.installed, first.slot};
}

/// Where some shard has the version already; else one that no shard serves from, if there is one.
std::uint32_t ReplicaState::slot_for(std::uint64_t version) const {
  if (shards_.front().placement != Placement::second_buffer) return 0;
  for (const Shard& shard : shards_) {
    if (shard.installed == version) return shard.slot;
  }
  for (const Shard& shard : shards_) {
    if (shard.installed != 0) return 1 - shard.slot;
  }
  return 0;
}

bool ReplicaState::writes_live(const Shard& shard) const {
  if (shard.placement == Placement::staging) return false;
  return shard.placement == Placement::in_place || shard.slot == goal_slot_;
}

std::uint64_t ReplicaState::term() const {
  std::uint64_t newest = 0;
  for (const Shard& shard : shards_) newest = std::max(newest, shard.seat);
  return newest;
}

std::string ReplicaState::doing(std::uint32_t rank) const {
  WEIR_ASSERT(rank < shards_.size());
  const Shard& shard = shards_[rank];
  switch (shard.busy) {
    case Busy::no:
      break;
    case Busy::fetching:
      return "fetching " + version_text(goal_);
    case Busy::cancelling:
      return "giving up a fetch of " + version_text(goal_);
    case Busy::pausing:
      return "pausing";
    case Busy::installing:
      return "installing " + version_text(shard.installing);
    case Busy::resuming:
      return "resuming with " + version_text(shard.installed);
  }
  if (shard.installed == 0) return "waiting for a version";
  return (shard.running ? "serving " : "holding ") + version_text(shard.installed);
}

}  // namespace weir
