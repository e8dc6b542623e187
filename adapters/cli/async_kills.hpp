#pragma once
// Processes that an asynchronous demo kills on purpose: which, when, and whether they came back.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/cli/async_board.hpp"
#include "runtime/manifest.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

/// `rollout@3`, `trainer.0.1@2`, `rollout.1.0@3+120`: kill that process so many milliseconds after
/// the version has become READY.
struct KillOrder {
  ShardId shard;
  bool any = false;  ///< No shard was named: any of that side.
  std::uint64_t version = 0;
  std::chrono::milliseconds after{0};
};

/// Errors (`invalid`) say what a kill is written like.
Result<KillOrder> parse_kill(const std::string& text);

/// How one kill went.
struct Kill {
  enum class Stage : std::uint8_t { waiting, due, down, restarted, back };

  KillOrder order;
  Stage stage = Stage::waiting;
  std::chrono::nanoseconds at{};  ///< When the next stage is due.
  std::chrono::nanoseconds killed_at{};
  std::chrono::nanoseconds back_at{};
  std::uint64_t ready_then = 0;  ///< The newest version when it was killed.
  std::uint64_t life = 1;        ///< Of the process that takes its place.
};

/// The kills of a run, in their order. A plain value without clock: times are given to it.
class KillSchedule {
 public:
  /// `trainers` and `rollouts` are the shards that there are, for orders that name none; those that
  /// name one that there is not are `invalid`.
  static Result<KillSchedule> make(const std::vector<KillOrder>& orders,
                                   const std::vector<ShardId>& trainers,
                                   const std::vector<ShardId>& rollouts,
                                   std::chrono::nanoseconds restart_after);

  enum class Act : std::uint8_t { kill, restart };
  struct Step {
    Act act;
    std::size_t number;  ///< Of the kill.
  };
  /// What is to be done now that this version is READY. Each is told once.
  std::vector<Step> due(std::uint64_t ready, std::chrono::nanoseconds now);
  /// The process has staged or served a version, in that life.
  void seen(const ShardId& shard, std::uint64_t life, std::chrono::nanoseconds now);

  [[nodiscard]] const std::vector<Kill>& kills() const noexcept { return kills_; }
  /// Whether nothing is down, and nothing is going to be killed.
  [[nodiscard]] bool over() const noexcept;
  /// Whether something is down.
  [[nodiscard]] bool pending() const noexcept;

 private:
  [[nodiscard]] bool is_down(const ShardId& shard) const noexcept;

  std::vector<Kill> kills_;
  std::chrono::nanoseconds restart_after_{};
};

}  // namespace weir::cli
