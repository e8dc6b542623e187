#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/oracle/internal/narrowing.hpp"
#include "adapters/oracle/oracle.hpp"
#include "adapters/oracle/reference.hpp"
#include "runtime/planner.hpp"
#include "tests/adapters/oracle/random_cases.hpp"

namespace weir::oracle {
namespace {

// Goal: layouts, placement and planner together bring every byte of a rollout rank to its place,
// from any layout to any other. Method: trainers' memory is filled by the reference, the plan's
// copies are carried out by the plain loop below, and the reference compares every byte of every
// rollout rank. Neither the reference nor the loop knows pieces. `WEIR_SEED` sets the first case's
// seed.

constexpr int cases = 400;

/// One shard: its rank as the reference sees it, its manifest and its memory.
struct Shard {
  RankMemory memory;
  Manifest manifest;
  std::vector<std::byte> region;
  std::vector<int> writes;  ///< How often each byte was written.
};

using Shards = std::map<ShardId, std::unique_ptr<Shard>>;
using Canonical = std::vector<std::vector<std::byte>>;

/// Adds all shards of all replicas of one side. False where the layout refuses the model.
bool add_side(Shards& shards, const Model& model, const Canonical& canonical, Side side,
              const LayoutSpec& spec, std::uint32_t replicas) {
  const auto size = size_of(spec);
  if (!size) return false;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    for (std::uint32_t rank = 0; rank < size->ranks; ++rank) {
      const auto layout = lay_out(model, spec, rank);
      if (!layout) return false;
      const ShardId id{side, replica, rank};
      PlacedShard placement = place(model, *layout, id, size->ranks, RegionKind::host_private);
      auto shard = std::unique_ptr<Shard>(new Shard{{model, spec, rank, {}, {}, {}}, {}, {}, {}});
      for (std::size_t i = 0; i < layout->tensors.size(); ++i) {
        shard->memory.places.push_back({layout->tensors[i].name, placement.offsets[i]});
      }
      shard->memory.canonical = [&canonical](std::size_t tensor) {
        return std::span(canonical[tensor]);
      };
      shard->manifest = std::move(placement.manifest);
      shard->region.resize(placement.region_bytes);
      shard->writes.resize(placement.region_bytes);
      shards[id] = std::move(shard);
    }
  }
  return true;
}

/// One element after another, as `Copy` is defined.
void carry_out(const Copy& copy, const Shard& source, Shard& target) {
  if (copy.source_region != 0 || copy.target_region != 0) FAIL("a region that there is not");
  const std::size_t from = size_of(copy.source_type);
  const std::size_t to = size_of(copy.target_type);
  Dims index = Dims::filled(copy.extent.rank(), 0);
  for (std::int64_t i = 0; i < element_count(copy.extent); ++i) {
    std::uint64_t source_at = copy.source_offset;
    std::uint64_t target_at = copy.target_offset;
    for (int dim = 0; dim < copy.extent.rank(); ++dim) {
      source_at += static_cast<std::uint64_t>(index[dim] * copy.source_stride[dim]);
      target_at += static_cast<std::uint64_t>(index[dim] * copy.target_stride[dim]);
    }
    if (source_at + from > source.region.size()) FAIL("reads outside its source");
    if (target_at + to > target.region.size()) FAIL("writes outside its target");
    const auto read = std::span(source.region).subspan(source_at, from);
    const auto write = std::span(target.region).subspan(target_at, to);
    if (copy.source_type == copy.target_type) {
      std::copy(read.begin(), read.end(), write.begin());
    } else {
      internal::convert(copy.source_type, copy.target_type, read, write);
    }
    for (std::size_t byte = 0; byte < to; ++byte) ++target.writes[target_at + byte];
    for (int dim = copy.extent.rank() - 1; dim >= 0 && ++index[dim] == copy.extent[dim]; --dim) {
      index[dim] = 0;
    }
  }
}

/// Bytes of the rank that are not padding, by the oracle's rows.
std::uint64_t needed_bytes(const RankMemory& memory) {
  std::uint64_t bytes = 0;
  const auto locals = rank_of(memory.model, memory.spec, memory.rank);
  REQUIRE(locals.has_value());
  for (const LocalTensor& local : *locals) {
    for (const Row& row : local.rows) {
      if (row.tensor == padding) continue;
      bytes += static_cast<std::uint64_t>(local.columns) * size_of(local.type);
    }
  }
  return bytes;
}

Canonical random_bytes(const Model& model, Dice& dice) {
  Canonical canonical;
  for (const Tensor& tensor : model.tensors) {
    auto& bytes = canonical.emplace_back(static_cast<std::size_t>(element_count(tensor.shape)) *
                                         size_of(tensor.type));
    // No bit that makes a float infinite or NaN.
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(dice.between(0, 255) & 0xbf);
  }
  return canonical;
}

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
  CHECK(pairs.size() == 25);  // Five layouts, each to each.
}

}  // namespace weir::oracle
