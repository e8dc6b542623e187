#pragma once
// One shard of an asynchronous demo, in a process of its own: it trains or generates at its own
// pace, whatever the others do.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/roster.hpp"
#include "adapters/cli/demo_shard.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

/// How a trainer makes versions stand while it goes on.
enum class PublishWay : std::uint8_t {
  pinned,    ///< Readers read the live weights; the optimizer step waits for them.
  snapshot,  ///< The live weights are copied to a spare slot.
  convert,   ///< They are f32, and are converted to bf16 on the way to it.
};

/// What the parent tells the process on its command line.
struct AsyncShard {
  DemoShard base;  ///< Its layout is that of what is published.
  std::chrono::milliseconds step{300};
  std::chrono::milliseconds decode{20};
  PublishWay way = PublishWay::snapshot;
  std::uint32_t slots = 2;  ///< Spare ones of a trainer that is not pinned.
  bool early = true;        ///< Whether such a one has its copies read while it makes them.
  Placement placement = Placement::second_buffer;
  std::uint64_t first_version = 1;
  std::uint64_t life = 1;  ///< So many processes were this shard, this one included.
};

inline constexpr const char* async_shard_verb = "async-shard";
std::vector<std::string> arguments_of(const AsyncShard& shard);

/// Regions that a shard keeps: of what is published or fetched, and in all.
std::uint32_t slot_count(const AsyncShard& shard) noexcept;

/// Joins the exchange of the parent process and goes on until that ends. Errors: what the member
/// or the checkpoint said. A shard that finds itself serving what it must not says so and ends its
/// process at once.
Result<void> run_async_shard(const AsyncShard& shard);

}  // namespace weir::cli
