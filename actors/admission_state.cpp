#include "actors/admission_state.hpp"

#include <algorithm>

#include "runtime/assert.hpp"

namespace weir {
namespace {

std::string sample_text(SampleId id) {
  return "sample " + std::to_string(id);
}

}  // namespace

std::uint64_t AdmissionCounts::rejected() const noexcept {
  return rejected_stale + rejected_by_producer + rejected_by_policy + rejected_for_room;
}

std::uint64_t AdmissionCounts::expired() const noexcept {
  return expired_deadline + expired_replica;
}

std::uint64_t AdmissionCounts::running() const noexcept {
  return undispatched + generating + finished;
}

AdmissionState::AdmissionState(std::unique_ptr<AdmissionPolicy> policy,
                               const AdmissionOptions& options)
    : policy_(std::move(policy)),
      options_(options),
      version_(options.recovered_version),
      batches_(options.recovered_version) {
  const PolicyLimits& limits = policy_->limits();
  options_.staleness_max = std::min(options.staleness_max, limits.staleness_max);
  options_.waiting_max = std::min(options.waiting_max, limits.waiting_max);
}

Result<AdmissionState> AdmissionState::create(std::unique_ptr<AdmissionPolicy> policy,
                                              const AdmissionOptions& options) {
  WEIR_ASSERT(policy != nullptr);
  const std::uint64_t least = std::max<std::uint64_t>(1, policy->limits().queue_least);
  if (options.queue_max < least) {
    return failure(ErrorCode::invalid, "admission: queue_max=" + std::to_string(options.queue_max) +
                                           ": the policy needs " + std::to_string(least) +
                                           " or more");
  }
  return AdmissionState(std::move(policy), options);
}

Result<Requested> AdmissionState::request(const SampleRequest& request) {
  const bool admitted = waiting_.empty() && capacity() > 0;
  if (!admitted && waiting_.size() >= options_.waiting_max) {
    return failure(ErrorCode::refused, std::to_string(waiting_.size()) +
                                           " requests wait for admission already, which is the "
                                           "most: ask again later");
  }
  const SampleId id = next_id_++;
  deadlines_.emplace(request.deadline, id);
  if (admitted) {
    admit(id, request);
  } else {
    waiting_.emplace(id, request);
  }
  settle();
  return Requested{.sample = id, .admitted = admitted};
}

Result<void> AdmissionState::withdraw(SampleId waiting) {
  const auto found = waiting_.find(waiting);
  if (found == waiting_.end()) {
    return failure(ErrorCode::not_found, sample_text(waiting) + " does not wait for admission");
  }
  deadlines_.erase({found->second.deadline, waiting});
  waiting_.erase(found);
  ++counts_.withdrawn;
  settle();
  return {};
}

std::vector<SampleId> AdmissionState::admit_waiting() {
  std::vector<SampleId> admitted;
  while (!waiting_.empty() && capacity() > 0) {
    const auto& [id, request] = *waiting_.begin();
    admitted.push_back(id);
    admit(id, request);
    waiting_.erase(waiting_.begin());
    settle();
  }
  return admitted;
}

Result<Dispatched> AdmissionState::dispatch(SampleId sample, std::uint32_t replica) {
  const auto found = samples_.find(sample);
  if (found == samples_.end()) {
    return failure(ErrorCode::not_found, sample_text(sample) + " is not admitted, or has ended");
  }
  const auto runner = replicas_.find(replica);
  const std::string name = "rollout replica " + std::to_string(replica);
  if (runner == replicas_.end()) {
    return failure(ErrorCode::not_found, name + " has not joined, or has died");
  }
  if (found->second.phase != SamplePhase::undispatched) {
    return failure(ErrorCode::refused, sample_text(sample) + " is dispatched already");
  }
  if (runner->second.draining) {
    return failure(ErrorCode::refused, name + " drains: dispatch to another one");
  }
  if (version_ - runner->second.version > options_.staleness_max) {
    return failure(ErrorCode::refused, name + " serves version " +
                                           std::to_string(runner->second.version) +
                                           ", too old to be handed over at version " +
                                           std::to_string(version_) + ": have it switch first");
  }
  found->second.phase = SamplePhase::generating;
  found->second.replica = replica;
  found->second.spans = {{.version = runner->second.version, .tokens = 0}};
  ++found->second.attempt;
  undispatched_.erase(sample);
  runner->second.running.insert(sample);
  settle();
  return Dispatched{.attempt = {sample, found->second.attempt}, .version = runner->second.version};
}

Result<void> AdmissionState::extend(const Attempt& attempt, std::uint64_t tokens) {
  const auto found = generating(attempt);
  if (!found) return failure(found);
  (*found)->spans.back().tokens += tokens;
  return {};
}

Result<void> AdmissionState::extend(const Attempt& attempt, const Span& generated) {
  const auto found = generating(attempt);
  if (!found) return failure(found);
  if (generated.version > version_) {
    return failure(ErrorCode::invalid,
                   sample_text(attempt.sample) + " can't have tokens of version " +
                       std::to_string(generated.version) + ", which is not published");
  }
  if (generated.tokens == 0) return {};
  std::vector<Span>& spans = (*found)->spans;
  auto place = std::find_if(spans.begin(), spans.end(), [&generated](const Span& span) {
    return span.version >= generated.version;
  });
  if (place == spans.end() || place->version != generated.version) {
    place = spans.insert(place, {.version = generated.version, .tokens = 0});
  }
  place->tokens += generated.tokens;
  return {};
}

Result<Lost> AdmissionState::attempt_fails(const Attempt& attempt) {
  const auto found = generating(attempt);
  if (!found) return failure(found);
  Lost lost;
  lose(attempt.sample, lost);
  return lost;
}

Result<Finished> AdmissionState::finish(const Attempt& attempt) {
  const auto found = generating(attempt);
  if (!found) return failure(found);
  Sample finished = **found;
  finished.phase = SamplePhase::finished;
  if (staleness(finished) > options_.staleness_max) {
    end(attempt.sample, &AdmissionCounts::rejected_stale);
    return Finished{.kept = false, .dropped = {}};
  }
  if (policy_->judge(view(), finished) == Verdict::evict) {
    end(attempt.sample, &AdmissionCounts::rejected_by_policy);
    return Finished{.kept = false, .dropped = {}};
  }
  Finished answer;
  if (finished_.size() >= options_.queue_max) {
    if (policy_->limits().when_full == QueueFull::refuse) {
      return failure(ErrorCode::refused, std::to_string(finished_.size()) +
                                             " finished samples wait for the trainer, which is "
                                             "the most: hold " +
                                             sample_text(attempt.sample) +
                                             " until a batch is taken");
    }
    answer.dropped = finished_.front();
    end(*answer.dropped, &AdmissionCounts::rejected_for_room);
  }
  (*found)->phase = SamplePhase::finished;
  replicas_.at(finished.replica).running.erase(attempt.sample);
  deadlines_.erase({finished.deadline, attempt.sample});
  finished_.push_back(attempt.sample);
  settle();
  return answer;
}

Result<void> AdmissionState::reject(SampleId sample) {
  if (!samples_.contains(sample)) {
    return failure(ErrorCode::not_found, sample_text(sample) + " is not admitted, or has ended");
  }
  end(sample, &AdmissionCounts::rejected_by_producer);
  return {};
}

Expired AdmissionState::expire(Duration now) {
  Expired expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const SampleId id = deadlines_.begin()->second;
    if (waiting_.contains(id)) {
      deadlines_.erase(deadlines_.begin());
      waiting_.erase(id);
      ++counts_.lapsed;
      expired.waiting.push_back(id);
      settle();
      continue;
    }
    const Sample& sample = samples_.at(id);
    if (sample.phase == SamplePhase::generating) expired.aborted.push_back({id, sample.attempt});
    expired.samples.push_back(id);
    end(id, &AdmissionCounts::expired_deadline);
  }
  return expired;
}

std::optional<Duration> AdmissionState::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

Result<Swept> AdmissionState::publish(std::uint64_t version) {
  const std::string text = "can't publish version " + std::to_string(version);
  if (!more_versions_) {
    return failure(ErrorCode::invalid, text + ": no more versions were to come");
  }
  if (version <= version_) {
    return failure(ErrorCode::invalid,
                   text + ": it must be greater than the last one, " + std::to_string(version_));
  }
  version_ = version;
  delivered_since_version_ = 0;
  return sweep();
}

void AdmissionState::no_more_versions() {
  more_versions_ = false;
  settle();
}

Result<Batch> AdmissionState::take_batch(std::uint64_t count) {
  const std::uint64_t most = std::min(policy_->limits().batch_max, options_.queue_max);
  if (count == 0 || count > most) {
    return failure(ErrorCode::invalid, "can't hand over a batch of " + std::to_string(count) +
                                           ": ask for 1 to " + std::to_string(most));
  }
  const std::vector<SampleId> order = policy_->hand_over_order(view());
  if (order.size() < count) {
    return failure(ErrorCode::refused, "a batch of " + std::to_string(count) + " was asked for, " +
                                           std::to_string(order.size()) +
                                           " samples may be handed over");
  }
  Batch batch;
  for (std::size_t i = 0; i < count; ++i) {
    const Sample& sample = samples_.at(order[i]);
    WEIR_ASSERT(sample.phase == SamplePhase::finished);
    // Sweeps have rejected what was older; a bug there must not reach the trainer.
    WEIR_ASSERT(staleness(sample) <= options_.staleness_max);
    if (policy_->too_old(view(), sample)) ++counts_.delivered_too_old;
    batch.samples.push_back(
        {.sample = order[i], .spans = sample.spans, .staleness = staleness(sample)});
    end(order[i], &AdmissionCounts::delivered);
  }
  ++batches_;
  delivered_since_version_ += count;
  batch.swept = sweep();
  return batch;
}

AdmissionView AdmissionState::view() const {
  return {.version = version_,
          .recovered_version = options_.recovered_version,
          .batches = batches_,
          .more_versions = more_versions_,
          .running = counts_.undispatched + counts_.generating,
          .accepted = counts_.delivered + counts_.finished,
          .delivered_since_version = delivered_since_version_,
          .samples = samples_,
          .finished = finished_};
}

std::uint64_t AdmissionState::staleness(const Sample& sample) const noexcept {
  return version_ - sample.spans.front().version;
}

void AdmissionState::admit(SampleId id, const SampleRequest& request) {
  Sample sample;
  sample.step = batches_;
  sample.target = policy_->target(view());
  sample.prompt_tokens = request.prompt_tokens;
  sample.deadline = request.deadline;
  samples_.emplace(id, std::move(sample));
  undispatched_.insert(id);
  ++counts_.admitted;
}

Result<Sample*> AdmissionState::generating(const Attempt& attempt) {
  const auto found = samples_.find(attempt.sample);
  if (found == samples_.end() || found->second.phase != SamplePhase::generating ||
      found->second.attempt != attempt.number) {
    return failure(ErrorCode::not_found, "attempt " + std::to_string(attempt.number) + " at " +
                                             sample_text(attempt.sample) + " has ended");
  }
  return &found->second;
}

void AdmissionState::end(SampleId id, End how) {
  const auto found = samples_.find(id);
  WEIR_ASSERT(found != samples_.end());
  const Sample& sample = found->second;
  switch (sample.phase) {
    case SamplePhase::undispatched:
      undispatched_.erase(id);
      break;
    case SamplePhase::generating:
      replicas_.at(sample.replica).running.erase(id);
      break;
    case SamplePhase::finished:
      finished_.erase(std::find(finished_.begin(), finished_.end(), id));
      break;
  }
  deadlines_.erase({sample.deadline, id});
  samples_.erase(found);
  ++(counts_.*how);
  settle();
}

Swept AdmissionState::sweep() {
  const AdmissionView seen = view();
  std::vector<std::pair<SampleId, End>> ending;
  Swept swept;
  for (const auto& [id, sample] : samples_) {
    const bool stale =
        sample.phase == SamplePhase::finished && staleness(sample) > options_.staleness_max;
    if (stale) {
      ending.emplace_back(id, &AdmissionCounts::rejected_stale);
    } else if (policy_->judge(seen, sample) == Verdict::evict) {
      ending.emplace_back(id, &AdmissionCounts::rejected_by_policy);
      if (sample.phase == SamplePhase::generating) swept.aborted.push_back({id, sample.attempt});
    }
  }
  for (const auto& [id, how] : ending) {
    swept.rejected.push_back(id);
    end(id, how);
  }
  settle();
  return swept;
}

void AdmissionState::settle() {
  std::uint64_t generating = 0;
  for (const auto& [number, replica] : replicas_) generating += replica.running.size();
  counts_.undispatched = undispatched_.size();
  counts_.generating = generating;
  counts_.finished = finished_.size();
  counts_.waiting = waiting_.size();
  WEIR_ASSERT(counts_.running() == samples_.size());
  WEIR_ASSERT(counts_.delivered + counts_.rejected() + counts_.expired() + counts_.running() ==
              counts_.admitted);
  WEIR_ASSERT(finished_.size() <= options_.queue_max);
  WEIR_ASSERT(waiting_.size() <= options_.waiting_max);
  WEIR_ASSERT(deadlines_.size() == waiting_.size() + samples_.size() - finished_.size());
}

}  // namespace weir
