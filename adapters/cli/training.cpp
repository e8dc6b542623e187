#include "adapters/cli/training.hpp"

#include <future>
#include <utility>

namespace weir::cli {
namespace {

/// Readers that read for longer lose their lease. A peer that was killed has to be back by then, or
/// the same version is tried again.
constexpr std::chrono::seconds update_deadline{30};

constexpr std::chrono::milliseconds peers_deadline{500};

/// What another version, or another try, gets over: a rank that was away may find that its peers
/// have gone on without it, and they that it is ahead of them.
bool can_go_on(const Error& error) noexcept {
  return error.code == ErrorCode::invalid || error.code == ErrorCode::refused ||
         error.code == ErrorCode::timeout;
}

}  // namespace

Result<std::unique_ptr<Training>> Training::make(const AsyncShard& shard,
                                                 const TrainingParts& parts) {
  std::unique_ptr<Training> own(new Training(shard, parts));
  if (parts.live == nullptr) return own;
  Result<Conversion> conversion = snapshot_of({parts.live});
  if (shard.way == PublishWay::convert) {
    conversion = conversion_between(parts.kept->manifest(), parts.published.manifest());
  }
  if (!conversion) return failure(conversion);
  own->stager_ = std::make_unique<Stager>(
      std::move(*conversion), std::vector<Region*>{parts.live}, parts.slots,
      static_cast<std::uint32_t>(parts.slots.size()), parts.workers);
  return own;
}

Result<void> Training::update(std::uint64_t version) {
  if (parts_.live == nullptr) return {};
  return parts_.kept->fill(version, parts_.live->bytes(), parts_.workers);
}

Result<void> Training::fill(std::uint64_t version, std::uint32_t slot, Member& member) {
  const std::chrono::nanoseconds begun_at = parts_.clock.now();
  Beginning& begun = record_.begun[version % beginnings_kept];
  begun.version = 0;
  begun.at = static_cast<std::uint64_t>(begun_at.count());
  begun.version = version;
  if (stager_ == nullptr) {
    return parts_.published.fill(version, parts_.slots.at(slot)->bytes(), parts_.workers);
  }
  std::promise<Result<std::uint64_t>> copied;
  Stager::Progress progress;
  if (shard_.early) {
    progress = [&member, version](std::uint64_t bytes) { member.standing(version, bytes); };
  }
  stager_->start(slot, progress,
                 [&copied](Result<std::uint64_t> bytes) { copied.set_value(std::move(bytes)); });
  const Result<std::uint64_t> bytes = copied.get_future().get();
  if (!bytes) return failure(bytes);
  record_.copied.add(parts_.clock.now() - begun_at);
  return {};
}

bool Training::step(std::uint64_t version, StopSwitch& stop) {
  if (!stop.wait(shard_.step)) return false;
  const std::chrono::nanoseconds until = parts_.clock.now() + peers_deadline;
  for (const ShardRecord& peer : parts_.board.replica(Side::trainer, shard_.base.shard.replica)) {
    while (peer.newest + 1 < version && parts_.clock.now() < until) {
      if (!stop.wait(std::chrono::milliseconds(1))) return false;
    }
  }
  return true;
}

Result<void> Training::run(Member& member, StopSwitch& stop) {
  std::uint64_t version = shard_.first_version;
  bool updated = false;
  while (updated || step(version, stop)) {
    if (stop.stopped()) break;
    if (!updated) {
      if (const auto done = update(version); !done) return done;
      updated = true;
    }
    const std::chrono::nanoseconds asked_at = parts_.clock.now();
    const auto slot = member.begin_update(version, update_deadline);
    if (!slot) {
      if (stop.stopped() || slot.error().code == ErrorCode::unavailable) break;
      if (!can_go_on(slot.error())) return failure(slot);
      if (slot.error().code == ErrorCode::timeout) continue;
      ++version;
      if (const auto done = update(version); !done) return done;
      continue;
    }
    record_.waited.add(parts_.clock.now() - asked_at);
    if (const auto done = fill(version, *slot, member); !done) return done;
    const auto published = member.publish(version);
    if (!published && (stop.stopped() || published.error().code == ErrorCode::unavailable)) break;
    if (!published && !can_go_on(published.error())) return published;
    if (published) {
      record_.newest = version;
      record_.life = shard_.life;
    }
    ++version;
    updated = false;
  }
  return {};
}

}  // namespace weir::cli
