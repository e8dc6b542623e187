#pragma once
// One sample on its way from admission to its one end, as admission policies see it.

#include <cstdint>
#include <map>
#include <vector>

#include "actors/duration.hpp"

namespace weir {

/// Handed out by `AdmissionState`: rising in the order of the requests, never used again.
using SampleId = std::uint64_t;

/// Tokens of one sample that one version generated.
struct Span {
  std::uint64_t version = 0;
  std::uint64_t tokens = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

/// One try at generating a sample. A sample that is resumed or requeued is told from its earlier
/// tries by the number, so that a late word of one of those is not taken for the present one's.
struct Attempt {
  SampleId sample = 0;
  std::uint32_t number = 0;

  friend auto operator<=>(const Attempt&, const Attempt&) = default;
};

enum class SamplePhase : std::uint8_t {
  undispatched,  ///< Admitted, or requeued: no replica runs it.
  generating,    ///< A replica runs it.
  finished,      ///< In the queue for the trainer.
};

/// An admitted sample (a prompt group) that has not ended.
struct Sample {
  SamplePhase phase = SamplePhase::undispatched;
  std::vector<Span> spans;   ///< Versions rise. Empty until it is dispatched.
  std::uint64_t step = 0;    ///< Batches that had been handed over when it was admitted.
  std::uint64_t target = 0;  ///< The step it is meant for, where the policy gives it one.
  std::uint64_t prompt_tokens = 0;
  Duration deadline{};        ///< For it to be finished, since the owner's fixed moment.
  std::uint32_t attempt = 0;  ///< The number of the present or last one; 0 before the first.
  std::uint32_t deaths = 0;   ///< Replicas that died under it.
  std::uint32_t replica = 0;  ///< That runs it, or ran it last.
};

/// In the order of admission.
using Samples = std::map<SampleId, Sample>;

}  // namespace weir
