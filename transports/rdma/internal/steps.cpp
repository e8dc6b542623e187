#include "transports/rdma/internal/steps.hpp"

#include <optional>

#include "runtime/strided_copy.hpp"

namespace weir::rdma {
namespace {

std::uint64_t reads_of(const Runs& runs, std::uint64_t message_bytes_max) {
  const std::uint64_t each = (runs.run_bytes + message_bytes_max - 1) / message_bytes_max;
  return runs.bytes() / runs.run_bytes * each;
}

/// How many bytes 32 READs of that length bring, within a limit.
std::uint64_t bytes_of_reads(std::uint64_t run_bytes, std::uint64_t message_bytes_max,
                             std::uint64_t limit) {
  return std::min(limit, reads_per_step_max * std::min(run_bytes, message_bytes_max));
}

bool is_straight(const Copy& copy) {
  const std::optional<Runs> runs = direct_runs(copy);
  return runs && (runs->rank == 0 || runs->run_bytes >= straight_run_bytes_min);
}

}  // namespace

std::vector<Step> cut_to_steps(const Copy& copy, std::uint64_t message_bytes_max) {
  const bool packed = !is_straight(copy);
  std::vector<Step> steps;
  std::vector<Copy> open{copy};
  while (!open.empty()) {
    Step step{.copy = open.back(), .packed = packed};
    open.pop_back();
    const Runs runs = runs_of(step);
    const std::uint64_t reads = reads_of(runs, message_bytes_max);
    const std::uint64_t most =
        bytes_of_reads(runs.run_bytes, message_bytes_max, packed ? bounce_bytes : step_bytes_max);
    if (runs.bytes() <= most && reads <= reads_per_step_max) {
      step.reads = static_cast<std::uint32_t>(reads);
      step.bytes = runs.bytes();
      steps.push_back(step);
      continue;
    }
    // Half of it at least is less than all of it, however long runs and messages are.
    const std::uint64_t part_bytes = std::min(most, runs.bytes() / 2);
    const std::vector<Copy> parts =
        packed ? cut_to_fit(step.copy, gap_bytes_max, part_bytes) : split(step.copy, part_bytes);
    open.insert(open.end(), parts.rbegin(), parts.rend());
  }
  return steps;
}

Runs runs_of(const Step& step) {
  // A part of a straight copy is straight, if with shorter runs where the cut went through one.
  return step.packed ? pack(step.copy, gap_bytes_max).runs : *direct_runs(step.copy);
}

Copy from_bounce(const Step& step) {
  return pack(step.copy, gap_bytes_max).from_packed;
}

}  // namespace weir::rdma
