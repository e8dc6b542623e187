#include "actors/publication.hpp"

#include <algorithm>

#include "runtime/assert.hpp"

namespace weir {

Publication::Publication(std::uint64_t version, std::uint64_t bytes_needed, std::uint32_t replicas,
                         Duration now)
    : replicas_(replicas), begun_at_(now) {
  report_.version = version;
  report_.bytes_needed = bytes_needed;
}

void Publication::ready(Duration now) {
  ready_at_ = now;
  report_.update = now - begun_at_;
}

bool Publication::committed(std::uint64_t bytes_moved, Duration at) {
  WEIR_ASSERT(committed_ < replicas_);
  ++committed_;
  report_.bytes_moved += bytes_moved;
  report_.publish = std::max(report_.publish, at - ready_at_);
  return committed_ == replicas_;
}

bool Publication::verified(Duration slowest) {
  WEIR_ASSERT(committed_ == replicas_ && verified_ < replicas_);
  ++verified_;
  report_.verify = std::max(report_.verify, slowest);
  return verified_ == replicas_;
}

}  // namespace weir
