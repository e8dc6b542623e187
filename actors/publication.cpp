#include "actors/publication.hpp"

#include <algorithm>

#include "runtime/assert.hpp"

namespace weir {

Publication::Publication(std::uint64_t version, std::uint64_t bytes_needed, std::uint32_t trainers,
                         std::uint32_t replicas, Duration now)
    : trainers_(trainers), replicas_(replicas), begun_at_(now) {
  report_.version = version;
  report_.bytes_needed = bytes_needed;
}

void Publication::staged(Duration now) {
  WEIR_ASSERT(staged_ < trainers_);
  ++staged_;
  staged_at_ = std::max(staged_at_, now);
  report_.update = staged_at_ - begun_at_;
}

void Publication::committed(std::uint32_t replica, std::uint64_t bytes_moved, Duration at) {
  if (!committed_.insert(replica).second) return;
  report_.bytes_moved += bytes_moved;
  committed_at_ = std::max(committed_at_, at);
}

bool Publication::complete() const noexcept {
  return staged_ == trainers_ && committed_.size() == replicas_;
}

bool Publication::verified(Duration slowest) {
  WEIR_ASSERT(complete() && verified_ < replicas_);
  ++verified_;
  report_.verify = std::max(report_.verify, slowest);
  return verified_ == replicas_;
}

VersionReport Publication::report() const {
  VersionReport report = report_;
  // The word that all have staged it may come after the first replicas have begun to fetch.
  report.publish = std::max(Duration{}, committed_at_ - staged_at_);
  return report;
}

}  // namespace weir
