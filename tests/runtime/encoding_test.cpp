#include "runtime/encoding.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runtime/codec.hpp"
#include "runtime/planner.hpp"

namespace weir {

// Goal: how values are made of elements crosses a process border as it was said, must fit its
// tensor, and must agree between source and target before a byte moves.
// Method: one good manifest of codes and scales, changed in one place at a time.

namespace {

/// A matrix of 200x130 in f8_e4m3, blocks of 128x128, its scales of 2x2, and a norm less one.
Manifest manifest_of(Side side) {
  Manifest manifest;
  manifest.shard.side = side;
  manifest.encodings = {{Encoding::Kind::scaled, "_scale_inv", {128, 128}, true},
                        {Encoding::Kind::plus_one}};
  manifest.tensors = {
      {"norm", ElementType::bf16, {6}, TensorKind::parameter, 2},
      {"w", ElementType::f8_e4m3, {200, 130}, TensorKind::parameter, 1},
      {"w_scale_inv", ElementType::f32, {2, 2}, TensorKind::parameter},
  };
  manifest.regions = {{RegionKind::host_shared, 26028, {}}};
  manifest.pieces = {{0, 0, 0, Box::whole({6}), {2}},
                     {2, 0, 12, Box::whole({2, 2}), {8, 4}},
                     {1, 0, 28, Box::whole({200, 130}), {130, 1}}};
  manifest.inventory = inventory_of(manifest.tensors);
  return manifest;
}

std::string error_after(const std::function<void(Manifest&)>& change) {
  Manifest manifest = manifest_of(Side::trainer);
  change(manifest);
  const auto checked = check(manifest);
  return checked ? "" : checked.error().text;
}

/// Of the plan, with the rollout's manifest changed.
std::string plan_error_after(const std::function<void(Manifest&)>& change) {
  const Manifest trainer = manifest_of(Side::trainer);
  Manifest rollout = manifest_of(Side::rollout);
  change(rollout);
  const auto plan = make_plan(std::vector{trainer, rollout});
  return plan ? "" : plan.error().text;
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("blocks at the end of a dimension are smaller, and 0 is the whole extent",
          "[runtime][encoding]") {
  const Encoding blocks{Encoding::Kind::scaled, "_scale_inv", {128, 128}};
  REQUIRE(scales_shape(blocks, {256, 128}) == Dims{2, 1});
  REQUIRE(scales_shape(blocks, {257, 1}) == Dims{3, 1});
  REQUIRE(scales_shape(blocks, {0, 128}) == Dims{0, 1});
  const Encoding rows{Encoding::Kind::scaled, "_scale", {1, 0}};
  REQUIRE(scales_shape(rows, {200, 130}) == Dims{200, 1});
  REQUIRE(block_extent(rows, {200, 130}) == Dims{1, 130});
}

TEST_CASE("encodings arrive as they were sent", "[runtime][encoding]") {
  const Manifest sent = manifest_of(Side::rollout);
  REQUIRE(check(sent));
  const std::string bytes = encode(sent);
  const auto arrived = decode_manifest(std::as_bytes(std::span(bytes)));
  REQUIRE(arrived);
  REQUIRE(*arrived == sent);
}

TEST_CASE("an encoding must fit its tensor", "[runtime][encoding]") {
  REQUIRE(error_after([](Manifest&) {}).empty());
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].encoding = 3; }),
              "trainer 0.0: 'norm' has encoding 3, but only 2 are listed"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].encoding = 1; }),
              "'norm' is bf16 and has scales: keep f8_e4m3 or i8"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[1].encoding = 2; }),
              "'w' is f8_e4m3, which can't be kept less one"));
  REQUIRE(has(error_after([](Manifest& m) { m.encodings[0].block = {128}; }),
              "'w' has the shape 200x130 and blocks of 128: give a block's extent for each"));
  REQUIRE(has(error_after([](Manifest& m) {
                m.encodings[0].block = {128, -1};
              }),
              "extents can't be negative"));
  REQUIRE(has(error_after([](Manifest& m) { m.encodings[0].scales_suffix = ""; }), "empty name"));
  REQUIRE(has(error_after([](Manifest& m) { m.encodings[0].scales_suffix = "\n"; }), "control"));
  REQUIRE(has(error_after([](Manifest& m) { m.encodings.resize(encodings_max + 1); }),
              "list at most 64"));
}

TEST_CASE("scales must have the type and shape that their codes ask for", "[runtime][encoding]") {
  REQUIRE(has(error_after([](Manifest& m) {
                m.encodings[0].block = {64, 128};
              }),
              "'w_scale_inv' is f32 2x2, but 'w' 200x130, which is scaled in blocks of 64x128 by "
              "'_scale_inv', which are powers of two, needs f32 4x2"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[2].type = ElementType::i32; }),
              "'w_scale_inv' is i32 2x2"));
  // Scales need not be where the codes are.
  REQUIRE(error_after([](Manifest& m) { m.encodings[0].scales_suffix = "_elsewhere"; }).empty());
}

TEST_CASE("source and target must be encoded in one way", "[runtime][encoding]") {
  REQUIRE(plan_error_after([](Manifest&) {}).empty());
  REQUIRE(plan_error_after([](Manifest& m) {
            std::swap(m.encodings[0], m.encodings[1]);
            m.tensors[0].encoding = 1;
            m.tensors[1].encoding = 2;
          }).empty());
  REQUIRE(plan_error_after([](Manifest& m) { m.tensors[0].encoding = 0; }) ==
          "encoding mismatch: rollout 0.0 needs 'norm' plain values, but trainer 0.0 has it less "
          "one: convert it on one side, as runtime/conversion.hpp says");
  REQUIRE(has(plan_error_after([](Manifest& m) { m.encodings[0].power_of_two = false; }),
              "encoding mismatch: rollout 0.0 needs 'w' scaled in blocks of 128x128 by "
              "'_scale_inv', but trainer 0.0 has it scaled in blocks of 128x128 by '_scale_inv', "
              "which are powers of two"));
}

TEST_CASE("shards of a replica must encode a tensor in one way", "[runtime][encoding]") {
  Manifest first = manifest_of(Side::trainer);
  Manifest second = first;
  first.replica_ranks = second.replica_ranks = 2;
  second.shard.rank = 1;
  second.tensors[0].encoding = 0;
  const auto plan = make_plan(std::vector{first, second, manifest_of(Side::rollout)});
  REQUIRE_FALSE(plan);
  REQUIRE(plan.error().text ==
          "shards of trainer replica 0 disagree on 'norm', which is less one at one and plain "
          "values at trainer 0.1: make them agree");
}

TEST_CASE("replicas that differ only in how they encode are not taken for equal",
          "[runtime][encoding]") {
  Manifest other = manifest_of(Side::rollout);
  other.shard.replica = 1;
  other.encodings[0].power_of_two = false;
  const auto plan =
      make_plan(std::vector{manifest_of(Side::trainer), manifest_of(Side::rollout), other});
  REQUIRE_FALSE(plan);
  REQUIRE(has(plan.error().text, "encoding mismatch: rollout 1.0"));
}

}  // namespace weir
