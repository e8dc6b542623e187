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

Conversion snapshot_of(const std::vector<Region*>& live) {
  Conversion snapshot;
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
    snapshot.copies.push_back(copy);
  }
  return snapshot;
}

Stager::Stager(Conversion conversion, std::vector<Region*> live, std::vector<Region*> slots,
               std::uint32_t slot_count, Workers& workers)
    : conversion_(std::move(conversion)),
      live_(std::move(live)),
      slots_(std::move(slots)),
      slot_count_(slot_count),
      workers_(workers),
      checked_(check_all()) {
  if (checked_) cut();
}

Stager::~Stager() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  returned_.wait(lock, [this] { return starts_out_ == 0; });
}

Result<void> Stager::check_all() const {
  if (slot_count_ == 0 || slots_.size() % slot_count_ != 0) {
    return failure(ErrorCode::invalid, std::to_string(slots_.size()) + " regions don't make up " +
                                           std::to_string(slot_count_) + " slots");
  }
  for (std::size_t i = regions_in_slot(); i < slots_.size(); ++i) {
    if (slots_[i]->bytes().size() != slots_[i - regions_in_slot()]->bytes().size()) {
      return failure(ErrorCode::invalid, "slots differ in size: make them equal");
    }
  }
  for (const Copy& copy : conversion_.copies) {
    if (copy.source_region >= live_.size() || copy.target_region >= regions_in_slot()) {
      return failure(ErrorCode::invalid, "a copy names a region that is not there");
    }
    auto within = check_bounds(copy, live_[copy.source_region]->bytes().size(),
                               slots_[copy.target_region]->bytes().size());
    if (!within) return within;
  }
  const auto first_slot = std::span<Region* const>(slots_).first(regions_in_slot());
  for (const Recoding& recoding : conversion_.recodings) {
    if (auto within = check_bounds(recoding, live_, first_slot); !within) return within;
  }
  return {};
}

void Stager::cut() {
  std::vector<std::uint64_t> region_begins;
  for (std::size_t i = 0; i < regions_in_slot(); ++i) {
    region_begins.push_back(slot_bytes_);
    slot_bytes_ += slots_[i]->bytes().size();
  }
  // Strides are positive, so that no byte of a copy or piece lies before its first one.
  for (const Copy& copy : conversion_.copies) {
    for (const Copy& part : split(copy, share_bytes)) {
      parts_.push_back(
          {part, region_begins[part.target_region] + part.target_offset, target_bytes(part)});
    }
  }
  for (std::size_t i = 0; i < conversion_.recodings.size(); ++i) cut_blocks(i, region_begins);
  std::stable_sort(parts_.begin(), parts_.end(),
                   [](const Part& a, const Part& b) { return a.begin < b.begin; });
  std::uint64_t share = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (share == 0) shares_.push_back({0, parts_[i].begin});
    bytes_ += parts_[i].bytes;
    share += parts_[i].bytes;
    shares_.back().end = i + 1;
    if (share >= share_bytes) share = 0;
  }
}

void Stager::cut_blocks(std::size_t number, const std::vector<std::uint64_t>& region_begins) {
  const Recoding& recoding = conversion_.recodings[number];
  // All parts begin where the first of them does: codes are in the order of blocks, scales are not.
  std::uint64_t begin = slot_bytes_;
  for (const auto* pieces : {&recoding.target, &recoding.scales}) {
    if (pieces == &recoding.scales && !recoding.encodes) continue;
    for (const Piece& piece : *pieces) {
      begin = std::min(begin, region_begins[piece.region] + piece.offset);
    }
  }
  const std::size_t blocks = recoding.blocks.size();
  std::uint64_t left = target_bytes(recoding);
  const std::size_t step = blocks / std::min(blocks, left / share_bytes + 1);
  // Blocks at an edge are smaller: what parts are said to write is right in all, not for each.
  const std::uint64_t bytes = left / blocks * step;
  for (std::size_t first = 0; first < blocks; first += step) {
    const std::size_t end = std::min(first + step, blocks);
    parts_.push_back({Blocks{number, first, end}, begin, end == blocks ? left : bytes});
    left -= bytes;
  }
}

void Stager::carry_out(const Part& part, std::span<Region* const> targets) const noexcept {
  if (const auto* blocks = std::get_if<Blocks>(&part.work)) {
    recode(conversion_.recodings[blocks->recoding], blocks->begin, blocks->end, live_, targets);
    return;
  }
  const Copy& copy = std::get<Copy>(part.work);
  copy_strided(copy, live_[copy.source_region]->bytes(), targets[copy.target_region]->bytes());
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
  std::size_t lanes = std::clamp<std::size_t>(shares_.size(), 1, workers_.thread_count());
  lanes_ = lanes;
  ++starts_out_;
  next_share_ = 0;
  bytes_done_ = 0;
  shares_done_.assign(shares_.size(), false);
  first_undone_ = 0;
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
      if (ending_ || next_share_ == shares_.size()) break;
      share = next_share_++;
    }
    std::uint64_t bytes = 0;
    for (std::size_t i = share == 0 ? 0 : shares_[share - 1].end; i < shares_[share].end; ++i) {
      carry_out(parts_[i], targets);
      bytes += parts_[i].bytes;
    }
    const std::lock_guard lock(progress_mutex_);
    bytes_done_ += bytes;
    shares_done_[share] = true;
    if (share != first_undone_) continue;
    while (first_undone_ < shares_.size() && shares_done_[first_undone_]) ++first_undone_;
    const bool all = first_undone_ == shares_.size();
    if (progress_) progress_(all ? slot_bytes_ : shares_[first_undone_].begin);
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
