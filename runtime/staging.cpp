#include "runtime/staging.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "runtime/assert.hpp"
#include "runtime/internal/copy_form.hpp"
#include "runtime/internal/quoted.hpp"
#include "runtime/planner.hpp"
#include "runtime/strided_copy.hpp"

namespace weir {
namespace {

/// Less than a millisecond of copying on one thread: threads end together, and what a share costs
/// besides does not show.
constexpr std::uint64_t share_bytes = std::uint64_t{4} << 20;

}  // namespace

std::vector<Copy> snapshot_copies(const std::vector<Region*>& live) {
  std::vector<Copy> copies;
  for (std::uint32_t i = 0; i < live.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(live[i]->bytes().size());
    if (bytes == 0) continue;
    Copy copy;
    copy.source_region = copy.target_region = i;
    copy.source_type = copy.target_type = ElementType::u8;
    if (bytes > 1) {
      copy.extent = {bytes};
      copy.source_stride = copy.target_stride = {1};
    }
    copies.push_back(copy);
  }
  return copies;
}

Result<std::vector<Copy>> convert_copies(const Manifest& live, const Manifest& slot) {
  for (const Manifest* manifest : {&live, &slot}) {
    if (auto good = check(*manifest); !good) return failure(good);
  }
  if (live.pieces.size() != slot.pieces.size()) {
    return failure(ErrorCode::invalid,
                   text_of(live.shard) + " has " + std::to_string(live.pieces.size()) +
                       " pieces, but its slots have " + std::to_string(slot.pieces.size()));
  }
  std::vector<Copy> copies;
  copies.reserve(live.pieces.size());
  for (std::size_t i = 0; i < live.pieces.size(); ++i) {
    const Piece& from = live.pieces[i];
    const Piece& to = slot.pieces[i];
    const Tensor& source = live.tensors[from.tensor];
    const Tensor& target = slot.tensors[to.tensor];
    const std::string piece = text_of(live.shard) + ": piece " + text_of(from.box) + " of " +
                              internal::quoted(source.name);
    if (source.name != target.name || from.box != to.box) {
      return failure(ErrorCode::invalid, piece + " is piece " + text_of(to.box) + " of " +
                                             internal::quoted(target.name) + " in the slots");
    }
    if (!convertible(source.type, target.type)) {
      return failure(ErrorCode::invalid, piece + " can't be converted from " +
                                             std::string(name_of(source.type)) + " to " +
                                             std::string(name_of(target.type)));
    }
    copies.push_back({0, from.region, to.region, source.type, target.type, from.offset, to.offset,
                      from.box.extent, from.stride, to.stride});
    internal::normalize(copies.back());
  }
  return copies;
}

Stager::Stager(const std::vector<Copy>& copies, std::vector<Region*> live,
               std::vector<Region*> slots, std::uint32_t slot_count, Workers& workers)
    : live_(std::move(live)),
      slots_(std::move(slots)),
      slot_count_(slot_count),
      workers_(workers),
      checked_(check_all(copies)) {
  if (checked_) cut(copies);
}

Stager::~Stager() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  returned_.wait(lock, [this] { return starts_out_ == 0; });
}

Result<void> Stager::check_all(const std::vector<Copy>& copies) const {
  if (slot_count_ == 0 || slots_.size() % slot_count_ != 0) {
    return failure(ErrorCode::invalid, std::to_string(slots_.size()) + " regions don't make up " +
                                           std::to_string(slot_count_) + " slots");
  }
  for (std::size_t i = regions_in_slot(); i < slots_.size(); ++i) {
    if (slots_[i]->bytes().size() != slots_[i - regions_in_slot()]->bytes().size()) {
      return failure(ErrorCode::invalid, "slots differ in size: make them equal");
    }
  }
  for (const Copy& copy : copies) {
    if (copy.source_region >= live_.size() || copy.target_region >= regions_in_slot()) {
      return failure(ErrorCode::invalid, "a copy names a region that is not there");
    }
    auto within = check_bounds(copy, live_[copy.source_region]->bytes().size(),
                               slots_[copy.target_region]->bytes().size());
    if (!within) return within;
  }
  return {};
}

void Stager::cut(const std::vector<Copy>& copies) {
  std::uint64_t share = 0;
  for (const Copy& copy : copies) {
    for (const Copy& part : split(copy, share_bytes)) {
      parts_.push_back(part);
      share += target_bytes(part);
      if (share < share_bytes) continue;
      share_ends_.push_back(parts_.size());
      share = 0;
    }
    bytes_ += target_bytes(copy);
  }
  if (share > 0) share_ends_.push_back(parts_.size());
}

std::size_t Stager::regions_in_slot() const noexcept {
  return slots_.size() / slot_count_;
}

void Stager::start(std::uint32_t slot, Progress progress, Done done) {
  if (!checked_) return done(failure(checked_));
  if (slot >= slot_count_) {
    return done(failure(ErrorCode::invalid, "there is no slot " + std::to_string(slot) + " of " +
                                                std::to_string(slot_count_)));
  }
  std::unique_lock lock(mutex_);
  if (lanes_ != 0 || ending_) {
    lock.unlock();
    return done(failure(ErrorCode::refused, "another slot is being filled"));
  }
  std::size_t lanes = std::clamp<std::size_t>(share_ends_.size(), 1, workers_.thread_count());
  lanes_ = lanes;
  ++starts_out_;
  next_share_ = 0;
  bytes_done_ = 0;
  progress_ = std::move(progress);
  done_ = std::move(done);
  lock.unlock();
  for (; lanes > 0; --lanes) workers_.post([this, slot] { work(slot); });
}

void Stager::work(std::uint32_t slot) {
  const auto targets =
      std::span<Region* const>(slots_).subspan(slot * regions_in_slot(), regions_in_slot());
  for (;;) {
    std::size_t share = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ending_ || next_share_ == share_ends_.size()) break;
      share = next_share_++;
    }
    std::uint64_t bytes = 0;
    for (std::size_t i = share == 0 ? 0 : share_ends_[share - 1]; i < share_ends_[share]; ++i) {
      const Copy& part = parts_[i];
      copy_strided(part, live_[part.source_region]->bytes(), targets[part.target_region]->bytes());
      bytes += target_bytes(part);
    }
    const std::lock_guard lock(progress_mutex_);
    bytes_done_ += bytes;
    if (progress_) progress_(bytes_done_);
  }
  finish();
}

void Stager::finish() {
  Done done;
  bool whole = false;
  {
    const std::lock_guard lock(mutex_);
    if (--lanes_ > 0) return;
    // The other lanes have ended, so nobody else adds to it.
    whole = bytes_done_ == bytes_;
    done = std::move(done_);
    progress_ = nullptr;
  }
  if (whole) {
    done(bytes_);
  } else {
    done(failure(ErrorCode::unavailable, "the stager was destroyed"));
  }
  done = nullptr;
  const std::lock_guard lock(mutex_);
  --starts_out_;
  returned_.notify_all();
}

}  // namespace weir
