#pragma once
// Whole exchanges in one thread and virtual time: the very actors that run in production, and a
// seed that decides who runs next, how long everything takes, and what fails.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "runtime/digest.hpp"
#include "runtime/result.hpp"

namespace weir {

struct SimulationOptions {
  std::uint64_t seed = 1;
  /// Deaths, restarts, hangs, cuts, slow and failing copies, refused memory, failing engines.
  /// Without them only the order of events and their durations vary.
  bool faults = true;
  /// Events after which a run counts as one that does not come to an end.
  std::uint64_t steps_max = 2'000'000;
  /// Keep one line for each fault and each switch of a version.
  bool narrate = false;
};

/// What a run was like. Two runs of one seed and one program are equal in everything.
struct SimulationReport {
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;        ///< Messages handled and events of the world.
  Duration time{};                ///< Of the world.
  std::uint64_t versions = 0;     ///< The newest version that became whole.
  std::uint64_t commits = 0;      ///< Switches of replicas.
  std::uint64_t batches = 0;      ///< Of samples that were trained; 0 in worlds without an owner.
  std::uint64_t bytes_moved = 0;  ///< Into rollouts' memory.
  std::uint64_t bytes_read_early = 0;  ///< Of those, from slots that were not whole yet.
  std::uint64_t decodes = 0;           ///< Steps of engines, each with all its bytes checked.
  std::uint64_t faults = 0;            ///< Injected.
  std::uint64_t restarts = 0;          ///< Of processes.
  Digest trace;                        ///< Over every choice in order.
  std::uint64_t last_draw = 0;         ///< One more random number, drawn at the end.
  std::vector<std::string> story;

  friend bool operator==(const SimulationReport&, const SimulationReport&) = default;
};

/// Runs one seed: trainers publish, rollouts generate, things fail; then nothing fails any more and
/// everything has to come to the newest version. In every second world an owner has samples
/// generated, of which the versions are trained; its batches have to go on, too, and all samples
/// have to be accounted for. The invariants are checked at every step of every engine and in every
/// batch. Takes about a tenth of a second. Threading: any number of calls at once.
/// Errors: `invalid`, the first broken invariant in one sentence with the seed and the time.
Result<SimulationReport> simulate(const SimulationOptions& options);

}  // namespace weir
