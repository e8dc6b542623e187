#pragma once
// Samples between the rollout replicas and the trainer, as the exchange's owner sees them: how far
// generation may run ahead, which replica runs what, and what the trainer gets.

#include <cstdint>
#include <vector>

#include "actors/admission_policy.hpp"
#include "actors/admission_sample.hpp"
#include "actors/admission_state.hpp"
#include "actors/duration.hpp"
#include "runtime/result.hpp"

namespace weir {

struct SamplingOptions {
  /// The rule of admission (`parse_policy` reads its text form). The default paces generation by
  /// the versions; its `batch` has to be what the trainer takes for one version.
  PolicyOptions policy = ArealOptions{.eta = 2, .batch = 64, .max_concurrent = 64};
  /// No sample is handed over whose oldest token, or stamp, is further behind.
  std::uint64_t staleness_max = 8;
  std::uint64_t queue_max = 1024;    ///< Finished samples that wait for the trainer.
  std::uint64_t waiting_max = 1024;  ///< Requests that wait for admission.
  std::uint32_t retries_max = 1;     ///< Losses of its replica that a sample survives.
};

/// A replica is to run a sample.
struct Assignment {
  Attempt attempt;            ///< Names it in everything that is said of it.
  std::uint32_t replica = 0;  ///< The rollout replica.
  std::uint64_t version = 0;  ///< That it served when it was chosen: the sample's stamp.
  std::uint64_t tokens = 0;   ///< Counted so far: go on after those. 0: begin anew.

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

struct SamplingStatus {
  AdmissionCounts counts;
  /// How many samples were handed over that were so many versions behind; the last of
  /// `staleness_buckets_max` is for all beyond.
  std::vector<std::uint64_t> staleness;

  friend bool operator==(const SamplingStatus&, const SamplingStatus&) = default;
};
inline constexpr std::size_t staleness_buckets_max = 64;

/// What becomes of every sample of one exchange; `ExchangeStatus::sampling` has the counts. The
/// owner asks for one (`admit`), has the named replica generate it, says what was generated
/// (`extend`) and that it is done (`finish`); the trainer's side takes batches. Each admitted
/// sample is delivered, rejected or expired, once, and counted. A sample is stamped with the
/// version that its replica serves when it is chosen, and its tokens with the versions that its
/// engine says; both count for its staleness.
///
/// An attempt can end before its sample does: its replica died or is out of service, or switched in
/// a way that aborts (`ExchangeOptions::in_flight`). The owner learns it from its engine, or from
/// `not_found` to `extend` or `finish`; it then ends the attempt at the engine and asks for the
/// `next` one. With `InFlight::drain` engines drain in their pause hook, and no sample is assigned
/// to a replica from the moment when its pause is ordered until it serves again.
///
/// A version's number has to be the number of batches trained into it; the first that becomes READY
/// is where the count begins. Nothing is admitted before it. A trainer that was started anew has to
/// publish before it asks for a batch: the newest version may have gone with it, and then no
/// replica may be fresh enough to generate one. Threading: members from any thread, but not an
/// actor's; each blocks until it is answered. Lifetime: the exchange's. A call that waits ends with
/// the exchange, as `unavailable`; so it does when the admission actor fails, which forgets who
/// waits but no sample. Whoever had waited in `admit` then asks anew: the sample that was meant for
/// it, if any, expires by its deadline.
class Sampling {
 public:
  virtual ~Sampling() = default;
  Sampling(const Sampling&) = delete;
  Sampling& operator=(const Sampling&) = delete;

  /// Waits until the policy admits one more sample and a replica is there to run it: in service,
  /// not about to pause, not too far behind, and of those the least loaded. The sample has to be
  /// finished, too, within `deadline`. Errors: `refused` (too many wait already), `timeout`,
  /// `unavailable` (its replica was lost too often).
  virtual Result<Assignment> admit(Duration deadline, std::uint64_t prompt_tokens) = 0;
  /// The attempt `over` is over at its engine; waits for the one that takes its place. One that
  /// ended without the exchange's doing counts as a loss of its replica. Errors: `not_found` (the
  /// sample has ended, or is finished), `refused` (somebody else waits for it), `timeout` (the
  /// sample may live on, or have expired: ask again and `not_found` tells), `unavailable` (no retry
  /// was left).
  virtual Result<Assignment> next(const Attempt& over, Duration deadline) = 0;
  /// Tokens that the engine has generated with `generated.version`. They may be told late, after
  /// the replica has switched. Errors: `not_found` (the attempt has ended), `invalid` (a version
  /// that is not published).
  virtual Result<void> extend(const Attempt& attempt, const Span& generated) = 0;
  /// The sample is whole. Waits while the queue is full, for `deadline` at most. False: it was too
  /// old, and is rejected. Errors: `not_found` (the attempt has ended), `refused` (it is being
  /// finished already), `timeout` (it may be asked again).
  virtual Result<bool> finish(const Attempt& attempt, Duration deadline) = 0;
  /// Gives the sample up, wherever it is. Errors: `not_found` (it has ended).
  virtual Result<void> reject(SampleId sample) = 0;
  /// The samples of the next training step: waits until so many may be handed over. Errors:
  /// `invalid` (more than can ever be complete), `refused` (somebody else waits), `timeout`.
  virtual Result<std::vector<Delivered>> take_batch(std::uint64_t count, Duration deadline) = 0;
  /// The steps that are left publish nothing: nobody waits for a version any more. A replica that
  /// comes to a later version all the same gets no more samples.
  virtual Result<void> no_more_versions() = 0;

 protected:
  Sampling() = default;
};

}  // namespace weir
