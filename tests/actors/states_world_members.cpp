#include <algorithm>
#include <utility>

#include "tests/actors/states_world.hpp"

namespace weir {
namespace {

constexpr std::size_t cells_of_source = 2;
/// A process that will never be there.
constexpr std::size_t nobody = static_cast<std::size_t>(-1);

}  // namespace

// ---- the ledger --------------------------------------------------------------------------------

void StatesWorld::act_ledger() {
  for (const LedgerEffect& effect : ledger_->take_effects()) {
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void StatesWorld::carry_out(const ledger::Granted& granted) {
  const std::uint64_t seat = writers_.at(granted.shard);
  const std::size_t process = by_seat_.at(seat);
  post(process, seat, [this, process, granted] {
    Process& one = *processes_[process];
    if (one.work != Work::asking || one.version != granted.version) return;
    if (!one.trainer->acquired(granted.version, granted.slot)) fail("a slot that it has not");
    one.work = Work::writing;
    one.slot = granted.slot;
    one.cells_written = 0;
  });
}

void StatesWorld::carry_out(const ledger::Superseded& superseded) {
  const std::uint64_t seat = writers_.at(superseded.shard);
  const std::size_t process = by_seat_.at(seat);
  post(process, seat, [this, process, superseded] {
    Process& one = *processes_[process];
    if (one.work == Work::asking && one.version == superseded.version) one.work = Work::idle;
  });
}

void StatesWorld::carry_out(const ledger::Leased& leased) {
  numbers_.push_back(leased.lease.number);
  to_coordinator(requests_.at(leased.request),
                 [lease = leased.lease](ReplicaState& state) { state.leased(lease); });
}

void StatesWorld::carry_out(const ledger::NotLeased& refused) {
  to_coordinator(requests_.at(refused.request), [](ReplicaState& state) { state.not_leased(); });
}

void StatesWorld::carry_out(const ledger::Revoked& revoked) {
  supervisor_box_.emplace_back([this, revoked] {
    to_coordinator(revoked.replica,
                   [lease = revoked.lease](ReplicaState& state) { state.revoked(lease); });
  });
}

void StatesWorld::carry_out(const ledger::Ready& ready) {
  supervisor_box_.emplace_back([this, version = ready.version] {
    for (std::uint32_t replica = 0; replica < boxes_.size(); ++replica) {
      to_coordinator(replica, [version](ReplicaState& state) { state.announce(version); });
    }
  });
}

void StatesWorld::carry_out(const ledger::Begun& begun) {
  supervisor_box_.emplace_back([this, version = begun.version] {
    for (std::uint32_t replica = 0; replica < boxes_.size(); ++replica) {
      to_coordinator(replica, [version](ReplicaState& state) { state.begun(version); });
    }
  });
}

void StatesWorld::carry_out(const ledger::Standing& standing) {
  supervisor_box_.emplace_back([this, standing] {
    to_coordinator(standing.replica, [standing](ReplicaState& state) {
      state.standing(standing.lease, standing.stands);
    });
  });
}

// ---- coordinators ------------------------------------------------------------------------------

void StatesWorld::to_coordinator(std::uint32_t replica, std::function<void(ReplicaState&)> what) {
  boxes_[replica].emplace_back([this, replica, what = std::move(what)] {
    what(replicas_[replica]);
    act(replica);
  });
}

void StatesWorld::act(std::uint32_t replica) {
  ReplicaState& state = replicas_[replica];
  for (auto effects = state.take_effects(); !effects.empty(); effects = state.take_effects()) {
    for (const ReplicaEffect& effect : effects) {
      std::visit([this, replica](const auto& one) { carry_out(replica, one); }, effect);
    }
  }
  for (std::uint32_t rank = 0; rank < options_.rollout_ranks; ++rank) {
    if (state.doing(rank).empty()) fail("a shard that does nothing");
  }
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::AskLease& ask) {
  ledger_box_.emplace_back([this, replica, ask, term = replicas_[replica].term()] {
    const std::uint64_t request = ledger_->lease(ask.version, replica, ask.slot, term);
    numbers_.push_back(request);
    requests_[request] = replica;
    act_ledger();
  });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Renew& renew) {
  ledger_box_.emplace_back([this, replica, renew] {
    const Result<Lease> lease = ledger_->renew(renew.lease, renew.failed);
    to_coordinator(replica, [lease](ReplicaState& state) {
      lease ? state.renewed(*lease) : state.not_renewed();
    });
    act_ledger();
  });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Confirm& confirm) {
  ledger_box_.emplace_back([this, replica, confirm] {
    const bool valid = ledger_->confirm(confirm.lease).has_value();
    to_coordinator(replica, [valid](ReplicaState& state) { state.confirmed(valid); });
    act_ledger();
  });
}

void StatesWorld::carry_out(std::uint32_t, const replica::Release& release) {
  ledger_box_.emplace_back([this, release] {
    ledger_->release(release.lease);
    act_ledger();
  });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Committed& done) {
  ++commits_;
  if (!done.readable) return;
  ledger_box_.emplace_back([this, replica, done, term = replicas_[replica].term()] {
    ledger_->committed(replica, done.version, done.slot, term);
    act_ledger();
  });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Retry& retry) {
  retries_.emplace_back(replica, retry.number);
}

/// The planner loses it, and it ends when it hears of that.
void StatesWorld::carry_out(std::uint32_t replica, const replica::Expel& expel) {
  const ShardId shard{Side::rollout, replica, expel.rank};
  planner_box_.emplace_back([this, shard, seat = expel.seat] {
    const auto found = seats_.find(shard);
    if (found == seats_.end() || found->second != seat) return;
    const std::size_t process = by_seat_.at(seat);
    lose(shard, seat);
    // Its connection stays until it has heard of it.
    processes_[process]->in.emplace_back([this, process] { crash(process); });
  });
}

StatesWorld::Process* StatesWorld::holder_of(const ShardId& shard, std::uint64_t seat) {
  const auto found = by_seat_.find(seat);
  if (found == by_seat_.end() || processes_[found->second]->shard != shard) return nullptr;
  return processes_[found->second].get();
}

void StatesWorld::order(std::uint32_t replica, std::uint32_t rank, Order what,
                        std::uint64_t version, std::uint32_t slot) {
  const From from{rank, replicas_[replica].seat(rank)};
  Process* one = holder_of({Side::rollout, replica, rank}, from.seat);
  if (one == nullptr) return fail("an order for nobody");
  const std::size_t process = by_seat_.at(from.seat);
  const std::uint64_t number = next_request_++;
  if (!one->alive || !one->joined) {
    return to_coordinator(replica, [from](ReplicaState& state) {
      state.failed(from, {ErrorCode::unavailable, "it died"});
    });
  }
  one->owed[number] = {from, false};
  post(process, from.seat, [this, process, what, from, number, version, slot] {
    begin_order(process, what, from, number, version, slot);
  });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Pause& pause) {
  order(replica, pause.rank, Order::pause, pause.version, 0);
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Install& install) {
  order(replica, install.rank, Order::install, install.version, install.slot);
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Resume& resume) {
  check_resume(replica, resume.version);
  order(replica, resume.rank, Order::resume, resume.version, 0);
}

/// No shard of a replica goes on before all of them have installed the same version.
void StatesWorld::check_resume(std::uint32_t replica, std::uint64_t version) {
  for (std::uint32_t rank = 0; rank < options_.rollout_ranks; ++rank) {
    const Process* one = holder_of({Side::rollout, replica, rank}, replicas_[replica].seat(rank));
    if (one == nullptr || one->rollout->status().installed != version) {
      fail("rollout replica " + std::to_string(replica) + " resumes version " +
           std::to_string(version) + ", which rank " + std::to_string(rank) + " has not installed");
    }
  }
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Tell& tell) {
  const From from{tell.rank, replicas_[replica].seat(tell.rank)};
  if (holder_of({Side::rollout, replica, tell.rank}, from.seat) == nullptr) return;
  const std::size_t process = by_seat_.at(from.seat);
  post(process, from.seat, [this, process, tell] {
    Process& one = *processes_[process];
    if (!one.fetch || one.kept_claim.second != tell.lease) return;
    for (std::size_t i = 0; i < one.fetch->stands.size(); ++i) {
      one.fetch->stands[i] = std::max(one.fetch->stands[i], tell.stands.at(i));
    }
  });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Cancel& cancelled) {
  const From from{cancelled.rank, replicas_[replica].seat(cancelled.rank)};
  Process* one = holder_of({Side::rollout, replica, cancelled.rank}, from.seat);
  if (one == nullptr || !one->alive || !one->joined) {
    return to_coordinator(replica, [from](ReplicaState& state) {
      state.failed(from, {ErrorCode::unavailable, "it died"});
    });
  }
  const std::size_t process = by_seat_.at(from.seat);
  const std::uint64_t number = next_request_++;
  one->owed[number] = {from, false};
  post(process, from.seat, [this, process, from, number] { cancel(process, from, number); });
}

void StatesWorld::carry_out(std::uint32_t replica, const replica::Fetch& wanted) {
  const From from{wanted.rank, replicas_[replica].seat(wanted.rank)};
  const ShardId shard{Side::rollout, replica, wanted.rank};
  const Roster& roster = rosters_[replica];
  const Result<Routes> routes = routes_for(roster, wanted.lease, shard);
  if (!routes) return replicas_[replica].unreadable(from);
  Process* one = holder_of(shard, from.seat);
  if (one == nullptr || !one->alive || !one->joined) {
    return to_coordinator(replica, [from](ReplicaState& state) {
      state.fetch_failed(from, {ErrorCode::unavailable, "it died"});
    });
  }
  Fetch fetch{from, next_request_++, wanted.lease.version, wanted.slot, {}, {}, {}, {}, {}, {}};
  fetch.stands = wanted.lease.stands;
  for (const Route& route : routes->by_source) {
    const MemberInfo* peer = route.peer ? roster.find(routes->peer) : nullptr;
    fetch.shards.push_back(route.peer ? routes->peer : roster.sources[route.source]);
    // What stands in for a peer that is gone is nobody's memory.
    fetch.processes.push_back(peer != nullptr ? by_seat_.at(peer->seat)
                              : route.peer    ? nobody
                                              : route.source);
    fetch.slots.push_back(route.slot);
    fetch.peer.push_back(route.peer);
    fetch.sources.push_back(route.source);
  }
  const std::size_t process = by_seat_.at(from.seat);
  one->owed[fetch.number] = {from, true};
  post(process, from.seat,
       [this, process, fetch, lease = wanted.lease.number] { begin_fetch(process, fetch, lease); });
}

// ---- rollout shards ----------------------------------------------------------------------------

void StatesWorld::answer(std::size_t process, std::uint64_t number,
                         std::function<void(ReplicaState&)> what) {
  Process& one = *processes_[process];
  if (one.owed.erase(number) == 0) return;
  one.out.emplace_back([this, replica = one.shard.replica, what = std::move(what)] {
    to_coordinator(replica, what);
  });
}

void StatesWorld::begin_fetch(std::size_t process, const Fetch& fetch, std::uint64_t lease) {
  Process& one = *processes_[process];
  if (!one.rollout->obey(fetch.from.seat)) return fail("a fetch for another seat");
  const Result<void> begun = one.rollout->begin_fetch(fetch.version, fetch.slot);
  if (!begun) return fail(begun.error().text);
  one.fetch = fetch;
  for (std::size_t group = 0; group < group_count(); ++group) {
    if (fetch.peer[group]) continue;
    const auto source = one.sources.find(roster_.sources[fetch.processes[group]]);
    one.fetch->processes[group] = source == one.sources.end() ? nobody : source->second;
  }
  const std::pair claim{fetch.from.seat, lease};
  if (one.kept_claim != claim) one.kept.assign(one.slots.front().size(), false);
  one.kept_claim = claim;
}

void StatesWorld::copy_cell(std::size_t process, bool faults) {
  Process& one = *processes_[process];
  const Fetch fetch = *one.fetch;
  const auto stands = [&fetch](std::size_t group) {
    return fetch.stands.empty() || fetch.peer[group] ? everything
                                                     : fetch.stands[fetch.sources[group]];
  };
  const auto fail_source = [this, &one, &fetch, process](std::size_t group) {
    end_fetch(one, false);
    answer(process, fetch.number, [fetch, failed = fetch.shards[group]](ReplicaState& state) {
      state.source_failed(fetch.from, failed);
    });
    idle(process);
  };
  std::vector<std::size_t> missing;
  std::size_t waits_for = group_count();
  for (std::size_t cell = 0; cell < one.kept.size(); ++cell) {
    const std::size_t group = cell / cells_of_source;
    if (stands(group) != everything) waits_for = group;
    if (!one.kept[cell] && cell % cells_of_source < stands(group)) missing.push_back(cell);
  }
  if (missing.empty() && waits_for != group_count()) {
    // It waits, but not for ever.
    if (faults && random_.chance(1, 60)) fail_source(waits_for);
    return;
  }
  if (missing.empty()) {
    end_fetch(one, true);
    answer(process, fetch.number, [fetch, bytes = one.kept.size()](ReplicaState& state) {
      state.fetched(fetch.from, bytes);
    });
    return idle(process);
  }
  const std::size_t cell = missing[random_.below(missing.size())];
  const std::size_t group = cell / cells_of_source;
  const std::size_t other = fetch.processes[group];
  const bool readable =
      other < processes_.size() && (processes_[other]->alive || options_.dead_memory_is_read);
  if (!readable || (faults && random_.chance(1, 60))) {
    return fail_source(group);
  }
  const std::size_t offset = fetch.peer[group] ? cell : cell % cells_of_source;
  const Cells& from = processes_[other]->slots[fetch.slots[group]];
  one.slots[fetch.slot][cell] = from[offset];
  if (one.rollout->status().placement == Placement::in_place) one.live = one.slots.front();
  one.kept[cell] = true;
  early_ += ledger_->ready().value_or(0) < fetch.version ? 1 : 0;
}

void StatesWorld::end_fetch(Process& process, bool whole) {
  process.rollout->end_fetch(whole);
  process.fetch.reset();
  process.sources = process.sources_next;
}

void StatesWorld::cancel(std::size_t process, const From& from, std::uint64_t number) {
  Process& one = *processes_[process];
  if (one.fetch) {
    const Fetch fetch = *one.fetch;
    end_fetch(one, false);
    answer(process, fetch.number, [fetch](ReplicaState& state) {
      state.fetch_failed(fetch.from, {ErrorCode::unavailable, "the fetch was cancelled"});
    });
  }
  answer(process, number, [from](ReplicaState& state) { state.cancelled(from); });
}

void StatesWorld::begin_order(std::size_t process, Order what, const From& from,
                              std::uint64_t number, std::uint64_t version, std::uint32_t slot) {
  Process& one = *processes_[process];
  Result<void> begun = one.rollout->obey(from.seat);
  if (begun && what == Order::pause) begun = one.rollout->begin_pause();
  if (begun && what == Order::install) begun = one.rollout->begin_install(version, slot);
  if (begun && what == Order::resume) begun = one.rollout->begin_resume(version);
  if (!begun) return fail(begun.error().text);
  one.order = what;
  one.order_from = from;
  one.order_number = number;
  one.order_version = version;
  one.order_slot = slot;
}

void StatesWorld::end_order(std::size_t process, bool faults) {
  Process& one = *processes_[process];
  const Order what = std::exchange(one.order, Order::none);
  const bool well = !faults || !random_.chance(1, what == Order::install ? 10 : 40);
  one.rollout->end_order(well);
  const From from = one.order_from;
  if (!well) {
    answer(process, one.order_number, [what, from](ReplicaState& state) {
      const Error why{ErrorCode::refused, "no"};
      what == Order::install ? state.install_failed(from) : state.failed(from, why);
    });
    return idle(process);
  }
  if (what == Order::install) {
    one.live = one.slots[one.order_slot];
    const Cells whole(one.live.size(), one.order_version);
    if (one.live != whole) {
      fail(text_of(one.shard) + " installs torn bytes as version " +
           std::to_string(one.order_version));
    }
  }
  if (what == Order::resume) {
    const std::uint64_t version = one.rollout->status().installed;
    if (version < one.served) fail(text_of(one.shard) + " goes back");
    one.served = version;
  }
  answer(process, one.order_number,
         [what, from, version = one.order_version, slot = one.order_slot](ReplicaState& state) {
           if (what == Order::pause) state.paused(from);
           if (what == Order::install) state.installed(from, version, slot);
           if (what == Order::resume) state.resumed(from);
         });
  idle(process);
}

/// Members that generate do so with whole bytes, and with those of one version in each replica.
void StatesWorld::check_served() {
  std::map<std::uint32_t, std::uint64_t> serving;
  for (const auto& [shard, place] : places_) {
    const Process& one = *processes_[place];
    if (shard.side == Side::trainer || !one.alive || seated(place) == nullptr) continue;
    const MemberStatus& status = one.rollout->status();
    if (!status.running) continue;
    if (one.live != Cells(one.live.size(), status.installed)) {
      fail(text_of(shard) + " generates with torn bytes");
    }
    const auto [at, first] = serving.emplace(shard.replica, status.installed);
    if (!first && at->second != status.installed) {
      fail(text_of(shard) + " generates with another version than its peers");
    }
  }
}

// ---- trainer shards ----------------------------------------------------------------------------

void StatesWorld::train(std::size_t process) {
  Process& one = *processes_[process];
  std::uint64_t& training = training_[one.shard.replica];
  if (one.work == Work::writing) {
    Cells& cells = one.slots[one.slot];
    // Slowly enough to be read meanwhile.
    if (one.cells_written != 0 && !random_.chance(1, 6)) return;
    cells[one.cells_written++] = one.version;
    if (one.cells_written < cells.size()) return tell_standing(process);
    if (!one.trainer->staged(one.version)) fail("a trainer can't stage what it was granted");
    one.work = Work::telling;
  } else if (one.work == Work::idle && one.joined) {
    bool have = false;
    for (const SlotReport& slot : one.trainer->status().slots) {
      have = have || (slot.state == SlotState::whole && slot.version >= training);
    }
    if (have && !recovering_ && random_.chance(1, 20)) ++training;
    if (have || !one.trainer->wants(training)) return;
    one.version = training;
    one.work = Work::asking;
  } else {
    return;
  }
  if (one.joined) tell_ledger(process, one.work == Work::asking);
}

void StatesWorld::tell_ledger(std::size_t process, bool asks) {
  Process& one = *processes_[process];
  one.out.emplace_back([this, process, asks, version = one.version] {
    planner_box_.emplace_back([this, process, asks, version] {
      const ShardId shard = processes_[process]->shard;
      const MemberInfo* info = seated(process);
      if (info == nullptr) return;
      const std::uint64_t seat = info->seat;
      ledger_box_.emplace_back([this, process, shard, seat, asks, version] {
        if (asks) writers_[shard] = seat;
        const Result<void> done =
            asks ? ledger_->acquire(shard, version) : ledger_->staged(shard, version);
        if (!done && !asks) fail(done.error().text);
        ledger_box_.emplace_back([this] {
          ledger_->tell_standing();
          act_ledger();
        });
        if (!done || !asks) {
          post(process, seat, [this, process, asks, version, ready = ledger_->ready()] {
            Process& member = *processes_[process];
            if (member.version != version) return;
            if (member.work == (asks ? Work::asking : Work::telling)) member.work = Work::idle;
            // It was behind what others had made: it goes on with theirs.
            std::uint64_t& next = training_[member.shard.replica];
            if (asks) next = std::max(next + 1, ready.value_or(0));
          });
        }
        act_ledger();
      });
    });
  });
}

}  // namespace weir
