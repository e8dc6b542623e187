#pragma once
// The exchange: one model's flow of versions, as its owner sees it. It runs the planner, the
// ledger and the replica coordinators; members join it from processes of their own.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/duration.hpp"
#include "actors/in_flight.hpp"
#include "actors/sampling.hpp"
#include "runtime/buggify.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What a replica does with a version that is announced while it fetches an older one.
enum class Follow : std::uint8_t {
  finish,  ///< Goes on with the older one, then takes the newest.
  jump,    ///< Abandons the older one.
};

/// What a trainer that wants to write gets while there is no slot that nobody reads.
enum class WhenFull : std::uint8_t { wait, refuse };

struct ExchangeOptions {
  /// Where members reach it. There is no authentication yet: keep it on the loopback.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one; `Exchange::port` tells.
  std::uint32_t trainer_replicas = 1;
  std::uint32_t trainer_ranks = 1;  ///< Of each replica.
  std::uint32_t rollout_replicas = 1;
  std::uint32_t rollout_ranks = 1;
  /// So many replicas are waited for; the others may come at any time. 0: all.
  std::uint32_t rollout_replicas_min = 0;
  Duration join_deadline = std::chrono::seconds(60);  ///< For all that are waited for.
  /// For `publish`: update to commit, and once more for its verification.
  Duration publish_deadline = std::chrono::seconds(300);
  Duration lease_deadline = std::chrono::seconds(120);  ///< For one replica to fetch a version.
  Duration pause_deadline = std::chrono::seconds(60);   ///< For one hook; draining counts.
  Duration install_deadline = std::chrono::seconds(60);
  Duration resume_deadline = std::chrono::seconds(30);
  Duration retry_delay = std::chrono::milliseconds(500);  ///< After a failed attempt; then doubled.
  Follow follow = Follow::finish;
  InFlight in_flight = InFlight::keep;
  WhenFull when_full = WhenFull::wait;
  /// At most so many versions are kept, whatever the trainers' slots would hold. 0: no limit.
  std::uint32_t versions_max = 0;
  /// A member that is stopped or cut off counts as dead after this long without a sign of life; one
  /// that is killed is noticed at once. Raise it where processes may get no processor for seconds.
  Duration silence_max = std::chrono::seconds(2);
  SamplingOptions sampling = {};  ///< For owners that use `Exchange::sampling`.
  Buggify buggify = {};           ///< For simulations only.
};

/// How one version went, after `publish`.
struct VersionReport {
  std::uint64_t version = 0;
  std::uint64_t bytes_needed = 0;  ///< Target bytes of the plan, over all rollout shards.
  std::uint64_t bytes_moved = 0;   ///< Bytes that transports report as written.
  Duration update{};               ///< From the request until every trainer shard has staged it.
  Duration publish{};  ///< From READY until every replica has committed it, verification apart.
  Duration verify{};   ///< The slowest shard's `verify` hook.
};

/// One replica as it is now.
struct ReplicaStatus {
  bool in_service = false;
  std::uint64_t version = 0;  ///< Served, or last served.
  std::uint64_t commits = 0;
  std::uint64_t bytes_moved = 0;
  Duration paused{};    ///< Over all commits: from the first shard's pause to the last's resume.
  Duration fetched{};   ///< Over all commits: from lease to confirmation.
  std::string trouble;  ///< Why it last went out of service; empty while it never did.
};

/// The exchange as it is now. Counts are over its life.
struct ExchangeStatus {
  std::uint64_t ready = 0;       ///< The newest version that is READY; 0 for none.
  std::uint64_t published = 0;   ///< Versions that became READY.
  std::uint64_t superseded = 0;  ///< Announcements that a newer one evicted, over all replicas.
  std::uint64_t revoked = 0;     ///< Leases that were taken away.
  std::uint64_t restarts = 0;    ///< Of the exchange's own actors.
  std::vector<ReplicaStatus> replicas;
  SamplingStatus sampling;  ///< What became of all samples, and how stale the delivered ones were.
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
  /// Waits until all members that are waited for have joined and hold their part of the plan.
  /// Errors: the planner's, `timeout` (names those that have not joined).
  virtual Result<Plan> await_plan() = 0;
  /// Has the trainers' `update` hooks make `version` (greater than the last), and waits until every
  /// replica has committed and verified it. Errors: a member's, with its name; `timeout`;
  /// `unavailable` when a member died. The exchange goes on after each of them.
  virtual Result<VersionReport> publish(std::uint64_t version) = 0;
  virtual Result<ExchangeStatus> status() = 0;
  /// Its members may be called from any thread, also while another call waits.
  virtual Sampling& sampling() noexcept = 0;
  /// Ends the exchange: a waiting call of another thread, and every later one, returns
  /// `unavailable` with that text: a person pressed Ctrl-C.
  virtual void abort(const std::string& why) = 0;

 protected:
  Exchange() = default;
};

}  // namespace weir
