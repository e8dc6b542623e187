#include "actors/sampling_state.hpp"

#include <algorithm>
#include <utility>

#include "runtime/assert.hpp"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 at -O3 takes the inactive members of a variant that is moved for uninitialized ones.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace weir {
namespace {

Error no_such(const Attempt& attempt) {
  return {ErrorCode::not_found, "attempt " + std::to_string(attempt.number) + " at sample " +
                                    std::to_string(attempt.sample) +
                                    " is not one of a sample that is being generated"};
}

Error late(const std::string& what) {
  return {ErrorCode::timeout, what + " within its deadline"};
}

std::uint64_t tokens_of(const Sample& sample) {
  std::uint64_t tokens = 0;
  for (const Span& span : sample.spans) tokens += span.tokens;
  return tokens;
}

const Error taken_back{ErrorCode::not_found, "the sample was rejected"};
const Error too_old{ErrorCode::not_found, "the sample became too old, and was rejected"};
const Error replica_lost{ErrorCode::unavailable,
                         "the sample lost its replica, and had no retry left"};

}  // namespace

template <class T>
void SamplingState::answer(std::uint64_t ticket, T value) {
  SamplingAnswer& made = answers_.emplace_back();
  made.ticket = ticket;
  made.value.emplace<T>(std::move(value));
}

Result<SamplingState> SamplingState::create(const SamplingOptions& options, InFlight in_flight) {
  SamplingState made(options, in_flight);
  auto policy = make_policy(options.policy);
  if (!policy) return failure(policy);
  // Only to see whether it can be made: it is, once the first version is known.
  const auto trial = AdmissionState::create(*std::move(policy), {.queue_max = options.queue_max});
  if (!trial) return failure(trial);
  return made;
}

SamplingState::SamplingState(const SamplingOptions& options, InFlight in_flight)
    : options_(options), in_flight_(in_flight) {}

void SamplingState::begin(std::uint64_t version) {
  auto made = AdmissionState::create(*make_policy(options_.policy),
                                     {.recovered_version = version,
                                      .staleness_max = options_.staleness_max,
                                      .queue_max = options_.queue_max,
                                      .waiting_max = options_.waiting_max,
                                      .retries_max = options_.retries_max});
  WEIR_ASSERT(made);
  state_.emplace(*std::move(made));
  if (!more_versions_) state_->no_more_versions();
  for (const Early& early : std::exchange(early_, {})) request(early.ticket, early.request);
}

// ---- what the owner asks for -------------------------------------------------------------------

void SamplingState::admit(std::uint64_t ticket, Duration deadline, std::uint64_t prompt_tokens) {
  const SampleRequest asked{.deadline = deadline, .prompt_tokens = prompt_tokens};
  if (state_) {
    request(ticket, asked);
    return progress();
  }
  if (early_.size() >= options_.waiting_max) {
    return answer(ticket,
                  Error{ErrorCode::refused, std::to_string(early_.size()) +
                                                " requests wait for the first version already, "
                                                "which is the most: ask again later"});
  }
  early_.push_back({ticket, asked});
}

void SamplingState::request(std::uint64_t ticket, const SampleRequest& request) {
  const auto asked = state_->request(request);
  if (!asked) return answer(ticket, asked.error());
  runners_[asked->sample] = {.ticket = ticket, .after = 0, .deadline = request.deadline};
}

void SamplingState::next(std::uint64_t ticket, const Attempt& over, Duration deadline) {
  const Sample* sample = nullptr;
  if (state_) {
    const auto found = state_->samples().find(over.sample);
    if (found != state_->samples().end()) sample = &found->second;
  }
  if (sample == nullptr || sample->phase == SamplePhase::finished || over.number == 0 ||
      over.number > sample->attempt) {
    return answer(ticket, no_such(over));
  }
  if (runners_.contains(over.sample)) {
    return answer(ticket,
                  Error{ErrorCode::refused, "somebody waits for the next attempt at sample " +
                                                std::to_string(over.sample) + " already"});
  }
  runners_[over.sample] = {.ticket = ticket, .after = over.number, .deadline = deadline};
  if (sample->phase == SamplePhase::generating) {
    if (sample->attempt > over.number) return hand_out(*sample, over.sample);
    // While it pauses, its engine may have aborted what the switch will replace.
    if (replicas_.at(sample->replica) != Standing::pauses) fail_attempt(over);
  }
  progress();
}

void SamplingState::finish(std::uint64_t ticket, const Attempt& attempt, Duration deadline) {
  if (!state_) return answer(ticket, no_such(attempt));
  if (!finishers_.emplace(attempt.sample, Finisher{ticket, attempt, deadline}).second) {
    return answer(ticket, Error{ErrorCode::refused, "sample " + std::to_string(attempt.sample) +
                                                        " is being finished already"});
  }
  progress();
}

void SamplingState::take_batch(std::uint64_t ticket, std::uint64_t count, Duration deadline) {
  if (taker_)
    return answer(ticket, Error{ErrorCode::refused, "somebody waits for a batch already"});
  taker_ = Taker{ticket, count, deadline};
  progress();
}

Result<void> SamplingState::extend(const Attempt& attempt, const Span& generated) {
  if (!state_) return tl::unexpected(no_such(attempt));
  return state_->extend(attempt, generated);
}

Result<void> SamplingState::reject(SampleId sample) {
  if (!state_) return tl::unexpected(no_such({sample, 0}));
  if (auto rejected = state_->reject(sample); !rejected) return rejected;
  ended(sample, taken_back);
  progress();
  return {};
}

void SamplingState::no_more_versions() {
  more_versions_ = false;
  if (!state_) return;
  state_->no_more_versions();
  progress();
}

// ---- what coordinators and ledger say ----------------------------------------------------------

void SamplingState::published(std::uint64_t version) {
  if (!state_) {
    begin(version);
  } else if (version > state_->version()) {
    if (const auto swept = state_->publish(version)) ended(swept->rejected, too_old);
  }
  progress();
}

void SamplingState::begin_life(std::uint64_t life) {
  life_ = life;
  for (auto& [replica, standing] : replicas_) standing = Standing::unknown;
}

void SamplingState::pauses(std::uint64_t life, std::uint32_t replica) {
  const auto known = replicas_.find(replica);
  if (life == life_ && known != replicas_.end()) known->second = Standing::pauses;
}

void SamplingState::resumes(std::uint64_t life, std::uint32_t replica, std::uint64_t version) {
  if (life != life_ || !replicas_.contains(replica)) return;
  published(version);
  go_on(replica, version);
  progress();
}

void SamplingState::serves(std::uint64_t life, std::uint32_t replica, std::uint64_t version) {
  if (life != life_) return;
  published(version);
  if (replicas_.contains(replica) && state_->replicas().at(replica).version != version) {
    go_on(replica, version);
  }
  if (!replicas_.contains(replica)) {
    // Fails only for a version that came after the last, which gets no samples.
    if (!state_->replica_joins(replica, version)) return;
  }
  replicas_[replica] = Standing::serves;
  fail_the_given_up(replica);
  progress();
}

/// All its shards have that version now, and its engines go on with it.
void SamplingState::go_on(std::uint32_t replica, std::uint64_t version) {
  // Engines have drained by themselves. What is left was told to be done too late, or has come to
  // an engine too late to be begun, and goes on.
  const InFlight way = in_flight_ == InFlight::drain ? InFlight::keep : in_flight_;
  const std::uint64_t before = state_->replicas().at(replica).version;
  Result<Switched> switched;
  if (version == before && replicas_.at(replica) == Standing::pauses) {
    switched = state_->replica_resumes(replica, way);
  } else if (version != before) {
    switched = state_->replica_switches(replica, version, way);
  }
  if (!switched) return lose(replica);
  // Once more of the same changes nothing.
  if (replicas_.at(replica) == Standing::pauses) replicas_.at(replica) = Standing::unknown;
  for (const Attempt& attempt : switched->resumed) {
    if (runners_.contains(attempt.sample)) {
      hand_out(state_->samples().at(attempt.sample), attempt.sample);
    }
  }
  fail_the_given_up(replica);
}

void SamplingState::lost(std::uint64_t life, std::uint32_t replica) {
  if (life != life_ || !replicas_.contains(replica)) return;
  lose(replica);
  progress();
}

void SamplingState::lose(std::uint32_t replica) {
  const auto lost = state_->replica_dies(replica);
  WEIR_ASSERT(lost);
  replicas_.erase(replica);
  ended(lost->expired, replica_lost);
}

void SamplingState::fail_the_given_up(std::uint32_t replica) {
  std::vector<Attempt> given_up;
  for (const SampleId id : state_->replicas().at(replica).running) {
    const auto runner = runners_.find(id);
    const std::uint32_t attempt = state_->samples().at(id).attempt;
    if (runner != runners_.end() && runner->second.after == attempt) {
      given_up.push_back({id, attempt});
    }
  }
  for (const Attempt& attempt : given_up) fail_attempt(attempt);
}

void SamplingState::fail_attempt(const Attempt& attempt) {
  const auto lost = state_->attempt_fails(attempt);
  WEIR_ASSERT(lost);
  ended(lost->expired, replica_lost);
}

// ---- what follows ------------------------------------------------------------------------------

void SamplingState::progress() {
  if (!state_) return;
  bool again = true;
  while (again) {
    state_->admit_waiting();
    dispatch_all();
    again = finish_all();
    again = hand_over() || again;
  }
}

void SamplingState::dispatch_all() {
  const std::set<SampleId> idle = state_->undispatched();
  for (const SampleId id : idle) {
    if (!runners_.contains(id)) continue;
    const auto replica = pick();
    if (!replica) return;
    const auto dispatched = state_->dispatch(id, *replica);
    WEIR_ASSERT(dispatched);
    hand_out(state_->samples().at(id), id);
  }
}

/// The least loaded, and of those the first.
std::optional<std::uint32_t> SamplingState::pick() const {
  std::optional<std::uint32_t> best;
  std::size_t best_load = 0;
  for (const auto& [number, replica] : state_->replicas()) {
    if (replicas_.at(number) != Standing::serves) continue;
    if (state_->version() - replica.version > state_->staleness_max()) continue;
    if (best && replica.running.size() >= best_load) continue;
    best = number;
    best_load = replica.running.size();
  }
  return best;
}

void SamplingState::hand_out(const Sample& sample, SampleId id) {
  const std::uint64_t ticket = runners_.at(id).ticket;
  runners_.erase(id);
  answer(ticket, Assignment{.attempt = {id, sample.attempt},
                            .replica = sample.replica,
                            .version = state_->replicas().at(sample.replica).version,
                            .tokens = tokens_of(sample)});
}

bool SamplingState::finish_all() {
  bool any = false;
  for (const auto& [sample, finisher] : std::map(finishers_)) {
    // Another one's end may have made an end of it.
    if (!finishers_.contains(sample)) continue;
    const auto finished = state_->finish(finisher.attempt);
    if (!finished && finished.error().code == ErrorCode::refused) continue;
    finishers_.erase(sample);
    any = true;
    if (!finished) {
      answer(finisher.ticket, finished.error());
      continue;
    }
    answer(finisher.ticket, finished->kept);
    if (finished->dropped) ended(*finished->dropped, too_old);
    // Somebody may think that this attempt was given up.
    ended(sample, no_such(finisher.attempt));
  }
  return any;
}

bool SamplingState::hand_over() {
  if (!taker_) return false;
  const Taker taker = *taker_;
  auto batch = state_->take_batch(taker.count);
  if (!batch && batch.error().code == ErrorCode::refused) return false;
  taker_.reset();
  if (!batch) {
    answer(taker.ticket, batch.error());
    return false;
  }
  for (const Delivered& delivered : batch->samples) {
    const std::size_t bucket =
        std::min<std::uint64_t>(delivered.staleness, staleness_buckets_max - 1);
    if (staleness_.size() <= bucket) staleness_.resize(bucket + 1);
    ++staleness_[bucket];
  }
  ended(batch->swept.rejected, too_old);
  answer(taker.ticket, std::move(batch->samples));
  return true;
}

void SamplingState::ended(const std::vector<SampleId>& samples, const Error& why) {
  for (const SampleId sample : samples) ended(sample, why);
}

void SamplingState::ended(SampleId sample, const Error& why) {
  if (const auto runner = runners_.extract(sample)) answer(runner.mapped().ticket, why);
  if (const auto finisher = finishers_.extract(sample)) answer(finisher.mapped().ticket, why);
}

// ---- time --------------------------------------------------------------------------------------

void SamplingState::expire(Duration now) {
  if (state_) {
    const Expired expired = state_->expire(now);
    ended(expired.samples, late("the sample was not finished"));
    ended(expired.waiting, late("the sample was not admitted"));
  }
  while (true) {
    const auto found = std::find_if(early_.begin(), early_.end(), [now](const Early& early) {
      return early.request.deadline <= now;
    });
    if (found == early_.end()) break;
    answer(found->ticket, late("no version came"));
    early_.erase(found);
  }
  std::erase_if(runners_, [&](const auto& entry) {
    if (entry.second.deadline > now) return false;
    answer(entry.second.ticket, late("no replica took the sample up again"));
    return true;
  });
  std::erase_if(finishers_, [&](const auto& entry) {
    if (entry.second.deadline > now) return false;
    answer(entry.second.ticket, late("the queue had no room for the sample"));
    return true;
  });
  if (taker_ && taker_->deadline <= now) {
    const Taker taker = *std::exchange(taker_, std::nullopt);
    answer(taker.ticket, late("a batch of " + std::to_string(taker.count) + " was not complete"));
  }
  progress();
}

std::optional<Duration> SamplingState::next_deadline() const {
  std::optional<Duration> next = state_ ? state_->next_deadline() : std::nullopt;
  const auto consider = [&next](Duration deadline) {
    next = next ? std::min(*next, deadline) : deadline;
  };
  for (const Early& early : early_) consider(early.request.deadline);
  for (const auto& [sample, runner] : runners_) consider(runner.deadline);
  for (const auto& [sample, finisher] : finishers_) consider(finisher.deadline);
  if (taker_) consider(taker_->deadline);
  return next;
}

void SamplingState::forget_waiters() {
  // One that is admitted can't be withdrawn, and stays.
  for (const auto& [sample, runner] : runners_) state_->withdraw(sample);
  early_.clear();
  runners_.clear();
  finishers_.clear();
  taker_.reset();
  answers_.clear();
}

std::vector<SamplingAnswer> SamplingState::take_answers() {
  return std::exchange(answers_, {});
}

SamplingStatus SamplingState::status() const {
  SamplingStatus status;
  if (state_) {
    status.counts = state_->counts();
  } else {
    status.counts.waiting = early_.size();
  }
  status.staleness = staleness_;
  return status;
}

}  // namespace weir
