#pragma once
// Members of an exchange: trainer shards and rollout shards, each usually a process of its own.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/in_flight.hpp"
#include "actors/roster.hpp"
#include "runtime/manifest.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"
#include "transports/transport.hpp"

namespace weir {

/// Called once per hook call, from any thread, when the work is done. It may be called, kept or
/// destroyed at any time, also after the member has ended; a second call has no effect.
using HookDone = std::function<void(Result<void>)>;

/// What a hook is asked to do it with.
struct HookCall {
  std::uint64_t version = 0;
  std::uint32_t slot = 0;               ///< `update` and `install`: where the version's bytes lie.
  InFlight in_flight = InFlight::keep;  ///< `pause`: what becomes of running generations.
};

/// What a member's host program (the training or generating engine) does when the exchange asks.
/// Hooks are called on an actor's thread and must return at once: they hand long work to a
/// `Workers` of their own and call `done` from there. An empty one is done at once. One that misses
/// its deadline costs the member its seat: the exchange goes on without it.
struct MemberHooks {
  using Hook = std::function<void(const HookCall& call, HookDone done)>;

  /// Trainer shards, for `Exchange::publish`: make the bytes of the version stand in the slot.
  Hook update;
  /// Rollout shards: stop generating at the next step boundary. Pausing twice is no error.
  Hook pause;
  /// Rollout shards, while paused: make the version in that slot the live one. After a failed
  /// `install` another one may ask for the version before it, in the slot where it still lies.
  Hook install;
  /// Rollout shards: generate with the version. Resuming twice is no error.
  Hook resume;
  /// Rollout shards: check the bytes of the version that is served. For demonstrations and tests.
  Hook verify;
};

struct MemberOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  /// With one `RegionInfo` per region; tickets are added here, from `transport`.
  Manifest manifest;
  /// In the order of the manifest's regions, slot by slot. They and the transport outlive the
  /// member.
  std::vector<Region*> regions;
  Transport* transport = nullptr;
  MemberHooks hooks;
  Placement placement = Placement::in_place;  ///< Rollout shards.
  /// Rollout shards: a fetch has no more bytes than this under way at once.
  std::uint64_t window_bytes_max = std::uint64_t{256} << 20;
  /// How long to look for the exchange: a member may be started before it.
  std::chrono::nanoseconds connect_deadline = std::chrono::seconds(10);
  /// How long to look for an exchange that was lost, while a rollout shard serves on.
  std::chrono::nanoseconds reconnect_deadline = std::chrono::seconds(60);
  /// An exchange that is stopped or cut off counts as dead after this long without a sign of life.
  std::chrono::nanoseconds silence_max = std::chrono::seconds(2);
};

/// A member in its host program's process. Threading: all members from any thread, at most one
/// call of `begin_update` or `publish` at a time.
class Member {
 public:
  /// Starts to join; waits for nothing. Errors: `invalid` options; what the transport said.
  static Result<std::unique_ptr<Member>> start(const MemberOptions& options);
  /// Leaves the exchange. When it returns, nothing is written to the regions any more.
  virtual ~Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  /// Trainer shards, before any byte of `version` (greater than all before) is written to a slot:
  /// waits until nobody reads what it will replace, and returns the slot. After `deadline` readers
  /// that still read lose their lease. All shards of a trainer replica get the same slot. Pinned
  /// weights (one slot) are what the optimizer step then writes; with more slots nobody waits as
  /// long as there is room. Errors: `invalid` (a version that does not rise), `refused` (no room,
  /// and the exchange's policy is to refuse), `unavailable` (the member has ended), `timeout` (no
  /// exchange within `deadline`).
  virtual Result<std::uint32_t> begin_update(std::uint64_t version,
                                             std::chrono::nanoseconds deadline) = 0;
  /// Trainer shards, between `begin_update` and `publish` of `version`, or while their hook updates
  /// to it: the first `bytes` bytes of the slot, its regions one after another, stand, and rollout
  /// shards with memory to spare may read them; as `Stager`'s progress. Whoever begins that version
  /// anew calls `begin_update` again before it changes any of them. Told on in steps of a sixteenth
  /// of the slot. Waits for nothing, and has no effect for a version that is not being written.
  /// Threading: any thread, one call of this and of `begin_update` at a time.
  virtual void standing(std::uint64_t version, std::uint64_t bytes) = 0;
  /// Trainer shards: the bytes of `version` stand in its slot, and stay until `begin_update` of
  /// another returns. Errors: `refused` (not begun), `unavailable`, `timeout`.
  virtual Result<void> publish(std::uint64_t version) = 0;

  /// Waits until the exchange ends (success) or the member can't go on: `unavailable` when the
  /// exchange is gone, can't be reached, or ends because of an error (which is told); `refused` or
  /// `invalid` when it does not let the member in; what the transport said.
  virtual Result<void> await_end() = 0;

 protected:
  Member() = default;
};

/// `Member::start`, then `await_end`. When it returns, nothing is written to the regions any more.
/// Hooks that are still at work then need no answer.
Result<void> run_member(const MemberOptions& options);

}  // namespace weir
