#include "actors/internal/sim_messages.hpp"

#include <optional>

#include "actors/internal/errors.hpp"
#include "actors/internal/sim_world.hpp"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t steps_max = 10'000'000;

/// Asks the exchange for something as its owner does, and lets the world go on until it is
/// answered.
template <class Answer, class... Question>
Result<void> ask(World& world, Question... question) {
  std::optional<Result<void>> answer;
  caf::actor_system& system = world.exchange_process()->system();
  const caf::actor asker = system.spawn([&](caf::event_based_actor* self) {
    self->request(world.supervisor(), caf::infinite, question...)
        .then([&answer](const Answer&) { answer = Result<void>(); },
              [&answer](caf::error& error) { answer = tl::unexpected(from_caf(error)); });
  });
  world.run_until([&answer] { return answer.has_value(); }, 600s, steps_max);
  if (answer) return *answer;
  // It would answer into what is gone by then.
  caf::anon_send_exit(asker, caf::exit_reason::kill);
  return failure(ErrorCode::timeout, world.broken().value_or("the exchange did not answer"));
}

}  // namespace

Result<std::uint64_t> messages_of_publication(std::uint32_t trainers, std::uint32_t rollouts) {
  Scene scene;
  scene.exchange.trainer_ranks = trainers;
  scene.exchange.rollout_ranks = rollouts;
  scene.placements = {Placement::in_place};
  World world(1, scene);
  world.model.rows = 2 * std::int64_t{trainers};
  world.model.columns = 2 * std::int64_t{rollouts};
  // Trainers publish nothing of their own accord.
  world.finish_at(0);
  world.start();
  if (const auto joined = ask<PlanPtr>(world, PlanAtom::value); !joined) return failure(joined);
  // The first version finds engines that do not generate yet, and so are not paused.
  std::uint64_t before = 0;
  for (const std::uint64_t version : {1U, 2U}) {
    before = world.net().messages();
    const auto done = ask<VersionReport>(world, PublishAtom::value, version);
    if (!done) return failure(done);
  }
  return world.net().messages() - before;
}

}  // namespace weir::sim
