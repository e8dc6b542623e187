#pragma once
// The seam between those who decide what moves and the means by which bytes move.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/region.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What one finished fetch moved.
struct FetchReport {
  std::uint64_t bytes = 0;   ///< Written into target regions; each target byte counted once.
  std::uint64_t copies = 0;  ///< Planned copies, not the parts they were cut into.
};

/// Called exactly once per started fetch, from any thread of the transport, when every target byte
/// is in place or the fetch has failed or was cancelled (`unavailable`). After a failure the target
/// bytes are undefined. It must not block, and must not destroy the fetch.
using FetchDone = std::function<void(Result<FetchReport>)>;

/// What a fetch reads from and writes to. Spans are read during `prepare` only; the target regions
/// must outlive the fetch.
struct FetchRequest {
  /// One plan part. Offsets are checked against the regions' sizes.
  std::span<const Copy> copies;
  /// `sources[c.source].regions[c.source_region]` describes the region that copy c reads, as its
  /// owner's manifest states it. A peer's word: checked, never trusted.
  std::span<const PlanSource> sources;
  /// `targets[c.target_region]` is where copy c writes.
  std::span<Region* const> targets;
};

/// A plan part bound to memory on both sides: prepared once, started once per version.
/// Threading: `start` and `cancel` from one thread at a time. The destructor cancels and waits, so
/// that no byte is written to a target after it returns.
class Fetch {
 public:
  virtual ~Fetch() = default;
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  /// Moves all bytes anew. Only one start may be outstanding: `done` of the last one first.
  virtual void start(FetchDone done) = 0;
  /// Ends an outstanding start early; its `done` is still called (with `unavailable`, or with
  /// success if it was complete). Does not wait. No effect when nothing is outstanding.
  virtual void cancel() noexcept = 0;

 protected:
  Fetch() = default;
};

/// One means of moving bytes. Made once per process; outlives its fetches.
/// Threading: all members from any thread.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// The name under which tickets are kept in `RegionInfo`: "shm".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Whether fetches can read from a peer's region of that kind, and write to one of ours.
  [[nodiscard]] virtual bool reads(RegionKind source) const noexcept = 0;
  [[nodiscard]] virtual bool writes(RegionKind target) const noexcept = 0;

  /// Makes a region of this process readable by peers until the transport is destroyed or
  /// `withdraw` is called, and returns the ticket by which they reach it. The region must outlive
  /// that. Errors: `refused` for a kind it does not read, `io`.
  virtual Result<RegionInfo::Ticket> expose(const Region& region) = 0;
  /// Ends `expose`. Waits for peers' reads that go through this process; peers that read on their
  /// own are kept away by leases. No effect for a region that was not exposed.
  virtual void withdraw(const Region& region) noexcept = 0;

  /// Resolves the tickets and checks every copy. Errors: `invalid` (a copy outside its regions, a
  /// malformed ticket), `unavailable` (the peer is gone), `refused` (the kernel's policy forbids
  /// it and there is no other way: says how to allow it).
  virtual Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) = 0;

 protected:
  Transport() = default;
};

}  // namespace weir
