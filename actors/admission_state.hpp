#pragma once
// The accounting of samples between the rollout replicas and the trainer: each that is admitted
// ends exactly once, and none that is too stale is handed over.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/admission_policy.hpp"
#include "actors/admission_sample.hpp"
#include "actors/in_flight.hpp"
#include "runtime/result.hpp"

namespace weir {

struct AdmissionOptions {
  /// Published before this run began: 0, or what was recovered. It counts as published, and as many
  /// batches as handed over, so that nobody waits for it to be published again.
  std::uint64_t recovered_version = 0;
  /// The newest published version less the oldest one that generated a part of the sample. A
  /// policy may set a lower bound, never a higher one. 8 is what verl V1 and prime-rl use.
  std::uint64_t staleness_max = 8;
  std::uint64_t queue_max = 1024;    ///< Finished samples that wait for the trainer.
  std::uint64_t waiting_max = 1024;  ///< Requests that wait for admission.
  std::uint32_t retries_max = 1;     ///< Deaths of its replica that a sample survives.
};

struct SampleRequest {
  Duration deadline{};  ///< To be admitted and finished, since a fixed moment of the owner's.
  std::uint64_t prompt_tokens = 0;
};

/// Every admitted sample is in exactly one of these, whatever has happened:
/// admitted == delivered + rejected() + expired() + running().
struct AdmissionCounts {
  std::uint64_t admitted = 0;
  std::uint64_t delivered = 0;
  std::uint64_t rejected_stale = 0;  ///< Beyond the staleness bound.
  std::uint64_t rejected_by_producer = 0;
  std::uint64_t rejected_by_policy = 0;  ///< Evicted or aborted by the policy's verdict.
  std::uint64_t rejected_for_room = 0;   ///< The oldest of a full queue.
  std::uint64_t expired_deadline = 0;
  std::uint64_t expired_replica = 0;  ///< Its replica died, and no retry was left.
  std::uint64_t undispatched = 0;
  std::uint64_t generating = 0;
  std::uint64_t finished = 0;  ///< Not handed over yet.

  std::uint64_t waiting = 0;            ///< Requests: not admitted yet.
  std::uint64_t lapsed = 0;             ///< Requests whose deadline passed before admission.
  std::uint64_t withdrawn = 0;          ///< Requests taken back before admission.
  std::uint64_t delivered_too_old = 0;  ///< Delivered though the policy aims at fresher ones.
  std::uint64_t requeued = 0;
  std::uint64_t repeated_prefill_tokens = 0;
  std::uint64_t discarded_tokens = 0;  ///< Generated, and lost with a requeue.

  [[nodiscard]] std::uint64_t rejected() const noexcept;
  [[nodiscard]] std::uint64_t expired() const noexcept;
  /// Finished ones included.
  [[nodiscard]] std::uint64_t running() const noexcept;

  friend bool operator==(const AdmissionCounts&, const AdmissionCounts&) = default;
};

/// `admitted` false: it waits, and `admit_waiting` will name it.
struct Requested {
  SampleId sample = 0;
  bool admitted = false;
};

struct Dispatched {
  Attempt attempt;
  std::uint64_t version = 0;  ///< The stamp of what is generated from now on.
};

/// `kept` false: it was too old for the bound or the policy, and is rejected.
struct Finished {
  bool kept = true;
  std::optional<SampleId> dropped;  ///< Rejected to make room.
};

/// Samples that ended as rejected because a version or a batch moved on.
struct Swept {
  std::vector<SampleId> rejected;
  std::vector<Attempt> aborted;  ///< Of those, the ones that a replica has to be told of.
};

struct Delivered {
  SampleId sample = 0;
  std::vector<Span> spans;
  std::uint64_t staleness = 0;
};

struct Batch {
  std::vector<Delivered> samples;
  Swept swept;  ///< Others that ended with the hand-over.
};

struct Switched {
  bool done = true;                     ///< False: it drains, and has to be asked again.
  std::vector<Attempt> must_end_first;  ///< While it drains.
  std::vector<Attempt> aborted;         ///< Attempts that ended with the switch.
  std::vector<Attempt> resumed;         ///< The ones that take their place.
  std::vector<SampleId> requeued;       ///< To be dispatched again.
};

struct Lost {
  std::vector<SampleId> requeued;  ///< To be dispatched again.
  std::vector<SampleId> expired;
};

struct Expired {
  std::vector<SampleId> samples;
  std::vector<Attempt> aborted;   ///< Of those, the ones that a replica has to be told of.
  std::vector<SampleId> waiting;  ///< Requests that were never admitted.
};

/// Admits samples as its policy allows, stamps them with the version of the replica that runs them
/// when they are dispatched and when the replica switches, never when they come back, and hands
/// them over in batches. After whatever makes room (a batch, a version, any end of a sample), call
/// `admit_waiting`. A value without clock or messages; can be moved. Every error leaves it as it
/// was. Threading: one thread at a time. Order decides everything: no call depends on hashes.
class AdmissionState {
 public:
  /// One that has joined.
  struct Replica {
    std::uint64_t version = 0;
    bool draining = false;
    std::set<SampleId> running;
  };

  /// Errors (`invalid`): a queue too small for the policy.
  static Result<AdmissionState> create(std::unique_ptr<AdmissionPolicy> policy,
                                       const AdmissionOptions& options);

  /// Admits now if there is capacity and nobody waits. Errors (`refused`): too many wait.
  Result<Requested> request(const SampleRequest& request);
  /// Takes back a request that waits. Errors: `not_found`.
  Result<void> withdraw(SampleId waiting);
  /// Those that are admitted by now, in the order they asked.
  std::vector<SampleId> admit_waiting();

  /// Errors: `refused` (joined already), `invalid` (serves a version that is not published).
  Result<void> replica_joins(std::uint32_t replica, std::uint64_t version);
  /// Its samples are requeued while they have retries left. Errors: `not_found`.
  Result<Lost> replica_dies(std::uint32_t replica);
  /// Count the tokens of the old version with `extend` before. Asked again while it drains, also
  /// for another version or in another way. Errors: `not_found` (no such replica), `invalid` (not
  /// published, or not greater than what it serves).
  Result<Switched> replica_switches(std::uint32_t replica, std::uint64_t to_version, InFlight how);
  /// It was paused, and goes on with the version that it had. Errors: `not_found`.
  Result<Switched> replica_resumes(std::uint32_t replica, InFlight how);

  /// Errors: `not_found` (no such sample or replica), `refused` (a replica runs it or ran it to the
  /// end; the replica drains, or serves a version beyond the staleness bound).
  Result<Dispatched> dispatch(SampleId sample, std::uint32_t replica);
  /// Counts tokens to the version that the replica serves now. Errors: `not_found` (the attempt
  /// ended).
  Result<void> extend(const Attempt& attempt, std::uint64_t tokens);
  /// The same for tokens that say which version generated them: they may come late, when the
  /// replica has switched since. Errors: `not_found`, `invalid` (that version is not published).
  Result<void> extend(const Attempt& attempt, const Span& generated);
  /// Its replica lives and will not finish it: as a death of the replica under this sample alone.
  /// Errors: `not_found` (the attempt ended).
  Result<Lost> attempt_fails(const Attempt& attempt);
  /// Errors: `not_found` (the attempt ended), `refused` (the queue is full: hold the sample, and
  /// say so again after the next batch).
  Result<Finished> finish(const Attempt& attempt);
  /// The producer gives it up; it may be anywhere between admission and its end. Errors:
  /// `not_found`.
  Result<void> reject(SampleId sample);
  /// Ends whatever had to be finished at `now` or before, and is not.
  Expired expire(Duration now);
  /// The next moment at which `expire` has something to do.
  [[nodiscard]] std::optional<Duration> next_deadline() const;

  /// A version's number is the number of batches trained into it: most policies measure the one
  /// against the other. Errors (`invalid`): not greater than the last one, or after
  /// `no_more_versions`.
  Result<Swept> publish(std::uint64_t version);
  /// The last steps publish nothing: from now on nothing waits for a version.
  void no_more_versions();
  /// Hands over a step's samples, all or none. Errors: `invalid` (none, or more than can ever be
  /// complete), `refused` (too few may be handed over now: ask again when one has finished or a
  /// version is published).
  Result<Batch> take_batch(std::uint64_t count);

  [[nodiscard]] const AdmissionCounts& counts() const noexcept { return counts_; }
  /// How many more samples the policy would admit now, over all replicas.
  [[nodiscard]] std::uint64_t capacity() const { return policy_->capacity(view()); }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::uint64_t staleness_max() const noexcept { return options_.staleness_max; }
  /// Admitted or requeued, and run by no replica.
  [[nodiscard]] const std::set<SampleId>& undispatched() const noexcept { return undispatched_; }
  [[nodiscard]] const std::map<std::uint32_t, Replica>& replicas() const noexcept {
    return replicas_;
  }
  /// All that are admitted and have not ended.
  [[nodiscard]] const Samples& samples() const noexcept { return samples_; }

 private:
  using Waiting = std::map<SampleId, SampleRequest>;
  /// The part of the counts that an end belongs to.
  using End = std::uint64_t AdmissionCounts::*;

  AdmissionState(std::unique_ptr<AdmissionPolicy> policy, const AdmissionOptions& options);

  [[nodiscard]] AdmissionView view() const;
  [[nodiscard]] std::uint64_t staleness(const Sample& sample) const noexcept;
  void admit(SampleId id, const SampleRequest& request);
  /// The sample of an attempt that a replica runs, or why there is none.
  Result<Sample*> generating(const Attempt& attempt);
  void end(SampleId id, End how);
  Swept sweep();
  /// The attempt ends, and the sample may be dispatched again.
  void requeue(SampleId id);
  /// Requeues it while it has retries left.
  void lose(SampleId id, Lost& lost);
  void switch_sample(SampleId id, std::uint64_t to_version, InFlight how, Switched& switched);
  /// Brings the present numbers up to date and holds the invariant against them.
  void settle();

  std::unique_ptr<AdmissionPolicy> policy_;
  AdmissionOptions options_;  ///< With the policy's limits worked in.
  std::uint64_t version_;
  std::uint64_t batches_;
  std::uint64_t delivered_since_version_ = 0;
  bool more_versions_ = true;
  SampleId next_id_ = 1;
  AdmissionCounts counts_;
  Waiting waiting_;
  Samples samples_;
  std::set<SampleId> undispatched_;  ///< These three and `running` of the replicas part `samples_`.
  std::vector<SampleId> finished_;   ///< In the order they finished.
  std::map<std::uint32_t, Replica> replicas_;
  std::set<std::pair<Duration, SampleId>> deadlines_;  ///< Of what waits or is not finished.
};

}  // namespace weir
