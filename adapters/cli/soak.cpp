#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/simulation.hpp"
#include "adapters/cli/held_signals.hpp"
#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

constexpr std::uint64_t seeds_max = 1'000'000'000;
struct SoakOptions {
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::uint64_t tell = 0;  ///< A seed to run alone and to tell the story of; 0 for none.
  bool calm = false;
  std::size_t broken_max = 10;  ///< More tell nothing new.
};

/// So many seeds apart, one is run a second time.
constexpr std::uint64_t twice_every = 20;

/// What all seeds were like together. Threading: `add` from any thread.
class Tally {
 public:
  explicit Tally(std::size_t broken_max) : broken_max_(broken_max) {}

  void add(const Result<SimulationReport>& run) {
    const std::lock_guard lock(mutex_);
    if (!run) {
      if (broken_.size() < broken_max_) broken_.push_back(run.error().text);
      return;
    }
    ++seeds_;
    sum_.steps += run->steps;
    sum_.time += run->time;
    sum_.versions += run->versions;
    sum_.commits += run->commits;
    sum_.bytes_moved += run->bytes_moved;
    sum_.bytes_read_early += run->bytes_read_early;
    sum_.decodes += run->decodes;
    sum_.faults += run->faults;
    sum_.restarts += run->restarts;
  }
  [[nodiscard]] bool full() const {
    const std::lock_guard lock(mutex_);
    return broken_.size() >= broken_max_;
  }
  [[nodiscard]] const std::vector<std::string>& broken() const noexcept { return broken_; }

  void print(std::ostream& out, Duration took) const {
    const double seconds = std::max(std::chrono::duration<double>(took).count(), 1e-9);
    const double hours = std::chrono::duration<double>(sum_.time).count() / 3600;
    std::array<char, 512> text{};
    std::snprintf(text.data(), text.size(),
                  "%llu seeds in %.1f s (%.0f a minute): %.1f simulated hours, %llu faults, %llu "
                  "restarts,\n%llu versions, %llu commits, %.1f %% of bytes fetched before their "
                  "version was whole,\n%llu decode steps with every byte checked, %llu events\n",
                  number(seeds_), seconds, 60 * static_cast<double>(seeds_) / seconds, hours,
                  number(sum_.faults), number(sum_.restarts), number(sum_.versions),
                  number(sum_.commits),
                  100 * static_cast<double>(sum_.bytes_read_early) /
                      std::max(1.0, static_cast<double>(sum_.bytes_moved)),
                  number(sum_.decodes), number(sum_.steps));
    out << text.data();
  }

 private:
  static unsigned long long number(std::uint64_t value) { return value; }

  const std::size_t broken_max_;
  mutable std::mutex mutex_;
  std::uint64_t seeds_ = 0;
  SimulationReport sum_;
  std::vector<std::string> broken_;
};

/// One seed, and for some a second time: both runs must agree in everything.
Result<SimulationReport> run_seed(const SoakOptions& options, std::uint64_t seed) {
  const SimulationOptions own{.seed = seed, .faults = !options.calm};
  const Result<SimulationReport> once = simulate(own);
  if (!once || seed % twice_every != 0) return once;
  const Result<SimulationReport> again = simulate(own);
  if (again && *again == *once) return once;
  return failure(ErrorCode::invalid,
                 "seed " + std::to_string(seed) + ": two runs of it are not the same");
}

Result<void> tell_story(const SoakOptions& options, Console& console) {
  const auto run = simulate({.seed = options.tell, .faults = !options.calm, .narrate = true});
  if (!run) return failure(ErrorCode::unavailable, run.error().text);
  for (const std::string& line : run->story) console.out << line << "\n";
  Tally tally(options.broken_max);
  tally.add(run);
  console.out << "trace " << text_of(run->trace) << ", last draw " << run->last_draw << "\n";
  return {};
}

Result<void> run_soak(const SoakOptions& options, Console& console) {
  if (options.tell != 0) return tell_story(options, console);
  const HeldSignals signals;
  const Duration begun = console.clock.now();
  Tally tally(options.broken_max);
  ProgressBar bar(
      console,
      {.label = "soak", .total_bytes = options.seeds, .unit = "seeds", .redraw = console.terminal});
  Workers workers(0);
  // In rounds, so that a person can interrupt between two.
  const std::uint64_t round = 8ULL * workers.thread_count();
  std::uint64_t done = 0;
  while (done < options.seeds && !signals.pending() && !tally.full()) {
    const std::uint64_t count = std::min(round, options.seeds - done);
    workers.for_each(
        count, [&](std::size_t i) { tally.add(run_seed(options, options.first + done + i)); });
    done += count;
    bar.add(count);
  }
  bar.finish();
  tally.print(console.out, console.clock.now() - begun);
  for (const std::string& line : tally.broken()) console.out << "BROKEN " << line << "\n";
  if (!tally.broken().empty()) {
    return failure(ErrorCode::unavailable,
                   "an invariant is broken; weir soak --tell SEED tells the story of a seed");
  }
  if (done < options.seeds) return failure(ErrorCode::unavailable, "interrupted");
  console.out << "Every invariant held in every seed.\n";
  return {};
}

}  // namespace

Action declare_soak(CLI::App& app) {
  auto options = std::make_shared<SoakOptions>();
  app.description(
      "Runs whole exchanges in virtual time, one for each seed: trainers publish, rollouts\n"
      "generate, and processes die, hang, are cut off, get no memory and come back, actors wait,\n"
      "copies fail, engines refuse, and the code goes wrong where it proposes to. The invariants "
      "are checked\n"
      "at every step of every engine.");
  app.add_option("--seeds", options->seeds, "how many")
      ->check(CLI::Range(std::uint64_t{1}, seeds_max))
      ->capture_default_str();
  app.add_option("--from", options->first, "the first seed")->capture_default_str();
  app.add_option("--tell", options->tell, "run that one seed alone and say what happens in it");
  app.add_option("--broken-max", options->broken_max,
                 "end after so many seeds that broke something")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1'000'000}))
      ->capture_default_str();
  app.add_flag("--calm", options->calm, "nothing fails; only the order of events varies");
  return [options](Console& console) { return run_soak(*options, console); };
}

}  // namespace weir::cli
