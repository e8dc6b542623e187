#pragma once
// How far generation may run ahead of training: the admission rules in use, behind one interface.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/admission_sample.hpp"
#include "runtime/result.hpp"

namespace weir {

inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// What a policy sees. Counts are of samples (prompt groups) of the whole exchange, never of one
/// replica: whoever divides the capacity among replicas divides it once, after the policy.
/// The rules measure versions against batches, so a version's number must be the number of batches
/// that were trained into it. Borrows from the state that made it, until that one changes.
struct AdmissionView {
  std::uint64_t version = 0;            ///< The newest published one.
  std::uint64_t recovered_version = 0;  ///< Where this run began. Nothing before it is counted.
  std::uint64_t batches = 0;            ///< Handed over, and `recovered_version` before those.
  bool more_versions = true;            ///< False: whatever waits for a version waits for ever.
  std::uint64_t running = 0;            ///< Admitted and not finished.
  std::uint64_t accepted = 0;           ///< Finished, handed over or not, less those rejected.
  std::uint64_t delivered_since_version = 0;  ///< Handed over since `version` was published.
  const Samples& samples;                     ///< All that have not ended.
  std::span<const SampleId> finished;         ///< Not handed over, in the order they finished.

  /// The version that generation is paced by. After the last publication the batches themselves
  /// take its place, so that no gate waits for a version that never comes.
  [[nodiscard]] std::uint64_t pace() const noexcept;
  /// The step that the next batch is for.
  [[nodiscard]] std::uint64_t step() const noexcept;
};

/// What becomes of a sample: it stays, or it is rejected, and aborted first where a replica runs
/// it.
enum class Verdict : std::uint8_t { keep, evict };

/// What a finished sample meets when the queue is full.
enum class QueueFull : std::uint8_t {
  refuse,       ///< It may not finish yet: its replica holds it.
  drop_oldest,  ///< The one that finished first is rejected in its favour.
};

/// What holds whatever the counts are.
struct PolicyLimits {
  std::uint64_t staleness_max = unlimited;  ///< Of a sample that is handed over.
  std::uint64_t waiting_max = unlimited;    ///< Requests that wait for admission.
  std::uint64_t batch_max = unlimited;      ///< A larger batch might never be complete.
  std::uint64_t queue_least = 1;            ///< With a smaller queue the loop could stand still.
  QueueFull when_full = QueueFull::refuse;
};

/// One rule. Answers depend on the view alone. Threading: immutable, so any.
class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;
  AdmissionPolicy(const AdmissionPolicy&) = delete;
  AdmissionPolicy& operator=(const AdmissionPolicy&) = delete;

  [[nodiscard]] const PolicyLimits& limits() const noexcept { return limits_; }
  /// How many more samples may be admitted now.
  [[nodiscard]] virtual std::uint64_t capacity(const AdmissionView& view) const = 0;
  /// The step for which a sample that is admitted now is meant. Only asked while there is capacity.
  [[nodiscard]] virtual std::uint64_t target(const AdmissionView& view) const;
  /// Asked of every sample when a version is published and when a batch was handed over, and of one
  /// that finishes.
  [[nodiscard]] virtual Verdict judge(const AdmissionView& view, const Sample& sample) const;
  /// Those of `view.finished` that may be handed over now, the next one first. None while the
  /// trainer has to wait.
  [[nodiscard]] virtual std::vector<SampleId> hand_over_order(const AdmissionView& view) const;
  /// Whether a sample that is handed over lies beyond what the rule aims at: counted, not dropped.
  [[nodiscard]] virtual bool too_old(const AdmissionView& view, const Sample& sample) const;

 protected:
  explicit AdmissionPolicy(const PolicyLimits& limits) : limits_(limits) {}

 private:
  PolicyLimits limits_;
};

/// The default: pacing, by AReaL's formula. With η = `eta`, B = `batch`,
///   capacity = min(max(1, max_concurrent) − running, (η + version + 1)·B − (accepted + running)),
/// at most (η + 1)·B requests wait, and older samples are handed over first. AReaL begins a
/// recovered run with accepted = version·B; here both sides are counted from there.
struct ArealOptions {
  std::uint64_t eta = 2;
  std::uint64_t batch = 0;  ///< Samples of one step: has to be given, here and below.
  std::uint64_t max_concurrent = 64;

  friend bool operator==(const ArealOptions&, const ArealOptions&) = default;
};

/// verl's fully asynchronous trainer. With s = `staleness`,
///   capacity = max_required − max(finished, stale), max_required = ⌊batch·(1 + s)·sync_steps⌋,
/// where stale is what was alive at the last publication plus what was admitted since, less what
/// was rejected since. A full queue drops its oldest entry.
struct VerlOptions {
  std::uint64_t batch = 0;
  double staleness = 0.5;
  std::uint64_t sync_steps = 1;  ///< Steps from one publication to the next.

  friend bool operator==(const VerlOptions&, const VerlOptions&) = default;
};

enum class OldGroups : std::uint8_t { drop, wait };

/// verl V1. A group's span is step − the step it was admitted at + 1. `drop` evicts finished groups
/// with span > threshold; `wait` hands nothing over while an unfinished one has span ≥ threshold.
///   capacity = groups − (running + finished).
struct VerlSpanOptions {
  std::uint64_t batch = 0;
  std::uint64_t groups = 64;  ///< Alive at once.
  std::uint64_t threshold = 8;
  OldGroups old = OldGroups::drop;

  friend bool operator==(const VerlSpanOptions&, const VerlSpanOptions&) = default;
};

enum class NemoSampler : std::uint8_t { in_order, weight_fifo, ready_first, windowed };

/// NeMo-RL's samplers. With W = `window` and v the version, batches up to step v + W may be begun,
/// and at most batch·(W + 1) samples are alive:
///   capacity = min(batch·(v + W + 1) − (accepted + running), batch·(W + 1) − (running +
///   finished)).
/// - in_order: each sample is meant for one step. Capacity is what the steps from the present one
/// to
///   v + W lack of a batch each, the earliest first. Only samples for the present step are handed
///   over, a whole batch at a time; those for earlier steps are evicted;
/// - weight_fifo: of [v − W, v], the oldest version first; what is older is evicted;
/// - ready_first: in the order they finished; never evicts;
/// - windowed: of [v − W, v], in the order they finished; what is older is evicted or aborted.
struct NemoOptions {
  std::uint64_t batch = 0;
  std::uint64_t window = 1;
  NemoSampler sampler = NemoSampler::in_order;

  friend bool operator==(const NemoOptions&, const NemoOptions&) = default;
};

/// prime-rl. With n the next step (from 1), v the version and `max_lag` = 1: batch n is handed over
/// only if v ≥ n − 2, nothing is admitted while (n − 1) − v > 1, and a sample that began before
/// version (n − 1) − max_off_policy is evicted or aborted. capacity = max_concurrent − running.
struct PrimeOptions {
  std::uint64_t max_concurrent = 64;
  std::uint64_t max_lag = 1;
  std::uint64_t max_off_policy = 8;

  friend bool operator==(const PrimeOptions&, const PrimeOptions&) = default;
};

/// PipelineRL. ⌈max_lag / attempts⌉ + batch samples, and a batch more with each version:
///   capacity = ⌈max_lag / attempts⌉ + batch·(version + 1) − (accepted + running).
/// A sample whose oldest version lies more than `max_lag` attempts back is counted, not dropped.
struct PipelineOptions {
  std::uint64_t batch = 0;
  std::uint64_t attempts = 1;  ///< Sequences of one sample.
  std::uint64_t max_lag = 0;   ///< In sequences.

  friend bool operator==(const PipelineOptions&, const PipelineOptions&) = default;
};

enum class PermitUntil : std::uint8_t { taken, finished };

/// A fixed number of permits and no eye on versions. `taken` (OpenRLHF's queue):
///   capacity = size − (running + finished).
/// `finished` (slime's fully asynchronous rollout): size − running, none while finished ≥ size.
struct SemaphoreOptions {
  std::uint64_t size = 0;
  PermitUntil until = PermitUntil::taken;

  friend bool operator==(const SemaphoreOptions&, const SemaphoreOptions&) = default;
};

using PolicyOptions = std::variant<ArealOptions, VerlOptions, VerlSpanOptions, NemoOptions,
                                   PrimeOptions, PipelineOptions, SemaphoreOptions>;

/// Errors (`invalid`): a field out of its bounds, named with what to change.
Result<void> check(const PolicyOptions& options);
/// Errors: as `check`.
Result<std::unique_ptr<AdmissionPolicy>> make_policy(const PolicyOptions& options);
/// "areal:eta=2,batch=4,max_concurrent=64". Names: areal (or pacing), verl, verl_span, nemo, prime,
/// pipeline, semaphore; the keys are the fields' names. Errors (`invalid`): bad text, or as
/// `check`.
Result<PolicyOptions> parse_policy(std::string_view text);
/// What `parse_policy` reads back as the same options.
std::string text_of(const PolicyOptions& options);

}  // namespace weir
