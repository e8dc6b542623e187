#pragma once
// Members of an exchange: trainer shards and rollout shards, each usually a process of its own.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"
#include "transports/transport.hpp"

namespace weir {

/// Called once per hook call, from any thread, when the work is done. It may be called, kept or
/// destroyed at any time, also after `run_member` has returned; a second call has no effect.
using HookDone = std::function<void(Result<void>)>;

/// What a member's host program (the training or generating engine) does when the exchange asks.
/// Hooks are called on an actor's thread and must return at once: they hand long work to a
/// `Workers` of their own and call `done` from there.
struct MemberHooks {
  /// Trainer shards: make the bytes of `version` stand in the registered regions.
  std::function<void(std::uint64_t version, HookDone done)> update;
  /// Rollout shards: the bytes of `version` are in place and the replica has committed; check or
  /// use them. May be empty.
  std::function<void(std::uint64_t version, HookDone done)> verify;
};

struct MemberOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  /// With one `RegionInfo` per region; tickets are added here, from `transport`.
  Manifest manifest;
  /// In the order of the manifest's regions. They and the transport outlive the call.
  std::vector<Region*> regions;
  Transport* transport = nullptr;
  MemberHooks hooks;
  /// How long to look for the exchange: a member may be started before it.
  std::chrono::nanoseconds connect_deadline = std::chrono::seconds(10);
  /// An exchange that is stopped or cut off counts as dead after this long without a sign of life.
  std::chrono::nanoseconds silence_max = std::chrono::seconds(2);
};

/// Joins the exchange, serves it, and returns when the exchange ends (success) or the member can't
/// go on: `unavailable` when the exchange is gone, can't be reached, or ends because of an error
/// (which is told); `refused` or `invalid` when it does not let the member in; what the transport
/// said. Blocks the calling thread; when it returns, nothing is written to the regions any more.
/// Hooks that are still at work then need no answer.
Result<void> run_member(const MemberOptions& options);

}  // namespace weir
