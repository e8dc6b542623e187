// The part of `AdmissionState` that speaks of replicas: their versions, their switches, their
// deaths.

#include "actors/admission_state.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

std::string replica_text(std::uint32_t replica) {
  return "rollout replica " + std::to_string(replica);
}

tl::unexpected<Error> unknown(std::uint32_t replica) {
  return failure(ErrorCode::not_found, replica_text(replica) + " has not joined, or has died");
}

std::uint64_t tokens_of(const Sample& sample) {
  std::uint64_t tokens = 0;
  for (const Span& span : sample.spans) tokens += span.tokens;
  return tokens;
}

}  // namespace

Result<void> AdmissionState::replica_joins(std::uint32_t replica, std::uint64_t version) {
  if (replicas_.contains(replica)) {
    return failure(ErrorCode::refused, replica_text(replica) + " has joined already");
  }
  if (version > version_) {
    return failure(ErrorCode::invalid, replica_text(replica) + " serves version " +
                                           std::to_string(version) + ", which is not published");
  }
  replicas_.emplace(replica, Replica{.version = version, .draining = false, .running = {}});
  settle();
  return {};
}

Result<Lost> AdmissionState::replica_dies(std::uint32_t replica) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end()) return unknown(replica);
  Lost lost;
  const std::set<SampleId> running = found->second.running;
  for (const SampleId id : running) lose(id, lost);
  WEIR_ASSERT(found->second.running.empty());
  replicas_.erase(found);
  settle();
  return lost;
}

void AdmissionState::lose(SampleId id, Lost& lost) {
  Sample& sample = samples_.at(id);
  if (sample.deaths >= options_.retries_max) {
    lost.expired.push_back(id);
    return end(id, &AdmissionCounts::expired_replica);
  }
  ++sample.deaths;
  requeue(id);
  lost.requeued.push_back(id);
}

Result<Switched> AdmissionState::replica_resumes(std::uint32_t replica, InFlight how) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end()) return unknown(replica);
  Switched switched;
  found->second.draining = false;
  // What drains loses nothing by the pause.
  if (how == InFlight::drain) return switched;
  const std::set<SampleId> running = found->second.running;
  for (const SampleId id : running) switch_sample(id, found->second.version, how, switched);
  settle();
  return switched;
}

Result<Switched> AdmissionState::replica_switches(std::uint32_t replica, std::uint64_t to_version,
                                                  InFlight how) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end()) return unknown(replica);
  const std::string text =
      replica_text(replica) + " can't switch to version " + std::to_string(to_version);
  if (to_version > version_) {
    return failure(ErrorCode::invalid, text + ", which is not published");
  }
  if (to_version <= found->second.version) {
    return failure(ErrorCode::invalid,
                   text + " from version " + std::to_string(found->second.version));
  }
  Switched switched;
  const std::set<SampleId> running = found->second.running;
  if (how == InFlight::drain && !running.empty()) {
    found->second.draining = true;
    switched.done = false;
    for (const SampleId id : running) {
      switched.must_end_first.push_back({id, samples_.at(id).attempt});
    }
    return switched;
  }
  for (const SampleId id : running) switch_sample(id, to_version, how, switched);
  found->second.version = to_version;
  found->second.draining = false;
  settle();
  return switched;
}

void AdmissionState::switch_sample(SampleId id, std::uint64_t to_version, InFlight how,
                                   Switched& switched) {
  Sample& sample = samples_.at(id);
  const Attempt attempt{id, sample.attempt};
  if (how == InFlight::abort_and_requeue) {
    switched.aborted.push_back(attempt);
    switched.requeued.push_back(id);
    requeue(id);
    return;
  }
  if (how == InFlight::abort_and_resume) {
    switched.aborted.push_back(attempt);
    switched.resumed.push_back({id, ++sample.attempt});
  }
  const bool prefills_again = how != InFlight::keep;
  const std::uint64_t tokens = tokens_of(sample);
  if (prefills_again) counts_.repeated_prefill_tokens += sample.prompt_tokens + tokens;
  // A version that generated nothing leaves nothing behind, unless it prefilled the prompt and what
  // it cached goes on being used, or tokens were generated on it.
  if (prefills_again && tokens == 0) sample.spans.clear();
  if (sample.spans.size() > 1 && sample.spans.back().tokens == 0) sample.spans.pop_back();
  if (sample.spans.empty() || sample.spans.back().version < to_version) {
    sample.spans.push_back({.version = to_version, .tokens = 0});
  }
}

void AdmissionState::requeue(SampleId id) {
  Sample& sample = samples_.at(id);
  counts_.discarded_tokens += tokens_of(sample);
  counts_.repeated_prefill_tokens += sample.prompt_tokens;
  ++counts_.requeued;
  replicas_.at(sample.replica).running.erase(id);
  sample.phase = SamplePhase::undispatched;
  sample.spans.clear();
  undispatched_.insert(id);
  settle();
}

}  // namespace weir
