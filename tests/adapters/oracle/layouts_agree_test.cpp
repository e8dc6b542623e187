#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/oracle/oracle.hpp"
#include "tests/adapters/oracle/random_cases.hpp"

namespace weir::oracle {
namespace {

// Goal: the layouts, which write boxes, and the oracle, which writes rows, say the same of every
// element, although they share no code. Method: thousands of random models and configurations;
// each rank's pieces are spelled out element by element into the dense local tensor and compared
// with the rows. Both must also refuse the same cases. `WEIR_SEED` sets the first case's seed.

constexpr int cases = 2000;

/// Where one local element comes from: tensor (or `padding`) and flat canonical index.
using Origin = std::pair<std::int64_t, std::int64_t>;
constexpr Origin nowhere{padding, 0};

std::string text_of(const Model& model, const Origin& origin) {
  if (origin.first == padding) return "padding";
  return model.tensors[static_cast<std::size_t>(origin.first)].name + " element " +
         std::to_string(origin.second);
}

std::vector<Origin> origins_of(const Model& model, const LocalTensor& local) {
  std::vector<Origin> origins;
  origins.reserve(local.rows.size() * static_cast<std::size_t>(local.columns));
  for (const Row& row : local.rows) {
    std::int64_t columns = 1;
    if (row.tensor != padding) {
      const Dims& shape = model.tensors[static_cast<std::size_t>(row.tensor)].shape;
      for (int dim = 1; dim < shape.rank(); ++dim) columns *= shape[dim];
    }
    for (std::int64_t c = 0; c < local.columns; ++c) {
      const std::int64_t column = row.column + (local.first_column + c) * row.step;
      origins.push_back(row.tensor == padding ? nowhere
                                              : Origin{row.tensor, row.row * columns + column});
    }
  }
  return origins;
}

/// Fails on a piece that leaves its tensor or the local tensor, or on an element claimed twice.
std::vector<Origin> origins_of(const Model& model, const weir::LocalTensor& local) {
  const std::int64_t count =
      std::accumulate(local.shape.begin(), local.shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<Origin> origins(static_cast<std::size_t>(count), nowhere);
  for (const LocalPiece& piece : local.pieces) {
    if (piece.tensor >= model.tensors.size()) FAIL(local.name << ": a tensor that there is not");
    const Dims& shape = model.tensors[piece.tensor].shape;
    if (!fits(piece.box, shape))
      FAIL(local.name << ": box " << text_of(piece.box) << " leaves its tensor");
    const Dims dense = dense_strides(shape, 1);
    Dims index = Dims::filled(shape.rank(), 0);
    for (std::int64_t i = 0; i < element_count(piece.box.extent); ++i) {
      std::int64_t canonical = 0;
      std::int64_t at = piece.offset;
      for (int dim = 0; dim < shape.rank(); ++dim) {
        canonical += (piece.box.start[dim] + index[dim]) * dense[dim];
        at += index[dim] * piece.stride[dim];
      }
      if (at < 0 || at >= count) FAIL("a piece leaves " << local.name);
      Origin& origin = origins[static_cast<std::size_t>(at)];
      if (origin != nowhere) FAIL("element " << at << " of " << local.name << " claimed twice");
      origin = {static_cast<std::int64_t>(piece.tensor), canonical};
      for (int dim = shape.rank() - 1; dim >= 0 && ++index[dim] == piece.box.extent[dim]; --dim) {
        index[dim] = 0;
      }
    }
  }
  return origins;
}

void compare(const Model& model, const weir::LocalTensor& local, const LocalTensor& oracle) {
  if (local.name != oracle.name) FAIL(local.name << ": the oracle has " << oracle.name << " here");
  if (local.shape != oracle.shape) {
    FAIL(local.name << " has shape " << weir::text_of(Dims(local.shape)) << ", by the oracle "
                    << weir::text_of(Dims(oracle.shape)));
  }
  if (local.type != oracle.type) {
    FAIL(local.name << " has type " << name_of(local.type) << ", by the oracle "
                    << name_of(oracle.type));
  }
  if (local.less_one != oracle.less_one) FAIL(local.name << ": kept less one by one of both only");
  const std::vector<Origin> ours = origins_of(model, local);
  const std::vector<Origin> theirs = origins_of(model, oracle);
  if (ours.size() != theirs.size())
    FAIL(local.name << ": the oracle counts " << theirs.size() << " elements");
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    FAIL("element " << i << " of " << local.name << " is " << text_of(model, ours[i])
                    << ", by the oracle " << text_of(model, theirs[i]));
  }
}

std::int64_t option(const LayoutSpec& spec, const std::string& name) {
  const auto found = spec.options.find(name);
  return found == spec.options.end() ? 1 : found->second;
}

/// Ranks of a replica, by the rule of each engine.
std::int64_t ranks_of(const LayoutSpec& spec) {
  const auto of = [&](const char* name) { return option(spec, name); };
  if (spec.name == "hf") return 1;
  if (spec.name == "fsdp2") return of("dp");
  if (spec.name == "sglang") return of("tp") * of("pp");
  if (spec.name == "vllm") return of("tp") * of("pp") * of("dp");
  const std::int64_t etp = spec.options.contains("etp") ? of("etp") : of("tp");
  return std::lcm(of("tp") * of("cp"), etp * of("ep")) * of("pp");
}

/// Returns whether both accept the rank.
bool compare_rank(const RandomCase& random, std::uint32_t rank) {
  INFO("rank " << rank);
  const auto layout = lay_out(random.model, random.spec, rank);
  const auto oracle = rank_of(random.model, random.spec, rank);
  if (!layout && !oracle) return false;
  if (!layout) FAIL("only the layout refuses: " << layout.error().text);
  if (!oracle) FAIL("only the oracle refuses: " << oracle.error().text);
  if (layout->tensors.size() != oracle->size()) {
    FAIL(layout->tensors.size() << " local tensors, by the oracle " << oracle->size());
  }
  for (std::size_t i = 0; i < oracle->size(); ++i) {
    compare(random.model, layout->tensors[i], (*oracle)[i]);
  }
  return true;
}

}  // namespace

TEST_CASE("layouts and oracle agree on every element of random configurations", "[oracle]") {
  const std::uint64_t seed = seed_from_environment();
  std::printf("layouts agree: %d random cases from WEIR_SEED=%llu\n", cases,
              static_cast<unsigned long long>(seed));
  std::map<std::string, int> accepted;
  for (std::uint64_t i = 0; i < cases; ++i) {
    Dice dice(seed + i);
    const RandomCase random = random_case(dice);
    INFO("WEIR_SEED=" << seed + i << ": " << text_of(random));
    const auto size = size_of(random.spec);
    if (!size) {  // The options contradict each other, whatever the model.
      if (compare_rank(random, 0)) FAIL("accepted, but has no size: " << size.error().text);
      continue;
    }
    const bool megatron = random.spec.name == "megatron";
    const std::int64_t ranks = ranks_of(random.spec);
    if (size->ranks != ranks) FAIL(size->ranks << " ranks and not " << ranks);
    const std::int64_t replicas = option(random.spec, megatron ? "dp" : "hsdp");
    if (size->replicas != replicas) FAIL(size->replicas << " replicas and not " << replicas);
    if (!compare_rank(random, 0)) continue;
    ++accepted[random.spec.name];
    for (std::uint32_t rank = 1; rank < ranks; ++rank) {
      // A stage may lack the tensor that another one is refused for.
      compare_rank(random, rank);
    }
    if (compare_rank(random, size->ranks)) FAIL("a rank that there is not is accepted");
  }
  // Enough of the cases fit; if not, the generator has gone astray and the test means little.
  CHECK(accepted["megatron"] > cases / 12);
  CHECK(accepted["vllm"] > cases / 12);
  CHECK(accepted["sglang"] > cases / 12);
  CHECK(accepted["fsdp2"] > cases / 12);
  CHECK(accepted["hf"] > cases / 12);
}

TEST_CASE("a config implies the tensors that are listed by hand", "[oracle]") {
  const std::uint64_t seed = seed_from_environment();
  for (std::uint64_t i = 0; i < 200; ++i) {
    Dice dice(seed + i);
    const ModelConfig config = random_config(dice, random_tp(dice));
    INFO("WEIR_SEED=" << seed + i << ": " << text_of(RandomCase{decoder_model(config), {}}));
    const Result<Model> model = model_of(config);
    if (config.num_attention_heads % config.num_key_value_heads != 0) {
      if (model) FAIL("accepted, although heads do not make whole groups");
      continue;
    }
    if (!model) FAIL(model.error().text);
    if (*model != decoder_model(config)) FAIL("model_of says otherwise");
  }
}

}  // namespace weir::oracle
