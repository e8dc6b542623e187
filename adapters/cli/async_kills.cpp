#include "adapters/cli/async_kills.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace weir::cli {
namespace {

/// Takes the text up to `end`, which is taken too, from the front of `rest`.
std::string_view take(std::string_view& rest, char end) {
  const std::size_t at = rest.find(end);
  const std::string_view taken = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return taken;
}

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<KillOrder> parse_kill(const std::string& text) {
  const auto refuse = [&text] {
    return failure(ErrorCode::invalid, "--kill " + text +
                                           ": write SIDE@VERSION, SIDE.REPLICA.RANK@VERSION, or "
                                           "either with +MILLISECONDS, as in rollout.1.0@3+50");
  };
  std::string_view when = text;
  std::string_view whom = take(when, '@');
  KillOrder order;
  const std::string_view side = take(whom, '.');
  if (side != "rollout" && side != "trainer") return refuse();
  order.shard.side = side == "trainer" ? Side::trainer : Side::rollout;
  order.any = whom.empty();
  if (!order.any) {
    const std::string_view replica = take(whom, '.');
    if (!read(replica, order.shard.replica) || !read(whom, order.shard.rank)) return refuse();
  }
  const bool delayed = when.find('+') != std::string_view::npos;
  const std::string_view version = take(when, '+');
  std::uint32_t milliseconds = 0;
  if (!read(version, order.version) || order.version == 0) return refuse();
  if (delayed && !read(when, milliseconds)) return refuse();
  order.after = std::chrono::milliseconds(milliseconds);
  return order;
}

Result<KillSchedule> KillSchedule::make(const std::vector<KillOrder>& orders,
                                        const std::vector<ShardId>& trainers,
                                        const std::vector<ShardId>& rollouts,
                                        std::chrono::nanoseconds restart_after) {
  KillSchedule schedule;
  schedule.restart_after_ = restart_after;
  for (const KillOrder& order : orders) {
    const auto& shards = order.shard.side == Side::trainer ? trainers : rollouts;
    Kill kill;
    kill.order = order;
    if (order.any) {
      // Another one each time.
      kill.order.shard = shards.at(schedule.kills_.size() % shards.size());
    } else if (std::find(shards.begin(), shards.end(), order.shard) == shards.end()) {
      return failure(ErrorCode::invalid, "--kill: there is no " + text_of(order.shard));
    }
    schedule.kills_.push_back(kill);
  }
  return schedule;
}

bool KillSchedule::is_down(const ShardId& shard) const noexcept {
  return std::any_of(kills_.begin(), kills_.end(), [&shard](const Kill& kill) {
    return kill.order.shard == shard &&
           (kill.stage == Kill::Stage::down || kill.stage == Kill::Stage::restarted);
  });
}

std::vector<KillSchedule::Step> KillSchedule::due(std::uint64_t ready,
                                                  std::chrono::nanoseconds now) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i < kills_.size(); ++i) {
    Kill& kill = kills_[i];
    if (kill.stage == Kill::Stage::waiting && ready >= kill.order.version) {
      kill.stage = Kill::Stage::due;
      kill.at = now + kill.order.after;
    }
    // One that is still away from the last time is killed once it is back.
    if (kill.stage == Kill::Stage::due && now >= kill.at && !is_down(kill.order.shard)) {
      kill.stage = Kill::Stage::down;
      kill.killed_at = now;
      kill.at = now + restart_after_;
      kill.ready_then = ready;
      kill.life = 2 + static_cast<std::uint64_t>(
                          std::count_if(kills_.begin(), kills_.end(), [&kill](const Kill& other) {
                            return other.order.shard == kill.order.shard &&
                                   other.stage == Kill::Stage::back;
                          }));
      steps.push_back({Act::kill, i});
    } else if (kill.stage == Kill::Stage::down && now >= kill.at) {
      kill.stage = Kill::Stage::restarted;
      steps.push_back({Act::restart, i});
    }
  }
  return steps;
}

void KillSchedule::seen(const ShardId& shard, std::uint64_t life, std::chrono::nanoseconds now) {
  for (Kill& kill : kills_) {
    if (kill.order.shard == shard && kill.stage == Kill::Stage::restarted && life >= kill.life) {
      kill.stage = Kill::Stage::back;
      kill.back_at = now;
    }
  }
}

bool KillSchedule::over() const noexcept {
  return std::all_of(kills_.begin(), kills_.end(),
                     [](const Kill& kill) { return kill.stage == Kill::Stage::back; });
}

bool KillSchedule::pending() const noexcept {
  return std::any_of(kills_.begin(), kills_.end(), [](const Kill& kill) {
    return kill.stage == Kill::Stage::down || kill.stage == Kill::Stage::restarted;
  });
}

}  // namespace weir::cli
