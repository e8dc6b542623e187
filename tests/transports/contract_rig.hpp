#pragma once
// What the contract's checks share: peers, a target, random plans and what they should give.

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "runtime/plan.hpp"
#include "runtime/region.hpp"
#include "tests/runtime/naive_copy.hpp"
#include "tests/transports/peer_process.hpp"
#include "tests/transports/transport_contract.hpp"

namespace weir {

inline constexpr std::uint64_t rig_source_bytes = (std::uint64_t{1} << 20) + 4321;
inline constexpr std::byte untouched{0xa5};

/// Runs one start to its end; a hang is a failure.
Result<FetchReport> run(Fetch& fetch);
/// The outcome of a start that was given `promise.set_value`.
Result<FetchReport> outcome(std::promise<Result<FetchReport>>& promise);

/// By memcmp: under a sanitizer, far faster than comparing element by element.
bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b);

/// Two peers in processes of their own, our end of the transport, and one target region.
class ContractRig {
 public:
  explicit ContractRig(const TransportSubject& subject, std::uint64_t target_bytes = 3 << 20);

  /// A request for these copies, which read from source 0 or 1 and write to target 0.
  Result<std::unique_ptr<Fetch>> prepare(const std::vector<Copy>& copies) const;
  /// Random copies, each into bytes of its own.
  std::vector<Copy> draw_plan(std::mt19937_64& random, std::size_t copies) const;
  /// What the target should hold after these copies from peers filled with that round.
  Bytes expected(const std::vector<Copy>& copies, std::uint64_t round) const;
  /// Makes every byte of the target `untouched`.
  void wipe();

  std::vector<std::unique_ptr<PeerUnderTest>> peers;
  std::vector<PlanSource> sources;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Region> target;
};

/// Every byte of source 0 to the start of the target, as one copy.
Copy whole_copy();

}  // namespace weir
