#pragma once
// A stand-in for an engine that generates: steps of a given time on live weights, which it checks.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/member.hpp"
#include "adapters/cli/async_board.hpp"
#include "adapters/cli/fetch_meter.hpp"
#include "adapters/cli/shard_memory.hpp"
#include "runtime/clock.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {

struct DecoderOptions {
  ShardId shard;
  Placement placement = Placement::second_buffer;
  std::chrono::nanoseconds step{};
  std::uint64_t life = 1;
};

/// All of them outlive the decoder.
struct DecoderParts {
  const ShardMemory& memory;
  std::vector<Region*> slots;
  Region* live = nullptr;  ///< With `Placement::staging`, else null.
  AsyncBoard& board;
  FetchMeter& meter;
  const Clock& clock;
  Workers& workers;  ///< For comparisons.
};

/// Generates from `resume` until `pause`, which takes effect at the end of the running step. After
/// each installation the first step compares every byte of the live weights with the reference;
/// later ones whether they are still the same. In every step it checks that no peer of its replica
/// serves another version, and at every `resume` that versions do not go back, whichever process
/// served the last one. What must not be ends the process.
/// Threading: `run` from one thread, the others from any.
class Decoder {
 public:
  Decoder(const DecoderOptions& options, const DecoderParts& parts);

  /// The loop; returns after `stop`.
  void run();
  void stop();

  void pause(HookDone done);
  /// With `Placement::staging` this copies, and so is not for an actor's thread.
  void install(const HookCall& call, const HookDone& done);
  void resume(const HookCall& call, const HookDone& done);

 private:
  void step(std::uint64_t version, bool fresh, std::uint64_t number);
  void compare(std::uint64_t version);
  void remember();
  void compare_remembered(std::uint64_t version) const;
  void check_peers(std::uint64_t version) const;
  [[noreturn]] void give_up(const std::string& why) const;
  [[nodiscard]] std::span<std::byte> live(std::uint32_t slot) const;

  /// A piece of the live weights as it was when all of them agreed with the reference.
  struct Sample {
    std::size_t offset = 0;
    std::vector<std::byte> bytes;
  };

  const DecoderOptions options_;
  const DecoderParts parts_;
  ShardRecord& record_;
  std::vector<Sample> samples_;   ///< The loop's own.
  std::span<std::byte> weights_;  ///< Those that a running step reads; the loop's own.

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  bool stopping_ = false;
  bool generating_ = false;
  bool in_step_ = false;
  bool fresh_ = false;         ///< Nobody has compared the live weights yet.
  std::uint64_t version_ = 0;  ///< Installed; 0 for none.
  std::uint32_t slot_ = 0;
  std::vector<HookDone> pausing_;
  std::optional<std::chrono::nanoseconds> paused_at_;
};

}  // namespace weir::cli
