#include "tests/actors/states_world.hpp"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

constexpr std::size_t cells_of_source = 2;

}  // namespace

StatesWorld::StatesWorld(const Options& options, std::uint64_t seed)
    : options_(options), random_(seed), training_(options.trainer_replicas, 1) {
  restart_exchange();
  revive();
}

void StatesWorld::revive() {
  const auto each = [this](Side side, std::uint32_t replicas, std::uint32_t ranks) {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const ShardId shard{side, replica, rank};
        const auto found = places_.find(shard);
        if (found != places_.end() && processes_[found->second]->alive) continue;
        ask_to_join(add_process(shard));
      }
    }
  };
  each(Side::trainer, options_.trainer_replicas, options_.trainer_ranks);
  each(Side::rollout, options_.rollout_replicas, options_.rollout_ranks);
}

std::size_t StatesWorld::add_process(const ShardId& shard) {
  auto process = std::make_unique<Process>();
  process->shard = shard;
  if (shard.side == Side::trainer) {
    process->trainer.emplace(shard, options_.trainer_slots);
    process->slots.resize(options_.trainer_slots, Cells(cells_of_source));
  } else {
    const Placement placement = options_.placements[shard.replica];
    const Cells empty(group_count() * cells_of_source);
    process->rollout.emplace(shard, placement);
    process->slots.resize(placement == Placement::second_buffer ? 2 : 1, empty);
    process->live = empty;
  }
  processes_.push_back(std::move(process));
  places_[shard] = processes_.size() - 1;
  return processes_.size() - 1;
}

void StatesWorld::step(bool faults) {
  // Exchange, connections, members, timers: whichever can go on.
  std::vector<Box*> boxes;
  const auto consider = [&boxes](Box& box) {
    if (!box.empty()) boxes.push_back(&box);
  };
  consider(planner_box_);
  consider(ledger_box_);
  consider(supervisor_box_);
  for (Box& box : boxes_) consider(box);
  std::vector<std::size_t> alive;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    consider(processes_[i]->out);
    if (!processes_[i]->alive) continue;
    consider(processes_[i]->in);
    alive.push_back(i);
  }
  if (faults && random_.chance(1, 40)) {
    draw_fault();
  } else if (!boxes.empty() && random_.chance(3, 4)) {
    Box& box = *boxes[random_.below(boxes.size())];
    const Message message = std::move(box.front());
    box.pop_front();
    message();
  } else if (!retries_.empty() && random_.chance(1, 8)) {
    const auto [replica, number] = retries_.front();
    retries_.erase(retries_.begin());
    to_coordinator(replica, [own = number](ReplicaState& state) { state.retry(own); });
  } else if (!alive.empty()) {
    const std::size_t process = alive[random_.below(alive.size())];
    if (processes_[process]->trainer) {
      train(process);
    } else if (processes_[process]->fetch && random_.chance(2, 3)) {
      copy_cell(process, faults);
    } else if (processes_[process]->order != Order::none) {
      end_order(process, faults);
    }
  }
  check_served();
}

// ---- faults ------------------------------------------------------------------------------------

void StatesWorld::draw_fault() {
  ++faults_;
  const std::size_t kind = random_.below(20);
  if (kind < 9) {
    auto place = places_.begin();
    std::advance(place, static_cast<std::ptrdiff_t>(random_.below(places_.size())));
    const std::size_t process = place->second;
    if (!processes_[process]->alive) {
      ask_to_join(add_process(ShardId(place->first)));
    } else if (kind < 6) {
      crash(process);
    } else {
      blink(process);
    }
  } else if (kind < 14) {
    if (numbers_.empty()) return;
    const std::uint64_t number = numbers_[random_.below(numbers_.size())];
    ledger_box_.emplace_back([this, number] {
      ledger_->expire(number);
      act_ledger();
    });
  } else if (kind < 19) {
    const ShardId trainer{Side::trainer,
                          static_cast<std::uint32_t>(random_.below(options_.trainer_replicas)),
                          static_cast<std::uint32_t>(random_.below(options_.trainer_ranks))};
    ledger_box_.emplace_back([this, trainer] {
      ledger_->press(trainer);
      act_ledger();
    });
  } else {
    restart_exchange();
  }
}

/// Everything under way to it is lost; what it has sent arrives before the word of its death.
void StatesWorld::disconnect(std::size_t process) {
  Process& one = *processes_[process];
  one.in.clear();
  one.joined = false;
  one.cut = true;
  const auto owed = std::exchange(one.owed, {});
  const ShardId shard = one.shard;
  one.out.emplace_back([this, process, owed, shard] {
    planner_box_.emplace_back([this, process, shard] {
      const auto seat = seats_.find(shard);
      if (seat != seats_.end() && by_seat_.at(seat->second) == process) lose(shard, seat->second);
      processes_[process]->cut = false;
    });
    for (const auto& [number, debt] : owed) {
      const auto [from, fetch] = debt;
      const Error why{ErrorCode::unavailable, "it died"};
      to_coordinator(shard.replica, [from = from, fetch = fetch, why](ReplicaState& state) {
        fetch ? state.fetch_failed(from, why) : state.failed(from, why);
      });
    }
  });
}

void StatesWorld::crash(std::size_t process) {
  disconnect(process);
  Process& one = *processes_[process];
  one.alive = false;
  one.fetch.reset();
}

/// The exchange and a member lose sight of each other, and find each other again.
void StatesWorld::blink(std::size_t process) {
  disconnect(process);
  ask_to_join(process);
}

void StatesWorld::restart_exchange() {
  planner_box_.clear();
  ledger_box_.clear();
  supervisor_box_.clear();
  requests_.clear();
  numbers_.clear();
  retries_.clear();
  seats_.clear();
  writers_.clear();
  by_seat_.clear();
  last_seat_ = 0;
  roster_ = {};
  roster_.trainer_ranks = options_.trainer_ranks;
  roster_.rollout_ranks = options_.rollout_ranks;
  for (std::uint32_t replica = 0; replica < options_.trainer_replicas; ++replica) {
    for (std::uint32_t rank = 0; rank < options_.trainer_ranks; ++rank) {
      roster_.sources.push_back({Side::trainer, replica, rank});
    }
    roster_.patterns[{Side::trainer, replica}] = 0;
  }
  for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
    const bool two = options_.placements[replica] == Placement::second_buffer;
    roster_.patterns[{Side::rollout, replica}] = two ? 1 : 0;
  }
  boxes_.assign(options_.rollout_replicas, {});
  rosters_.assign(options_.rollout_replicas, roster_);
  ledger_.emplace(LedgerState::Options{});
  replicas_.clear();
  for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
    replicas_.emplace_back(replica, options_.rollout_ranks, options_.follow);
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& one = *processes_[i];
    one.in.clear();
    one.out.clear();
    one.owed.clear();
    one.joined = one.cut = false;
    if (one.alive) ask_to_join(i);
  }
}

void StatesWorld::begin_recovery() {
  recovering_ = true;
  std::uint64_t newest = 0;
  for (const std::uint64_t version : training_) newest = std::max(newest, version);
  for (std::uint64_t& version : training_) version = newest + 1;
}

bool StatesWorld::recovered() const {
  const std::optional<std::uint64_t> ready = ledger_->ready();
  if (!ready || *ready < *std::max_element(training_.begin(), training_.end())) return false;
  for (std::uint32_t replica = 0; replica < options_.rollout_replicas; ++replica) {
    if (!replicas_[replica].in_service() || replicas_[replica].version() != *ready) return false;
    for (std::uint32_t rank = 0; rank < options_.rollout_ranks; ++rank) {
      const auto place = places_.find({Side::rollout, replica, rank});
      const Process& one = *processes_[place->second];
      const MemberStatus& status = one.rollout->status();
      if (!one.alive || !status.running || status.installed != *ready) return false;
    }
  }
  return ledger_->lease_count() == 0;
}

// ---- the planner -------------------------------------------------------------------------------

const MemberInfo* StatesWorld::seated(std::size_t process) const {
  const MemberInfo* member = roster_.find(processes_[process]->shard);
  if (member == nullptr) return nullptr;
  const auto found = by_seat_.find(member->seat);
  return found != by_seat_.end() && found->second == process ? member : nullptr;
}

void StatesWorld::ask_to_join(std::size_t process) {
  Process& one = *processes_[process];
  one.joined = false;
  one.joining = true;
  // What was ordered is over before the shard says what it has.
  if (one.fetch && random_.chance(1, 2)) end_fetch(one, false);
  idle(process);
}

void StatesWorld::idle(std::size_t process) {
  Process& one = *processes_[process];
  if (!one.joining) return;
  if (one.fetch) end_fetch(one, false);
  if (one.order != Order::none) return;
  one.joining = false;
  const MemberStatus status = one.trainer ? one.trainer->status() : one.rollout->status();
  one.out.emplace_back([this, process, status] {
    planner_box_.emplace_back([this, process, status] { join(process, status); });
  });
}

void StatesWorld::join(std::size_t process, const MemberStatus& status) {
  Process& one = *processes_[process];
  if (!one.alive) return;
  const ShardId shard = one.shard;
  const auto taken = seats_.find(shard);
  if (taken != seats_.end()) {
    if (by_seat_.at(taken->second) == process) return;
    // The holder may not be known to be dead yet: it tries again.
    one.joining = true;
    return idle(process);
  }
  last_seat_ = std::max(last_seat_, status.seat) + 1;
  const std::uint64_t seat = last_seat_;
  seats_[shard] = seat;
  by_seat_[seat] = process;
  post(process, seat, [this, process, seat, status] {
    Process& member = *processes_[process];
    if (member.trainer) member.trainer->seated(seat);
    if (member.rollout) member.rollout->seated(seat);
    member.joined = true;
    if (member.work == Work::asking) member.work = Work::idle;
    // Whatever it did since is told by its own messages, after this one.
    member.out.emplace_back([this, process, seat, status] {
      planner_box_.emplace_back([this, process, seat, status] { hold(process, seat, status); });
    });
    if (member.work == Work::telling) tell_ledger(process, false);
  });
  if (shard.side == Side::rollout) send_sources(process);
}

void StatesWorld::hold(std::size_t process, std::uint64_t seat, const MemberStatus& status) {
  const ShardId shard = processes_[process]->shard;
  const auto found = seats_.find(shard);
  if (found == seats_.end() || found->second != seat) return;
  MemberInfo member;
  member.shard = shard;
  member.seat = seat;
  member.status = status;
  const bool two = shard.side == Side::rollout && processes_[process]->slots.size() == 2;
  member.slots = shard.side == Side::trainer ? options_.trainer_slots : two ? 2 : 1;
  if (shard.side == Side::rollout) member.bytes_needed = group_count() * cells_of_source;
  roster_.members[shard] = member;
  tell_roster();
  if (shard.side == Side::rollout) return;
  for (const auto& [reader, number] : seats_) {
    if (reader.side == Side::rollout) send_sources(by_seat_.at(number));
  }
}

void StatesWorld::lose(const ShardId& shard, std::uint64_t seat) {
  const auto found = seats_.find(shard);
  if (found == seats_.end() || found->second != seat) return;
  seats_.erase(found);
  if (roster_.members.erase(shard) != 0) tell_roster();
}

void StatesWorld::tell_roster() {
  const Roster roster = roster_;
  ledger_box_.emplace_back([this, roster] {
    ledger_->update(roster);
    act_ledger();
  });
  for (std::uint32_t replica = 0; replica < boxes_.size(); ++replica) {
    boxes_[replica].emplace_back([this, replica, roster] {
      rosters_[replica] = roster;
      replicas_[replica].update(roster);
      act(replica);
    });
  }
}

void StatesWorld::send_sources(std::size_t process) {
  std::map<ShardId, std::size_t> sources;
  for (const auto& [shard, seat] : seats_) {
    if (shard.side == Side::trainer) sources[shard] = by_seat_.at(seat);
  }
  post(process, seats_.at(processes_[process]->shard), [this, process, sources] {
    Process& one = *processes_[process];
    one.sources_next = sources;
    if (!one.fetch) one.sources = sources;
  });
}

void StatesWorld::post(std::size_t process, std::uint64_t seat, Message message) {
  Process& one = *processes_[process];
  const auto now = seats_.find(one.shard);
  if (!one.alive || one.cut || now == seats_.end() || now->second != seat) return;
  if (by_seat_.at(seat) == process) one.in.push_back(std::move(message));
}

void StatesWorld::tell_standing(std::size_t process) {
  Process& one = *processes_[process];
  if (!one.joined || !one.trainer->writes(one.version)) return;
  one.out.emplace_back([this, process, version = one.version, cells = one.cells_written] {
    planner_box_.emplace_back([this, process, version, cells] {
      if (seated(process) == nullptr) return;
      ledger_box_.emplace_back([this, shard = processes_[process]->shard, version, cells] {
        ledger_->standing(shard, version, cells);
        // Told at once or, by chance, with what comes later.
        if (random_.chance(1, 2)) ledger_->tell_standing();
        act_ledger();
      });
    });
  });
}

std::string StatesWorld::text() const {
  std::string all = "ready " + std::to_string(ledger_->ready().value_or(0)) + ", leases " +
                    std::to_string(ledger_->lease_count());
  for (const auto& [shard, place] : places_) {
    const Process& one = *processes_[place];
    all += "\n" + text_of(shard) + (one.alive ? "" : " dead") + (one.joined ? "" : " not joined");
    if (one.trainer) {
      all += " work " + std::to_string(static_cast<int>(one.work)) + " on " +
             std::to_string(one.version);
      for (const SlotReport& slot : one.trainer->status().slots) {
        all += " [" + std::to_string(static_cast<int>(slot.state)) + " " +
               std::to_string(slot.version) + "]";
      }
    } else {
      const MemberStatus& status = one.rollout->status();
      all += " " + replicas_[shard.replica].doing(shard.rank) + ", placement " +
             std::to_string(static_cast<int>(status.placement)) + ", installed " +
             std::to_string(status.installed) + " in " + std::to_string(status.installed_slot) +
             (status.running ? ", running" : ", paused") + (one.fetch ? ", fetching" : "");
    }
  }
  return all;
}

}  // namespace weir
