// The engine's other half: when connections are made, given up, rested and tried again.

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/assert.hpp"
#include "transports/rdma/internal/engine.hpp"

namespace weir::rdma {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// To resolve an address takes 500 ms at most, and a process that lives answers in some ms. One
/// that was never reached may have much else to do when it begins; one that was lost is to be told
/// of.
constexpr Duration connect_time_max = seconds(5);
constexpr Duration reconnect_time_max = milliseconds(1200);
/// A device gives back what was posted at once when a queue pair is in error; one that does not is
/// made to by destroying the queue pair.
constexpr Duration drain_time_max = seconds(1);
/// Longer than a device may take to give up on a peer (4 * 4 * 268 ms, see `ack_timeout` of the
/// connector), so that this only sees a device that has lost a request.
constexpr Duration stall_time_max = seconds(5);
/// A rail that failed is tried again at once if it had worked, then after 100, 200, 400 ms, …
constexpr Duration first_pause = milliseconds(100);
constexpr Duration pause_max = seconds(5);

}  // namespace

Error Engine::error_of(const Rail& rail, const ibv_wc& completion, const Posted& posted) const {
  const std::string who = rail.link->text(rail);
  const Device& device = *devices_[rail.device];
  if (completion.status == IBV_WC_REM_ACCESS_ERR) {
    const Lane& lane = *posted.lane;
    const SourceRegion& region = lane.regions[lane.steps[posted.step].copy.source];
    if (has_reached(*rail.link, region)) {
      return {ErrorCode::unavailable, who + " has withdrawn its region"};
    }
    return {ErrorCode::invalid,
            who +
                " refuses the key or the place that its rdma ticket states: the ticket is not "
                "that of a region which it lets others read"};
  }
  if (completion.status == IBV_WC_RETRY_EXC_ERR) {
    return {ErrorCode::unavailable,
            device.active() ? who + " does not answer " + device.text() +
                                  ": it is gone, or the network between is cut"
                            : "the link of " + device.text() + " to " + who + " is down"};
  }
  return {ErrorCode::io, "a read from " + who + " failed on " + device.text() + ": " +
                             ibv_wc_status_str(completion.status)};
}

void Engine::lose(Rail& rail, Error why) {
  if (rail.state != RailState::up) return;
  rail.state = RailState::lost;
  rest(rail, std::chrono::steady_clock::now());
  const auto up = [](const Rail& other) { return other.state == RailState::up; };
  if (std::any_of(rail.link->rails.begin(), rail.link->rails.end(), up) && !rail.noted) {
    rail.noted = true;
    tell(why.text + "; going on without it, and trying it again");
  }
  rail.link->error = std::move(why);
  wake_();
}

void Engine::rest(Rail& rail, TimePoint now) {
  if (rail.progressed) {
    rail.pause = Duration::zero();
  } else {
    rail.pause = std::clamp(rail.pause * 2, first_pause, pause_max);
  }
  rail.progressed = false;
  rail.rested_at = now + rail.pause;
}

std::vector<RailTask> Engine::tasks(TimePoint now, TimePoint& wake_at) {
  std::vector<RailTask> tasks;
  const Lock lock(mutex_);
  for (auto place = links_.begin(); place != links_.end();) {
    // Nobody else can get at a link that only the list holds, save under the lock.
    const bool used = place->use_count() > 1;
    Link& link = **place;
    const bool wanted = used && !link.queue.empty();
    for (Rail& rail : link.rails) {
      if (!used && rail.state == RailState::up) rail.state = RailState::lost;
      plan_rail(rail, wanted, now, wake_at, tasks);
    }
    const bool idle = std::all_of(link.rails.begin(), link.rails.end(),
                                  [](const Rail& rail) { return rail.state == RailState::idle; });
    if (wanted && idle) fail_queue(link);
    if (!used && idle) {
      std::erase(starved_, &link);
      place = links_.erase(place);
    } else {
      ++place;
    }
  }
  return tasks;
}

void Engine::plan_rail(Rail& rail, bool wanted, TimePoint now, TimePoint& wake_at,
                       std::vector<RailTask>& tasks) {
  switch (rail.state) {
    case RailState::idle:
      if (!wanted) return;
      if (now < rail.rested_at) {
        wake_at = std::min(wake_at, rail.rested_at);
      } else if (connections_[rail.device] >= devices_[rail.device]->connections_max()) {
        rail.link->error = {ErrorCode::refused,
                            devices_[rail.device]->text() + " reads from " +
                                std::to_string(connections_[rail.device]) +
                                " peers already, which is as many as its completion queue is for"};
      } else {
        rail.state = RailState::connecting;
        rail.deadline = now + (rail.number == 0 ? connect_time_max : reconnect_time_max);
        ++connections_[rail.device];
        wake_at = std::min(wake_at, rail.deadline);
        tasks.push_back({RailTask::Kind::connect, &rail});
      }
      return;
    case RailState::connecting:
      wake_at = std::min(wake_at, rail.deadline);
      if (now >= rail.deadline) tasks.push_back({RailTask::Kind::close, &rail});
      return;
    case RailState::up:
      if (rail.posted.empty()) return;
      if (now >= rail.progress_at + stall_time_max) {
        lose(rail, {ErrorCode::timeout, devices_[rail.device]->text() +
                                            " reports neither success nor failure of a read from " +
                                            rail.link->text(rail)});
      }
      wake_at = std::min(wake_at, rail.progress_at + stall_time_max);
      return;
    case RailState::lost:
      rail.state = RailState::draining;
      rail.deadline = now + drain_time_max;
      tasks.push_back({RailTask::Kind::disconnect, &rail});
      if (!rail.posted.empty()) {
        wake_at = std::min(wake_at, rail.deadline);
        return;
      }
      [[fallthrough]];
    case RailState::draining:
      wake_at = std::min(wake_at, rail.deadline);
      if (rail.posted.empty() || now >= rail.deadline) {
        tasks.push_back({RailTask::Kind::close, &rail});
      }
      return;
  }
}

void Engine::connected(Rail& rail, TimePoint now) {
  const Lock lock(mutex_);
  rail.state = RailState::up;
  rail.number = next_number_++;
  rail.first_sequence = 0;
  rail.progress_at = now;
  rails_[rail.number] = &rail;
  if (std::exchange(rail.noted, false)) {
    tell(rail.link->text(rail) + " answers " + devices_[rail.device]->text() + " again");
  }
  pump(*rail.link);
}

void Engine::not_connected(Rail& rail, Error why, TimePoint now) {
  const Lock lock(mutex_);
  rail.state = RailState::idle;
  --connections_[rail.device];
  rail.link->error = std::move(why);
  rest(rail, now);
}

void Engine::lost(Rail& rail, const std::string& why) {
  const Lock lock(mutex_);
  lose(rail, {ErrorCode::unavailable, rail.link->text(rail) + " " + why});
}

void Engine::closed(Rail& rail) {
  const Lock lock(mutex_);
  rails_.erase(rail.number);
  rail.state = RailState::idle;
  rail.id = nullptr;
  --connections_[rail.device];
  while (!rail.posted.empty()) {
    Posted posted = rail.posted.front();
    rail.posted.pop_front();
    posted.failed = true;
    settle(rail, posted);
  }
  pump(*rail.link);
}

void Engine::lose_all() {
  const Lock lock(mutex_);
  for (const auto& link : links_) {
    WEIR_ASSERT(link.use_count() == 1);
    for (Rail& rail : link->rails) {
      if (rail.state == RailState::up) rail.state = RailState::lost;
      if (rail.state == RailState::connecting) rail.deadline = {};
    }
  }
}

void Engine::fail_queue(Link& link) {
  // Failing takes a transfer's lanes off the queue.
  while (!link.queue.empty()) {
    Transfer& transfer = *link.queue.front()->transfer;
    fail(transfer, link.error);
    end_if_over(transfer);
  }
}

void Engine::tell(std::string text) {
  if (note_) workers_.post([note = note_, text = std::move(text)] { note(text); });
}

}  // namespace weir::rdma
