#include "adapters/cli/decoder.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

namespace weir::cli {
namespace {

constexpr std::uint64_t steps_between_comparisons = 8;
constexpr std::size_t sample_bytes = 4096;
constexpr std::size_t samples_most = 256;

}  // namespace

Decoder::Decoder(const DecoderOptions& options, const DecoderParts& parts)
    : options_(options), parts_(parts), record_(parts.board.record(options.shard)) {
  // The process before this one may have been killed while it served.
  record_.serving = 0;
}

std::span<std::byte> Decoder::live(std::uint32_t slot) const {
  return parts_.live != nullptr ? parts_.live->bytes() : parts_.slots.at(slot)->bytes();
}

void Decoder::give_up(const std::string& why) const {
  // Like an assertion: nothing that it serves from here on would be right.
  std::cerr << "weir: " << why << std::endl;  // The parent says which shard.
  std::_Exit(1);
}

// ---- generating --------------------------------------------------------------------------------

void Decoder::run() {
  std::unique_lock lock(mutex_);
  for (std::uint64_t number = 0;; ++number) {
    changed_.wait(lock, [this] { return stopping_ || generating_; });
    if (stopping_) return;
    in_step_ = true;
    if (paused_at_) {
      record_.paused.add(parts_.clock.now() - *std::exchange(paused_at_, std::nullopt));
    }
    const bool fresh = std::exchange(fresh_, false);
    const std::uint64_t version = version_;
    weights_ = live(slot_);
    parts_.meter.generates(true);
    lock.unlock();
    step(version, fresh, number);
    lock.lock();
    changed_.wait_for(lock, options_.step, [this] { return stopping_; });
    in_step_ = false;
    if (generating_) continue;
    record_.serving = 0;
    parts_.meter.generates(false);
    paused_at_ = parts_.clock.now();
    for (const HookDone& done : std::exchange(pausing_, {})) done({});
  }
}

void Decoder::step(std::uint64_t version, bool fresh, std::uint64_t number) {
  const std::uint64_t published = parts_.board.published();
  const std::uint64_t behind = published > version ? published - version : 0;
  ++record_.steps_behind[std::min<std::uint64_t>(behind, behind_most)];
  ++record_.steps;
  check_peers(version);
  if (fresh) {
    compare(version);
    remember();
  } else if (number % steps_between_comparisons == 0) {
    compare_remembered(version);
  }
}

void Decoder::check_peers(std::uint64_t version) const {
  for (const ShardRecord& peer : parts_.board.replica(Side::rollout, options_.shard.replica)) {
    const std::uint64_t serving = peer.serving;
    if (serving == 0 || serving == version) continue;
    give_up("it serves version " + std::to_string(version) + " while a peer serves version " +
            std::to_string(serving));
  }
}

void Decoder::compare(std::uint64_t version) {
  const Result<std::uint64_t> compared = parts_.memory.compare(version, weights_, parts_.workers);
  if (!compared) {
    give_up("what it serves is not version " + std::to_string(version) + ": " +
            compared.error().text);
  }
  ++record_.compared;
  record_.compared_bytes += *compared;
}

/// All of small weights, else pieces at equal distances.
void Decoder::remember() {
  const std::size_t count =
      std::clamp<std::size_t>(weights_.size() / sample_bytes, 1, samples_most);
  const std::size_t distance = weights_.size() / count;
  const std::size_t bytes = std::min(distance, sample_bytes);
  samples_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const std::byte> piece = weights_.subspan(i * distance, bytes);
    samples_[i].offset = i * distance;
    samples_[i].bytes.assign(piece.begin(), piece.end());
  }
}

void Decoder::compare_remembered(std::uint64_t version) const {
  for (const Sample& sample : samples_) {
    if (std::memcmp(weights_.data() + sample.offset, sample.bytes.data(), sample.bytes.size()) !=
        0) {
      give_up("version " + std::to_string(version) + " changed while it was served, in the " +
              std::to_string(sample.bytes.size()) + " bytes from " + std::to_string(sample.offset) +
              " on");
    }
    record_.compared_bytes += sample.bytes.size();
  }
  ++record_.compared;
}

// ---- what the exchange asks --------------------------------------------------------------------

void Decoder::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void Decoder::pause(HookDone done) {
  {
    const std::lock_guard lock(mutex_);
    generating_ = false;
    if (in_step_) {
      pausing_.push_back(std::move(done));
      return;
    }
    // It may have been resumed and paused again without a step between.
    if (record_.serving.exchange(0) != 0 && !paused_at_) paused_at_ = parts_.clock.now();
  }
  done({});
}

void Decoder::install(const HookCall& call, const HookDone& done) {
  {
    const std::lock_guard lock(mutex_);
    if (generating_ || in_step_) give_up("it was told to install while it generates");
    version_ = call.version;
    slot_ = call.slot;
    fresh_ = true;
  }
  if (parts_.live != nullptr) {
    const std::span<const std::byte> source = parts_.slots.at(call.slot)->bytes();
    std::memcpy(parts_.live->bytes().data(), source.data(), source.size());
  }
  done({});
}

void Decoder::resume(const HookCall& call, const HookDone& done) {
  {
    const std::lock_guard lock(mutex_);
    if (call.version != version_) {
      give_up("it was told to resume with version " + std::to_string(call.version) +
              ", but has installed version " + std::to_string(version_));
    }
    if (version_ < record_.newest) {
      give_up("it was told to go back from version " + std::to_string(record_.newest) +
              " to version " + std::to_string(version_));
    }
    if (version_ > record_.newest) {
      const auto begun_at = parts_.board.begun_at(version_);
      if (begun_at) record_.brought.add(parts_.clock.now() - *begun_at);
    }
    record_.newest = version_;
    record_.serving = version_;
    record_.life = options_.life;
    generating_ = true;
  }
  changed_.notify_all();
  done({});
}

}  // namespace weir::cli
