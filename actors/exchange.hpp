#pragma once
// The exchange: one model's flow of versions, as its owner sees it. It runs the planner, the
// ledger and the replica coordinators; members join it from processes of their own.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

using Duration = std::chrono::nanoseconds;

struct ExchangeOptions {
  /// Where members reach it. There is no authentication yet: keep it on the loopback.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one; `Exchange::port` tells.
  std::uint32_t trainer_replicas = 1;
  std::uint32_t trainer_ranks = 1;  ///< Of each replica.
  std::uint32_t rollout_replicas = 1;
  std::uint32_t rollout_ranks = 1;
  Duration join_deadline = std::chrono::seconds(60);  ///< For all members to have joined.
  /// For one version, update to commit, and once more for its verification.
  Duration publish_deadline = std::chrono::seconds(300);
  /// A member that is stopped or cut off counts as dead after this long without a sign of life; one
  /// that is killed is noticed at once. Raise it where processes may get no processor for seconds.
  Duration silence_max = std::chrono::seconds(2);
};

/// How one version went.
struct VersionReport {
  std::uint64_t version = 0;
  std::uint64_t bytes_needed = 0;  ///< Target bytes of the plan, over all rollout shards.
  std::uint64_t bytes_moved = 0;   ///< Bytes that transports report as written.
  Duration update{};               ///< From the request until every trainer shard has staged it.
  Duration publish{};  ///< From READY until every replica has committed it, verification apart.
  Duration verify{};   ///< The slowest shard's `verify` hook.
};

/// One per process and model. Threading: members from one thread, not an actor's.
/// Its destruction tells the members to end.
class Exchange {
 public:
  static Result<std::unique_ptr<Exchange>> start(const ExchangeOptions& options);
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Waits until all members have joined and hold their part of the plan. Errors: the planner's,
  /// `timeout` (names those that have not joined), `unavailable` (a member died: names it).
  virtual Result<Plan> await_plan() = 0;
  /// Has the trainers make `version` (greater than the last), and waits until every rollout
  /// replica has committed and verified it. Errors: a member's, with its name; `timeout`;
  /// `unavailable` when a member died. After an error the exchange only ends.
  virtual Result<VersionReport> publish(std::uint64_t version) = 0;
  /// Makes a waiting call of another thread, or the next call, return `unavailable` with that
  /// text: a child process died before it joined, or a person pressed Ctrl-C.
  virtual void abort(const std::string& why) = 0;

 protected:
  Exchange() = default;
};

}  // namespace weir
