#include "runtime/planner.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>

#include "tests/runtime/planner_shards.hpp"

namespace weir {

// Goal: what a plan looks like, how it balances, and that each error names what is wrong.
// Method: small manifests by hand, plans worked out by hand. That every byte arrives is shown by
// planner_oracle_test.cpp with random manifests.

namespace {

using namespace testing;

Plan plan_of(const std::vector<Shard>& shards) {
  const auto plan = make_plan(members(shards));
  if (!plan) FAIL(plan.error().text);
  return *plan;
}

CopyList only_copies(const std::vector<Shard>& shards) {
  const Plan plan = plan_of(shards);
  REQUIRE(plan.parts.size() == 1);
  return plan.parts[0].copies;
}

Error error_of(const std::vector<Manifest>& manifests) {
  const auto plan = make_plan(manifests);
  REQUIRE_FALSE(plan);
  REQUIRE(plan.error().text.find('\n') == std::string::npos);
  return plan.error();
}

std::string error_of(const std::vector<Shard>& shards) {
  return error_of(members(shards)).text;
}

/// A copy between regions 0 of source 0 and the target, from bf16 to bf16.
Copy copy_of(std::uint64_t from, std::uint64_t to, const Dims& extent, const Dims& source_stride,
             const Dims& target_stride) {
  Copy copy;
  copy.source_offset = from;
  copy.target_offset = to;
  copy.extent = extent;
  copy.source_stride = source_stride;
  copy.target_stride = target_stride;
  return copy;
}

}  // namespace

TEST_CASE("equal layouts become one copy, across tensors", "[runtime][planner]") {
  const auto copies = only_copies({trainer().add("a", {4, 8}).add("b", {5}).add("c", {}),
                                   rollout().add("a", {4, 8}).add("b", {5}).add("c", {})});
  REQUIRE(copies == std::vector{copy_of(0, 0, {38}, {2}, {2})});
}

TEST_CASE("a transposed target is one copy whose loops go by falling target stride",
          "[runtime][planner]") {
  const auto copies =
      only_copies({trainer().add("a", {4, 8}),
                   rollout().bytes(64).put("a", {4, 8}, Box::whole({4, 8}), 0, {2, 8})});
  REQUIRE(copies == std::vector{copy_of(0, 0, {8, 4}, {2, 16}, {8, 2})});
}

TEST_CASE("a scalar is one copy of no dimensions", "[runtime][planner]") {
  const auto copies =
      only_copies({trainer().add("a", {3}).add("s", {}, f32), rollout().add("s", {}, bf16)});
  REQUIRE(copies.size() == 1);
  REQUIRE(copies[0].extent == Dims{});
  REQUIRE(copies[0].source_offset == 6);
  REQUIRE(copies[0].source_type == f32);
  REQUIRE(copies[0].target_type == bf16);
}

TEST_CASE("rows at even distances are one copy, never one each", "[runtime][planner]") {
  // The trainer holds [q0 k0 q1 k1], two rows of four each; the rollout wants [q; k].
  Shard from = trainer();
  for (std::int64_t group = 0; group < 2; ++group) {
    from.add("q", {4, 4}, {{2 * group, 0}, {2, 4}}).add("k", {4, 4}, {{2 * group, 0}, {2, 4}});
  }
  const auto copies = only_copies({from, rollout().add("q", {4, 4}).add("k", {4, 4})});
  REQUIRE(copies == std::vector{copy_of(0, 0, {2, 8}, {32, 2}, {16, 2}),
                                copy_of(16, 32, {2, 8}, {32, 2}, {16, 2})});
}

TEST_CASE("columns of one matrix that interleave in memory do not overlap", "[runtime][planner]") {
  const Dims row{16, 2};
  const auto copies = only_copies({trainer().add("a", {4, 3}).add("b", {4, 5}),
                                   rollout()
                                       .bytes(64)
                                       .put("a", {4, 3}, Box::whole({4, 3}), 0, row)
                                       .put("b", {4, 5}, Box::whole({4, 5}), 6, row)});
  REQUIRE(copies == std::vector{copy_of(0, 0, {4, 3}, {6, 2}, {16, 2}),
                                copy_of(24, 6, {4, 5}, {10, 2}, {16, 2})});
}

TEST_CASE("a target cut otherwise than its sources takes from each what it holds",
          "[runtime][planner]") {
  // Rows 0-2 and 3-4 at the trainers, columns 0-1 and 2-3 at the rollouts.
  const Plan plan = plan_of({trainer(0, 0, 2).add("a", {5, 4}, {{0, 0}, {3, 4}}),
                             trainer(0, 1, 2).add("a", {5, 4}, {{3, 0}, {2, 4}}),
                             rollout(0, 0, 2).add("a", {5, 4}, {{0, 0}, {5, 2}}),
                             rollout(0, 1, 2).add("a", {5, 4}, {{0, 2}, {5, 2}})});
  REQUIRE(plan.sources.size() == 2);
  REQUIRE(plan.parts.size() == 2);
  Copy low = copy_of(4, 0, {3, 2}, {8, 2}, {4, 2});
  Copy high = copy_of(4, 12, {2, 2}, {8, 2}, {4, 2});
  high.source = 1;
  REQUIRE(plan.parts[1].copies == std::vector{low, high});
}

TEST_CASE("source tensors that nobody needs are listed", "[runtime][planner]") {
  const Plan plan =
      plan_of({trainer().add("z", {1}).add("b", {1}).add("a", {1}), rollout().add("b", {1})});
  REQUIRE(plan.unused == std::vector<std::string>{"a", "z"});
  REQUIRE(plan.digest == digest_of(plan));
}

TEST_CASE("equal replicas serve equal bytes", "[runtime][planner]") {
  std::vector<Shard> shards;
  for (std::uint32_t replica = 0; replica < 4; ++replica) {
    shards.push_back(trainer(replica));
    for (int tensor = 0; tensor < 8; ++tensor) {
      shards.back().add("t" + std::to_string(tensor), {100});
    }
  }
  shards.push_back(rollout());
  for (int tensor = 0; tensor < 8; ++tensor) {
    shards.back().add("t" + std::to_string(tensor), {100});
  }
  REQUIRE(served_bytes(plan_of(shards)) == std::vector<std::uint64_t>{400, 400, 400, 400});
}

TEST_CASE("replicas that cut tensors differently share the bytes", "[runtime][planner]") {
  std::vector<Shard> shards = {trainer(0, 0, 1), trainer(1, 0, 2), trainer(1, 1, 2), rollout()};
  for (int tensor = 0; tensor < 30; ++tensor) {
    const std::string name = "t" + std::to_string(tensor);
    shards[0].add(name, {100});
    shards[1].add(name, {100}, {{0}, {50}});
    shards[2].add(name, {100}, {{50}, {50}});
    shards[3].add(name, {100});
  }
  REQUIRE(served_bytes(plan_of(shards)) == std::vector<std::uint64_t>{2000, 2000, 2000});
}

TEST_CASE("what several ranks of a replica hold comes from the one with less of its own to serve",
          "[runtime][planner]") {
  // Tied embeddings on the first and the last stage; the first has more layers.
  const Plan plan =
      plan_of({trainer(0, 0, 2).add("embed", {10}).add("layers.0", {30}),
               trainer(0, 1, 2).add("embed", {10}).add("layers.1", {20}),
               rollout().add("embed", {10}).add("layers.0", {30}).add("layers.1", {20})});
  REQUIRE(served_bytes(plan) == std::vector<std::uint64_t>{60, 60});
}

TEST_CASE("a long part is shared out so that its sources end level", "[runtime][planner]") {
  // 8 MiB on both ranks, and 2 MiB on the first alone: 3 + 2 and 5. The first serves the rows at
  // the end, which go on into its layer on both sides.
  constexpr std::int64_t mib = 1 << 20;
  const Plan plan =
      plan_of({trainer(0, 0, 2).add("embed", {4 * mib / 256, 256}).add("layer", {mib}),
               trainer(0, 1, 2).add("embed", {4 * mib / 256, 256}),
               rollout().add("embed", {4 * mib / 256, 256}).add("layer", {mib})});
  REQUIRE(served_bytes(plan) == std::vector<std::uint64_t>{5 * mib, 5 * mib});
  REQUIRE(plan.parts[0].copies.size() == 2);
}

TEST_CASE("each rollout replica gets all bytes", "[runtime][planner]") {
  const Plan plan = plan_of({trainer().add("a", {4}), rollout(0).add("a", {4}),
                             rollout(1).add("a", {4}), rollout(7).add("a", {4})});
  REQUIRE(plan.parts.size() == 3);
  REQUIRE(plan.parts[2].target == ShardId{Side::rollout, 7, 0});
  for (const PlanPart& part : plan.parts) {
    REQUIRE(part.copies == std::vector{copy_of(0, 0, {4}, {2}, {2})});
  }
}

TEST_CASE("only equal types, and f32, bf16 and f16 to one another, are convertible",
          "[runtime][planner]") {
  for (int a = 0; a < element_type_count; ++a) {
    for (int b = 0; b < element_type_count; ++b) {
      const auto from = static_cast<ElementType>(a);
      const auto to = static_cast<ElementType>(b);
      const auto is_float = [](ElementType type) {
        return type == f32 || type == bf16 || type == ElementType::f16;
      };
      REQUIRE(convertible(from, to) == (from == to || (is_float(from) && is_float(to))));
    }
  }
}

// Tied tensors.

TEST_CASE("a tensor that the trainers have as an alias is copied from what it is an alias of",
          "[runtime][planner]") {
  const auto copies = only_copies({trainer().add("x", {1}).add("embed", {4}).alias("head", "embed"),
                                   rollout().add("head", {4})});
  REQUIRE(copies == std::vector{copy_of(2, 0, {4}, {2}, {2})});
}

TEST_CASE("sides may disagree which of two tied names is the tensor", "[runtime][planner]") {
  const Plan plan = plan_of({trainer().add("head", {4}).alias("embed", "head"),
                             rollout().add("embed", {4}).alias("head", "embed")});
  REQUIRE(plan.parts[0].copies == std::vector{copy_of(0, 0, {4}, {2}, {2})});
  REQUIRE(plan.unused.empty());
}

TEST_CASE("tensors tied on one side and independent on the other are refused",
          "[runtime][planner]") {
  const std::string at_trainer = error_of({trainer().add("embed", {4}).alias("head", "embed"),
                                           rollout().add("embed", {4}).add("head", {4})});
  REQUIRE(at_trainer ==
          "'embed' and 'head' are two tensors at rollout replica 0, but one with two names at "
          "trainer replica 0: make tie_word_embeddings agree on both sides");
  REQUIRE(error_of({trainer().add("embed", {4}).add("head", {4}),
                    rollout().add("embed", {4}).alias("head", "embed")})
              .starts_with("'embed' and 'head' are two tensors at trainer replica 0"));
}

TEST_CASE("an alias must be of a tensor that its replica has, and not be one itself",
          "[runtime][planner]") {
  REQUIRE(error_of({trainer().add("a", {4}).alias("head", "embed"), rollout().add("a", {4})}) ==
          "alias 'head' of trainer replica 0 is of 'embed', which none of its shards lists: "
          "correct the alias");
  // Rank 1 holds the tensor, so that no single manifest shows the contradiction.
  REQUIRE(error_of({trainer(0, 0, 2).add("a", {4}).alias("b", "a"),
                    Shard(Side::trainer, 0, 1, 2).add("b", {4}).alias("b", "a"),
                    rollout().add("a", {4})})
              .find("'b' is") != std::string::npos);
}

// Errors: who takes part.

TEST_CASE("a side without shards is refused", "[runtime][planner]") {
  REQUIRE(error_of({rollout().add("a", {4})}).starts_with("there is no trainer shard"));
  REQUIRE(error_of({trainer().add("a", {4})}).starts_with("there is no rollout shard"));
  REQUIRE(error_of(std::vector<Shard>{}).starts_with("there is no trainer shard"));
}

TEST_CASE("two manifests of one shard are refused", "[runtime][planner]") {
  REQUIRE(error_of({trainer().add("a", {4}), rollout().add("a", {4}), rollout().add("a", {4})}) ==
          "there are two manifests of rollout 0.0: give every shard a replica and rank of its own");
}

TEST_CASE("a missing or surplus rank is named", "[runtime][planner]") {
  const Shard target = rollout().add("a", {4});
  REQUIRE(error_of({trainer(3, 0, 3).add("a", {4}), trainer(3, 2, 3), target}) ==
          "trainer replica 3 has 3 ranks, but rank 1 is missing: start it, or state fewer ranks");
  REQUIRE(error_of({trainer(3, 1, 2).add("a", {4}), target}).find("rank 0 is missing") !=
          std::string::npos);
  REQUIRE(error_of({trainer(3, 0, 2).add("a", {4}), target}).find("rank 1 is missing") !=
          std::string::npos);
  REQUIRE(error_of({trainer(0, 0, 1).add("a", {4}), trainer(0, 1, 1).add("a", {4}), target}) ==
          "trainer 0.1 is one too many in trainer replica 0, which has 1 ranks: leave it out, or "
          "state more ranks");
  REQUIRE(error_of({trainer(0, 0, 2).add("a", {4}), trainer(0, 1, 3).add("a", {4}), target}) ==
          "trainer 0.1 states 3 ranks in its replica, trainer 0.0 states 2: make them agree");
}

TEST_CASE("shards of a replica that disagree are refused", "[runtime][planner]") {
  auto manifests = members({trainer(0, 0, 2).add("a", {4}, {{0}, {2}}),
                            trainer(0, 1, 2).add("a", {4}, {{2}, {2}}), rollout().add("a", {4})});
  auto bad = manifests;
  ++bad[1].inventory.tensor_count;
  REQUIRE(
      error_of(bad).text.starts_with("trainer 0.0 and trainer 0.1 state different inventories"));
  bad = manifests;
  bad[1].aliases = {{"b", "a"}};
  REQUIRE(error_of(bad).text.starts_with("trainer 0.0 and trainer 0.1 state different aliases"));
  bad = manifests;
  bad[1].tensors[0].kind = TensorKind::buffer;
  REQUIRE(error_of(bad).text ==
          "shards of trainer replica 0 disagree whether 'a' is a parameter or a buffer: make them "
          "agree");
}

TEST_CASE("a manifest that does not pass its own check is refused", "[runtime][planner]") {
  auto manifests = members({trainer().add("a", {4}), rollout().add("a", {4})});
  manifests[1].pieces[0].offset = 1;
  REQUIRE(error_of(manifests).text.starts_with("rollout 0.0: piece [0:4] of 'a' 4 reaches past"));
}

TEST_CASE("a replica that forgot a tensor is told which", "[runtime][planner]") {
  auto manifests = members(
      {trainer().add("a", {4}).add("bias", {1}), rollout().add("a", {4}).add("extra", {2})});
  manifests[1].inventory = manifests[0].inventory;
  REQUIRE(error_of(manifests).text ==
          "rollout replica 0 does not hold its inventory: its shards list 2 of 2 tensors; trainer "
          "replica 0 also lists 'bias'; trainer replica 0 does not list 'extra': list every tensor "
          "at some shard, with the shape and kind it was counted by");
  manifests = members({trainer().add("a", {4}), rollout().add("a", {4})});
  manifests[0].inventory.tensor_count = 9;
  REQUIRE(error_of(manifests).text.starts_with(
      "trainer replica 0 does not hold its inventory: its shards list 1 of 9 tensors: list every"));
}

// Errors: tensors.

TEST_CASE("a name that no trainer has is unknown", "[runtime][planner]") {
  REQUIRE(error_of({trainer().add("model.a", {4}), rollout().add("a", {4})}) ==
          "unknown name: rollout 0.0 needs 'a', which no trainer has (they have 'model.a'): use "
          "the checkpoint's names on both sides, or leave it out of the rollouts");
  REQUIRE(error_of({trainer().add("x", {4}), rollout().add("y", {4})})
              .starts_with("unknown name: rollout 0.0 needs 'y', which no trainer has: use"));
}

TEST_CASE("shapes that differ are told with their shards", "[runtime][planner]") {
  REQUIRE(error_of({trainer().add("a", {4, 2}), rollout().add("a", {2, 4})}) ==
          "shape mismatch: 'a' is 4x2 at trainer 0.0, but 'a' is 2x4 at rollout 0.0: use one "
          "model on both sides");
  REQUIRE(error_of({trainer(0, 0, 2).add("a", {4}), trainer(0, 1, 2).add("a", {5}),
                    rollout().add("a", {4})}) ==
          "shape mismatch: 'a' is 5 at trainer 0.1, but 4 at trainer 0.0: state the whole "
          "tensor's shape on both");
  REQUIRE(error_of({trainer().add("embed", {4}).alias("head", "embed"), rollout().add("head", {5})})
              .starts_with("shape mismatch: 'head' is 5 at rollout 0.0, but 'embed' is 4 at"));
}

TEST_CASE("types that differ are told with their shards", "[runtime][planner]") {
  REQUIRE(error_of({trainer(0, 0, 2).add("a", {4}, {{0}, {2}}),
                    trainer(0, 1, 2).add("a", {4}, {{2}, {2}}, ElementType::i8),
                    rollout().add("a", {4})}) ==
          "type mismatch: rollout 0.0 needs 'a' as bf16, but trainer 0.1 has it as i8: keep one "
          "type on both sides (only f32, bf16 and f16 are converted)");
}

TEST_CASE("a hole is told by box, tensor and replica, on either side", "[runtime][planner]") {
  REQUIRE(
      error_of({trainer(0, 0, 2).add("a", {6, 4}, {{0, 0}, {2, 4}}),
                trainer(0, 1, 2).add("a", {6, 4}, {{3, 0}, {3, 4}}), rollout().add("a", {6, 4})}) ==
      "hole: no shard of trainer replica 0 has [2:3, 0:4] of 'a' 6x4: add the missing piece "
      "to one of its 2 manifests");
  REQUIRE(error_of({trainer().add("a", {6}), rollout().add("a", {6}, {{0}, {5}})})
              .starts_with("hole: no shard of rollout replica 0 has [5:6] of 'a' 6"));
}

TEST_CASE("two pieces that claim a byte, or one that claims it twice, are an overlap",
          "[runtime][planner]") {
  const Shard from = trainer().add("a", {4}).add("b", {2, 3});
  REQUIRE(error_of({from, rollout()
                              .bytes(100)
                              .put("a", {4}, {{0}, {4}}, 0, {2})
                              .put("b", {2, 3}, Box::whole({2, 3}), 7, {20, 2})}) ==
          "overlap: [0:4] of 'a' and [0:2, 0:3] of 'b' claim the same bytes of region 0 of "
          "rollout 0.0: correct the offset or strides of one of them");
  REQUIRE(error_of({from, rollout().bytes(100).put("b", {2, 3}, Box::whole({2, 3}), 8, {4, 2})}) ==
          "overlap: [0:2, 0:3] of 'b' claims bytes of region 0 of rollout 0.0 twice: correct its "
          "strides");
}

TEST_CASE("sources may overlap as they like", "[runtime][planner]") {
  const auto copies = only_copies(
      {trainer().bytes(8).put("a", {4}, {{0}, {4}}, 0, {2}).put("b", {3}, {{0}, {3}}, 2, {2}),
       rollout().add("a", {4}).add("b", {3})});
  REQUIRE(copies == std::vector{copy_of(0, 0, {4}, {2}, {2}), copy_of(2, 8, {3}, {2}, {2})});
}

TEST_CASE("a tensor in too many parts is refused", "[runtime][planner]") {
  constexpr std::int64_t side = 257;
  Shard from = trainer();
  for (std::int64_t i = 0; i < side * side; ++i) {
    from.add("a", {side, side}, {{i / side, i % side}, {1, 1}});
  }
  const Error error = error_of(members({from, rollout().add("a", {side, side})}));
  REQUIRE(error.code == ErrorCode::refused);
  REQUIRE(error.text ==
          "'a' at trainer replica 0: its pieces cut each other into more than 65536 parts: "
          "describe it by fewer, larger pieces");
}

}  // namespace weir
