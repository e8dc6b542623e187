#pragma once
// Stories in simulated worlds: what the owner of an exchange asks for and is told, and how far
// everyone is.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/internal/errors.hpp"
#include "actors/internal/sim_world.hpp"
#include "tests/actors/shown_results.hpp"

namespace weir {

using sim::HookKind;
using sim::HookManner;
using sim::Host;
using sim::Net;
using sim::Scene;

/// The answer to a request, once there is one.
template <class T>
using Answer = std::shared_ptr<std::optional<Result<T>>>;

/// One trainer replica of two ranks and rollout replicas of two ranks, which all place versions in
/// the same way.
inline Scene scene_of(std::uint32_t replicas, Placement placement) {
  Scene scene;
  scene.exchange.trainer_ranks = 2;
  scene.exchange.rollout_replicas = replicas;
  scene.exchange.rollout_ranks = 2;
  scene.trainer_slots = 2;
  scene.placements.assign(replicas, placement);
  return scene;
}

/// A world whose trainers publish when they are told: by the owner (`publish`), or of their own
/// accord (`go_to`); a story uses one of the two.
class Story {
 public:
  Story(std::uint64_t seed, const Scene& scene) : world(seed, scene) {
    world.narrate = true;
    world.finish_at(0);
    world.start();
  }

  // ---- the owner ---------------------------------------------------------------------------

  template <class T, class... Ts>
  Answer<T> ask(Ts... content) {
    auto answer = std::make_shared<std::optional<Result<T>>>();
    const caf::actor asker = world.exchange_process()->system().spawn(
        [answer, supervisor = world.supervisor(), content...](caf::event_based_actor* self) {
          self->request(supervisor, caf::infinite, content...)
              .then([answer](const T& value) { *answer = Result<T>(value); },
                    [answer](caf::error& error) {
                      *answer = Result<T>(tl::unexpected(from_caf(error)));
                    });
        });
    world.exchange_process()->actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(asker));
    return answer;
  }
  Answer<PlanPtr> await_plan() { return ask<PlanPtr>(PlanAtom::value); }
  Answer<VersionReport> publish(std::uint64_t version) {
    return ask<VersionReport>(PublishAtom::value, version);
  }
  void abort(const std::string& why) {
    caf::anon_send(world.supervisor(), FailAtom::value, Error{ErrorCode::unavailable, why});
  }

  template <class T>
  Result<T> outcome(const Answer<T>& answer, Duration patience = std::chrono::minutes(20)) {
    until([&answer] { return answer->has_value(); }, patience);
    return **answer;
  }
  VersionReport must_publish(std::uint64_t version) {
    REQUIRE(outcome(await_plan()));
    const auto report = outcome(publish(version));
    REQUIRE(report);
    return *report;
  }
  ExchangeStatus status() {
    const auto status = outcome(ask<ExchangeStatus>(StatusAtom::value));
    REQUIRE(status);
    return *status;
  }

  // ---- time --------------------------------------------------------------------------------

  template <class Done>
  void until(const Done& done, Duration patience = std::chrono::minutes(20)) {
    const bool came = world.run_until(done, patience, steps_max);
    if (came && !world.broken()) return;
    world.describe();
    std::string text = "time " + std::to_string(now().count()) + " ns";
    for (const std::string& line : world.story) text += "\n" + line;
    INFO(text);
    REQUIRE_FALSE(world.broken());
    REQUIRE(came);
  }
  /// Lets that much time pass, with whatever happens meanwhile.
  void pass(Duration time) {
    const Duration then = now() + time;
    until([this, then] { return now() >= then; }, time + std::chrono::hours(1));
  }
  [[nodiscard]] Duration now() { return world.net().now(); }

  // ---- trainers of their own accord --------------------------------------------------------

  /// Trainers publish versions up to that one.
  void go_to(std::uint64_t version) {
    // What they had begun comes to its end first.
    pass(2 * world.scene().train_time);
    world.finish_at(version);
    for (Host* host : world.hosts()) {
      if (host->shard.side == Side::trainer && host->up()) host->train();
    }
  }
  void settle(std::uint64_t version) {
    go_to(version);
    until([this, version] { return world.settled(version); });
  }

  // ---- how far everyone is -----------------------------------------------------------------

  [[nodiscard]] Host& trainer(std::uint32_t replica, std::uint32_t rank) const {
    return *world.host({Side::trainer, replica, rank});
  }
  [[nodiscard]] Host& rollout(std::uint32_t replica, std::uint32_t rank) const {
    return *world.host({Side::rollout, replica, rank});
  }
  [[nodiscard]] bool serves(std::uint32_t replica, std::uint64_t version) const {
    for (std::uint32_t rank = 0; rank < world.scene().exchange.rollout_ranks; ++rank) {
      const Host& host = rollout(replica, rank);
      if (!host.up() || !host.running || host.version != version) return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t bytes_written() { return world.bytes().bytes_written(); }
  /// What one replica needs of each version: all of the matrix.
  [[nodiscard]] std::uint64_t bytes_of_replica() const {
    return 4 * static_cast<std::uint64_t>(world.model.rows * world.model.columns);
  }

  sim::World world;

 private:
  static constexpr std::uint64_t steps_max = 20'000'000;
};

}  // namespace weir
