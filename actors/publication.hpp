#pragma once
// One version on its way from the owner's request to the last verification, and how long each step
// took.

#include <cstdint>
#include <optional>
#include <set>

#include "actors/exchange.hpp"
#include "runtime/result.hpp"

namespace weir {

/// Collects what trainers and replicas report of one version into a `VersionReport`. Replicas are
/// told to verify only after all have committed, so that verification does not disturb what is
/// measured. A plain value: times are given to it, as durations since any one moment.
class Publication {
 public:
  Publication(std::uint64_t version, std::uint64_t bytes_needed, std::uint32_t trainers,
              std::uint32_t replicas, Duration now);

  /// One trainer shard has staged it.
  void staged(Duration now);
  /// One replica has committed it, or a newer one, at `at`. Once more is no error.
  void committed(std::uint32_t replica, std::uint64_t bytes_moved, Duration at);
  /// Whether all trainer shards have staged it and all replicas have committed it.
  [[nodiscard]] bool complete() const noexcept;
  /// One replica has verified it, its slowest shard in `slowest`. Returns whether all have.
  bool verified(Duration slowest);

  [[nodiscard]] bool has_committed(std::uint32_t replica) const {
    return committed_.contains(replica);
  }
  /// Its publication time is complete with `complete`, the whole with the last verification.
  [[nodiscard]] VersionReport report() const;

 private:
  VersionReport report_;
  std::uint32_t trainers_;
  std::uint32_t replicas_;
  std::uint32_t staged_ = 0;
  std::set<std::uint32_t> committed_;
  std::uint32_t verified_ = 0;
  Duration begun_at_;
  Duration staged_at_{};
  Duration committed_at_{};
};

}  // namespace weir
