#include "actors/internal/sim_owner.hpp"

#include <utility>

#include "actors/internal/errors.hpp"
#include "actors/internal/sim_world.hpp"

namespace weir::sim {
using Task = std::shared_ptr<const std::function<void(caf::event_based_actor*)>>;
}  // namespace weir::sim

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::sim::Task)

namespace weir::sim {

using namespace std::chrono_literals;

// ---- engines -----------------------------------------------------------------------------------

void Engines::submit(Owner& owner, const Attempt& attempt, std::uint64_t tokens) {
  generations_[attempt] = {.owner = &owner, .left = tokens, .begun = false};
}

void Engines::cancel(const Attempt& attempt) {
  generations_.erase(attempt);
  tell_drained();
}

void Engines::step(std::uint64_t version) {
  std::vector<Attempt> done;
  for (auto& [attempt, generation] : generations_) {
    if (!generation.begun && draining_) continue;
    generation.begun = true;
    if (--generation.left == 0) done.push_back(attempt);
    world_.net().after(world_.between(0ns, 2ms),
                       [owner = generation.owner, own = attempt, version,
                        whole = generation.left == 0] { owner->generated(own, version, whole); });
  }
  for (const Attempt& attempt : done) generations_.erase(attempt);
  tell_drained();
}

void Engines::drain(std::function<void()> then) {
  draining_ = true;
  drained_.push_back(std::move(then));
  tell_drained();
}

void Engines::tell_drained() {
  for (const auto& [attempt, generation] : generations_) {
    if (generation.begun) return;
  }
  for (const auto& then : std::exchange(drained_, {})) then();
}

void Engines::pause(InFlight in_flight) {
  if (in_flight == InFlight::abort_and_resume || in_flight == InFlight::abort_and_requeue) {
    drop(true);
  }
}

void Engines::drop(bool tell) {
  for (const auto& [attempt, generation] : std::exchange(generations_, {})) {
    if (!tell) continue;
    world_.net().after(world_.between(0ns, 5ms),
                       [owner = generation.owner, own = attempt] { owner->aborted(own); });
  }
  tell_drained();
}

// ---- the owner ---------------------------------------------------------------------------------

namespace {

struct Desk {
  static constexpr const char* name = "owner";
};

/// An order of the world's choosing, and words that cross on their way, come of it.
constexpr Duration way_max = 2ms;
/// The exchange answers by its own deadlines, far within this one.
constexpr Duration answer_max = 100s;

void add(std::vector<Span>& spans, const Span& more) {
  for (Span& span : spans) {
    if (span.version == more.version) {
      span.tokens += more.tokens;
      return;
    }
  }
  spans.push_back(more);
}

std::uint64_t tokens_of(const std::vector<Span>& spans) {
  std::uint64_t tokens = 0;
  for (const Span& span : spans) tokens += span.tokens;
  return tokens;
}

}  // namespace

Owner::Owner(World& world, Process& process, const SupervisorActor& exchange)
    : world_(world), process_(process), exchange_(exchange) {
  desk_ = process.system().spawn([](caf::stateful_actor<Desk>* self) -> caf::behavior {
    return {[self](const Task& task) { (*task)(self); }};
  });
  process.actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(desk_));
}

template <class T, class... Content>
void Owner::ask(std::function<void(const Result<T>&)> then, const Content&... content) {
  const auto task = [this, then, content...](caf::event_based_actor* self) {
    self->request(exchange_, answer_max, content...)
        .then([then](const T& answer) { then(answer); },
              [then](caf::error& error) { then(tl::unexpected(from_caf(error))); });
  };
  caf::anon_send(desk_, Task(std::make_shared<std::function<void(caf::event_based_actor*)>>(task)));
}

void Owner::later(Duration delay, std::function<void()> then) {
  world_.net().after(delay, [this, own = std::move(then)] {
    if (process_.alive) own();
  });
}

void Owner::start() {
  for (std::uint64_t i = 0; i < world_.scene().demand.requests; ++i) admit();
  take_batch();
  watch();
}

void Owner::admit() {
  const std::uint64_t trouble = world_.scene().demand.trouble;
  const bool hurry = trouble != 0 && world_.net().random().chance(1, trouble);
  const Duration deadline = hurry ? world_.between(1ms, 1s) : Duration(60s);
  ask<Assignment>(
      [this](const Result<Assignment>& assignment) {
        if (assignment) take(*assignment);
        later(world_.between(0ns, assignment ? way_max : Duration(50ms)), [this] { admit(); });
      },
      AdmitAtom::value, deadline, std::uint64_t{10});
}

void Owner::take(const Assignment& assignment) {
  const SampleId sample = assignment.attempt.sample;
  if (held_.contains(sample) || ended_.contains(sample)) {
    world_.broke("sample " + std::to_string(sample) + " is given out twice");
  }
  if (assignment.tokens != 0) world_.broke("a new sample has tokens");
  Held& held = held_[sample];
  held.assignment = assignment;
  held.tokens = 1 + world_.net().random().below(world_.scene().demand.tokens_max);
  submit(held);
}

void Owner::submit(const Held& held) {
  const std::uint64_t left = held.tokens - tokens_of(held.counted) - tokens_of(held.untold);
  const std::uint64_t trouble = world_.scene().demand.trouble;
  if (trouble != 0 && world_.net().random().chance(1, trouble)) {
    later(world_.between(0ns, 500ms), [this, own = held.assignment.attempt] {
      if (find(own) != nullptr) give_up(own.sample);
    });
  }
  later(world_.between(0ns, way_max), [this, own = held.assignment, left] {
    if (find(own.attempt) == nullptr) return;
    world_.engines(own.replica).submit(*this, own.attempt, left);
  });
}

Owner::Held* Owner::find(const Attempt& attempt) {
  const auto found = held_.find(attempt.sample);
  if (found == held_.end() || found->second.assignment.attempt != attempt) return nullptr;
  return &found->second;
}

void Owner::generated(const Attempt& attempt, std::uint64_t version, bool whole) {
  if (!process_.alive) return;
  Held* held = find(attempt);
  if (held == nullptr) return;
  add(held->untold, {.version = version, .tokens = 1});
  held->whole = whole;
  // Told in lots: at the end, and when there are a few.
  if (whole || tokens_of(held->untold) >= 4) go_on(attempt.sample);
}

void Owner::aborted(const Attempt& attempt) {
  if (!process_.alive) return;
  if (find(attempt) != nullptr) ask_next(attempt.sample);
}

void Owner::go_on(SampleId sample) {
  const auto found = held_.find(sample);
  if (found == held_.end() || found->second.asking || found->second.finished) return;
  if (!found->second.untold.empty()) return tell_tokens(sample);
  if (found->second.whole) finish(sample);
}

void Owner::tell_tokens(SampleId sample) {
  Held& held = held_.at(sample);
  held.asking = true;
  const Attempt attempt = held.assignment.attempt;
  const Span span = held.untold.front();
  held.untold.erase(held.untold.begin());
  ask<caf::ok_atom>(
      [this, attempt, span](const Result<caf::ok_atom>& told) {
        Held* own = find(attempt);
        if (own == nullptr) return;
        own->asking = false;
        if (told) {
          add(own->counted, span);
          return go_on(attempt.sample);
        }
        // Whether an actor that failed had counted them, nobody knows.
        if (told.error().code != ErrorCode::not_found) return give_up(attempt.sample);
        own->untold.insert(own->untold.begin(), span);
        ask_next(attempt.sample);
      },
      ExtendAtom::value, attempt, span);
}

void Owner::finish(SampleId sample) {
  Held& held = held_.at(sample);
  held.asking = true;
  const Attempt attempt = held.assignment.attempt;
  // It may be in a batch before the answer is here.
  held.finished = true;
  ask<bool>(
      [this, attempt](const Result<bool>& kept) {
        Held* own = find(attempt);
        if (own == nullptr) return;
        own->asking = false;
        if (kept && *kept) return;
        own->finished = false;
        if (kept) {
          held_.erase(attempt.sample);
          ended_.insert(attempt.sample);
        } else if (kept.error().code == ErrorCode::not_found) {
          ask_next(attempt.sample);
        } else {
          later(world_.between(0ns, 20ms),
                [this, own_sample = attempt.sample] { go_on(own_sample); });
        }
      },
      FinishAtom::value, attempt, Duration(2s));
}

void Owner::give_up(SampleId sample) {
  const auto held = held_.extract(sample);
  ended_.insert(sample);
  world_.engines(held.mapped().assignment.replica).cancel(held.mapped().assignment.attempt);
  ask<caf::ok_atom>([](const Result<caf::ok_atom>&) {}, RejectAtom::value, sample);
}

void Owner::ask_next(SampleId sample) {
  Held& held = held_.at(sample);
  if (held.asking || held.finished) return;
  held.asking = true;
  const Attempt over = held.assignment.attempt;
  world_.engines(held.assignment.replica).cancel(over);
  ask<Assignment>(
      [this, over](const Result<Assignment>& next) {
        Held* own = find(over);
        if (own == nullptr) return;
        own->asking = false;
        if (!next) {
          const ErrorCode code = next.error().code;
          if (code == ErrorCode::not_found) {
            held_.erase(over.sample);
            ended_.insert(over.sample);
            return;
          }
          return later(world_.between(0ns, 50ms), [this, over] {
            if (find(over) != nullptr) ask_next(over.sample);
          });
        }
        if (next->attempt.sample != over.sample || next->attempt.number <= over.number) {
          world_.broke("the next attempt is not a later one of the same sample");
        }
        own->assignment = *next;
        if (next->tokens == 0) {
          own->counted.clear();
          own->untold.clear();
          own->whole = false;
        } else if (next->tokens != tokens_of(own->counted)) {
          world_.broke("a sample goes on after " + std::to_string(next->tokens) + " tokens, not " +
                       std::to_string(tokens_of(own->counted)));
        }
        if (own->whole) return go_on(over.sample);
        submit(*own);
      },
      NextAtom::value, over, Duration(5s));
}

// ---- the trainer's side ------------------------------------------------------------------------

void Owner::take_batch() {
  ask<SampleBatch>(
      [this](const Result<SampleBatch>& batch) {
        if (!batch) return later(world_.between(0ns, 20ms), [this] { take_batch(); });
        if (batch->size() != world_.scene().demand.batch) world_.broke("a batch is not complete");
        for (const Delivered& delivered : *batch) check(delivered);
        world_.trained();
        const Duration time = world_.scene().train_time;
        later(world_.between(time / 4, time), [this] { take_batch(); });
      },
      BatchAtom::value, world_.scene().demand.batch, Duration(5s));
}

/// It was given out once and finished, is as its engines made it, and is not too old.
void Owner::check(const Delivered& delivered) {
  const std::string who = "sample " + std::to_string(delivered.sample);
  const auto held = held_.extract(delivered.sample);
  if (!held || !held.mapped().finished) {
    return world_.broke(who + " is handed over, but was not finished");
  }
  ended_.insert(delivered.sample);
  ++delivered_;
  std::vector<Span> spans;
  for (const Span& span : delivered.spans) {
    if (span.tokens != 0) spans.push_back(span);
  }
  std::map<std::uint64_t, std::uint64_t> made;
  for (const Span& span : held.mapped().counted) made[span.version] += span.tokens;
  std::vector<Span> expected;
  for (const auto& [version, tokens] : made) expected.push_back({version, tokens});
  if (spans != expected) world_.broke(who + " is said to be of other versions than made it");
  if (tokens_of(expected) != held.mapped().tokens) world_.broke(who + " is not whole");
  const std::uint64_t newest = delivered.spans.front().version + delivered.staleness;
  world_.ready(newest);
  if (newest > world_.newest_whole) world_.broke(who + " is staler than can be");
  if (delivered.staleness > world_.scene().exchange.sampling.staleness_max) {
    world_.broke(who + " is handed over " + std::to_string(delivered.staleness) + " versions late");
  }
}

void Owner::expect_no_more_versions() {
  ask<caf::ok_atom>([](const Result<caf::ok_atom>&) {}, LastAtom::value);
}

void Owner::watch() {
  ask<ExchangeStatus>(
      [this](const Result<ExchangeStatus>& status) {
        if (status) {
          compare(*status);
          world_.ready(status->ready);
        }
        later(25ms, [this] { watch(); });
      },
      StatusAtom::value);
}

/// Every admitted sample is somewhere, and what is said to be delivered has come.
void Owner::compare(const ExchangeStatus& status) {
  const AdmissionCounts& counts = counts_ = status.sampling.counts;
  if (counts.admitted !=
      counts.delivered + counts.rejected() + counts.expired() + counts.running()) {
    world_.broke("a sample is not accounted for");
  }
  std::uint64_t in_buckets = 0;
  for (const std::uint64_t count : status.sampling.staleness) in_buckets += count;
  if (in_buckets != counts.delivered || counts.delivered > delivered_) {
    world_.broke(std::to_string(delivered_) + " samples came, and " +
                 std::to_string(counts.delivered) + " were counted");
  }
}

std::string Owner::text() const {
  const auto part = [](const char* name, std::uint64_t count) {
    return std::string(", ") + name + " " + std::to_string(count);
  };
  return text_of(world_.scene().exchange.sampling.policy) + part("admitted", counts_.admitted) +
         part("delivered", counts_.delivered) + part("rejected", counts_.rejected()) +
         part("expired", counts_.expired()) + part("waiting", counts_.waiting) +
         part("undispatched", counts_.undispatched) + part("generating", counts_.generating) +
         part("finished", counts_.finished) + part("held", held_.size());
}

}  // namespace weir::sim
