#pragma once
// One version on its way from the request to the last verification, and how long each step took.

#include <cstdint>

#include "actors/exchange.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Collects what the replicas report of one version into a `VersionReport`. Replicas are told to
/// verify only after all have committed, so that verification does not disturb what is measured.
/// A plain value: times are given to it, as durations since any one moment.
class Publication {
 public:
  Publication(std::uint64_t version, std::uint64_t bytes_needed, std::uint32_t replicas,
              Duration now);

  /// All trainer shards have staged it.
  void ready(Duration now);
  /// One replica has committed it at `at`. Returns whether all have.
  bool committed(std::uint64_t bytes_moved, Duration at);
  /// One replica has verified it, its slowest shard in `slowest`. Returns whether all have.
  bool verified(Duration slowest);

  [[nodiscard]] const VersionReport& report() const noexcept { return report_; }

 private:
  VersionReport report_;
  std::uint32_t replicas_;
  std::uint32_t committed_ = 0;
  std::uint32_t verified_ = 0;
  Duration begun_at_;
  Duration ready_at_{};
};

}  // namespace weir
