#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <set>
#include <utility>
#include <vector>

#include "tests/adapters/oracle/carried_plan.hpp"
#include "tests/adapters/oracle/random_cases.hpp"

namespace weir::oracle {
namespace {

// Goal: layouts, placement and planner together bring every byte of a rollout rank to its place,
// from any layout to any other. Method: trainers' memory is filled by the reference, the plan's
// copies are carried out by the plain loop below, and the reference compares every byte of every
// rollout rank. Neither the reference nor the loop knows pieces. `WEIR_SEED` sets the first case's
// seed.

constexpr int cases = 250;

struct Pair {
  Model model;
  LayoutSpec train;
  LayoutSpec rollout;
};

/// `number` goes through all pairs of layouts in turn.
Pair random_pair(Dice& dice, int number) {
  const char* const names[] = {"megatron", "vllm", "sglang", "fsdp2", "hf"};
  if (dice.one_in(5)) {  // A model that no engine's rules know.
    ModelConfig none;
    Pair pair{random_tensors(dice), {}, {}};
    pair.train = random_layout(dice, names[dice.between(3, 4)], 1, none);
    pair.rollout = random_layout(dice, names[dice.between(3, 4)], 1, none);
    return pair;
  }
  const std::int64_t train_tp = random_tp(dice);
  const std::int64_t rollout_tp = random_tp(dice);
  ModelConfig config = random_config(dice, std::lcm(train_tp, rollout_tp));
  config.hidden_size = dice.between(1, 3);
  config.vocab_size = dice.between(1, 100);
  const std::string train_name = names[number % 5];
  const std::string rollout_name = names[number / 5 % 5];
  const LayoutSpec train = random_layout(dice, train_name, train_tp, config);
  const LayoutSpec rollout = random_layout(dice, rollout_name, rollout_tp, config);
  return {decoder_model(config), train, rollout};
}

/// Returns whether the case was carried out; false where a layout does not fit the model.
bool reshard(const Pair& pair, Dice& dice, Workers& workers) {
  const Canonical canonical = random_bytes(pair.model, dice);
  const auto version = static_cast<std::uint64_t>(dice.between(0, 9));
  Shards shards;
  const auto replicas = [&] { return static_cast<std::uint32_t>(dice.between(1, 3)); };
  if (!add_side(shards, pair.model, canonical, Side::trainer, pair.train, replicas()) ||
      !add_side(shards, pair.model, canonical, Side::rollout, pair.rollout, replicas())) {
    return false;
  }
  std::vector<Manifest> manifests;
  for (const auto& [id, shard] : shards) {
    manifests.push_back(shard->manifest);
    if (id.side == Side::rollout) {
      shard->memory.passed_through = pair.train.dtype;
      continue;
    }
    const auto filled = fill_rank(shard->memory, version, shard->region, workers);
    if (!filled) FAIL(filled.error().text);
  }
  const Result<Plan> plan = make_plan(manifests);
  const auto left_out = [&](const LayoutSpec& spec) {
    return !lay_out(pair.model, spec, 0)->left_out.empty();
  };
  if (left_out(pair.train) && !left_out(pair.rollout)) {
    if (plan) FAIL("the trainers have no layers of MTP, and yet the rollout ranks get some");
    return false;
  }
  if (!plan) FAIL("no plan: " << plan.error().text);
  if (plan->unused.empty() != (left_out(pair.train) || !left_out(pair.rollout))) {
    FAIL(plan->unused.size() << " tensors are said not to be used");
  }
  for (const PlanPart& part : plan->parts) {
    INFO("into " << text_of(part.target));
    Shard& target = *shards.at(part.target);
    std::uint64_t bytes = 0;
    for (const Copy& copy : part.copies) {
      carry_out(copy, *shards.at(plan->sources.at(copy.source).shard), target);
      bytes += target_bytes(copy);
    }
    for (std::size_t i = 0; i < target.writes.size(); ++i) {
      if (target.writes[i] > 1)
        FAIL("byte " << i << " is written " << target.writes[i] << " times");
    }
    if (bytes != needed_bytes(target.memory)) {
      FAIL(bytes << " bytes written, needed are " << needed_bytes(target.memory));
    }
    const auto compared = compare_rank(target.memory, version, target.region, workers);
    if (!compared) FAIL(compared.error().text);
  }
  return true;
}

}  // namespace

TEST_CASE("a plan between any two layouts brings every byte of every rollout rank", "[oracle]") {
  const std::uint64_t seed = seed_from_environment();
  std::printf("plans agree: %d random pairs from WEIR_SEED=%llu\n", cases,
              static_cast<unsigned long long>(seed));
  Workers workers(1);
  std::set<std::pair<std::string, std::string>> pairs;
  int done = 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    Dice dice(seed + i);
    const Pair pair = random_pair(dice, static_cast<int>(i));
    INFO("WEIR_SEED=" << seed + i << ": from " << text_of(pair.train) << " to "
                      << text_of(RandomCase{pair.model, pair.rollout}));
    if (!reshard(pair, dice, workers)) continue;
    pairs.emplace(pair.train.name, pair.rollout.name);
    ++done;
  }
  CHECK(done > cases / 3);
  CHECK(pairs.size() > 20);  // Of 25: five layouts, each to each, not all of which a seed need fit.
}

}  // namespace weir::oracle
