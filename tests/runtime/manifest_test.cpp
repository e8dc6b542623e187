#include "runtime/manifest.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <string>

namespace weir {

// Goal: a manifest that contradicts itself is refused with a text that names what is wrong.
// Method: one good manifest, changed in one place at a time.

namespace {

/// Rows 2 to 4 of a 4x3 matrix of bf16, dense, after 8 bytes of something else.
Manifest good_manifest() {
  Manifest manifest;
  manifest.shard = {Side::trainer, 0, 1};
  manifest.replica_ranks = 2;
  manifest.tensors = {{"w", ElementType::bf16, {4, 3}, TensorKind::parameter}};
  manifest.aliases = {{"head", "w"}};
  manifest.regions = {{RegionKind::host_shared, 20, {}}};
  manifest.pieces = {{0, 0, 8, {{2, 0}, {2, 3}}, {6, 2}}};
  manifest.inventory = inventory_of(manifest.tensors);
  return manifest;
}

std::string error_after(const std::function<void(Manifest&)>& change) {
  Manifest manifest = good_manifest();
  change(manifest);
  const auto checked = check(manifest);
  if (checked) return "";
  REQUIRE(checked.error().code == ErrorCode::invalid);
  return checked.error().text;
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  return text.find(part) != std::string::npos;
}

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("a manifest whose last byte is its region's last is good", "[runtime][manifest]") {
  REQUIRE(error_after([](Manifest&) {}).empty());
}

TEST_CASE("an empty shard of a model is good", "[runtime][manifest]") {
  REQUIRE(error_after([](Manifest& m) {
            m.tensors.clear();
            m.pieces.clear();
            m.regions.clear();
          }).empty());
}

TEST_CASE("errors begin with the shard", "[runtime][manifest]") {
  REQUIRE(error_after([](Manifest& m) { m.pieces[0].offset = 9; }).starts_with("trainer 0.1: "));
}

TEST_CASE("a rank must lie below the number of ranks", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.replica_ranks = 1; }), "rank"));
  REQUIRE(has(error_after([](Manifest& m) { m.replica_ranks = 0; }), "rank"));
}

TEST_CASE("enumerations outside their range are refused", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.shard.side = static_cast<Side>(2); }), "side"));
  REQUIRE(has(error_after([](Manifest& m) { m.regions[0].kind = static_cast<RegionKind>(3); }),
              "kind"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].type = static_cast<ElementType>(10); }),
              "'w' has an unknown element type"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].kind = static_cast<TensorKind>(2); }),
              "'w' is neither parameter nor buffer"));
}

TEST_CASE("names are there, short, printable and distinct", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].name = ""; }), "empty name"));
  REQUIRE(has(error_after([](Manifest& m) { m.aliases[0].name = ""; }), "empty name"));
  REQUIRE(has(error_after([](Manifest& m) { m.aliases[0].of = ""; }), "empty name"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].name = std::string(1025, 'x'); }),
              "1025 bytes"));
  REQUIRE(error_after([](Manifest& m) { m.tensors[0].name = std::string(1024, 'x'); }).empty());
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].name = "a\nb"; }), "control characters"));
  REQUIRE(has(error_after([](Manifest& m) { m.tensors.push_back(m.tensors[0]); }),
              "'w' is there twice"));
  REQUIRE(has(error_after([](Manifest& m) { m.aliases.push_back(m.aliases[0]); }),
              "'head' is there twice"));
  REQUIRE(has(error_after([](Manifest& m) { m.aliases[0] = {"w", "v"}; }), "'w' is there twice"));
}

TEST_CASE("an alias of an alias, or of itself, is refused", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) {
                m.aliases.push_back({"tail", "head"});
              }),
              "alias 'tail' is of 'head', an alias itself"));
  REQUIRE(has(error_after([](Manifest& m) { m.aliases[0].of = "head"; }), "an alias itself"));
}

TEST_CASE("shapes that no memory holds are refused", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.tensors[0].shape = {-4, 3}; }), "impossible shape"));
  REQUIRE(has(error_after([](Manifest& m) {
                m.tensors[0].shape = {huge, 3};
              }),
              "impossible shape"));
  REQUIRE(has(error_after([](Manifest& m) {
                m.tensors[0].shape = {huge, 0, 3};
              }),
              "impossible shape"));
}

TEST_CASE("a piece is a box of its tensor and not empty", "[runtime][manifest]") {
  const auto text = error_after([](Manifest& m) { m.pieces[0].box.start[0] = 3; });
  REQUIRE(has(text, "piece [3:5, 0:3] of 'w' 4x3 does not lie within the tensor"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].box = {{0}, {4}}; }), "does not lie"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].box.start = {0}; }), "does not lie"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].box.extent[0] = huge; }), "does not lie"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].box.extent[1] = 0; }), "is empty"));
}

TEST_CASE("a piece has a positive stride for each dimension", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].stride[1] = 0; }), "positive stride"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].stride[0] = -6; }), "positive stride"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].stride = {6}; }), "positive stride"));
}

TEST_CASE("a piece lies within a region that is listed", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].tensor = 1; }), "tensor 1"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].region = 1; }), "is in region 1"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].offset = 9; }),
              "reaches past the 20 bytes of region 0"));
  REQUIRE(has(error_after([](Manifest& m) { m.regions[0].bytes = (std::uint64_t{1} << 60) + 1; }),
              "over the limit"));
}

TEST_CASE("slots are equal sets of regions, and pieces lie in the first", "[runtime][manifest]") {
  const auto with_slots = [](std::uint32_t slots, std::size_t regions) {
    return [slots, regions](Manifest& m) {
      m.slots = slots;
      m.regions.resize(regions, m.regions[0]);
    };
  };
  REQUIRE(error_after(with_slots(3, 3)).empty());
  REQUIRE(error_after(with_slots(3, 6)).empty());
  REQUIRE(error_after(with_slots(64, 64)).empty());
  REQUIRE(has(error_after(with_slots(0, 1)), "states 0 slots"));
  REQUIRE(has(error_after(with_slots(65, 65)), "states 65 slots: state from 1 to 64"));
  REQUIRE(has(error_after(with_slots(2, 3)), "lists 3 regions for 2 slots"));
  REQUIRE(has(error_after(with_slots(2, 1)), "lists 1 regions for 2 slots"));
  const auto changed = [&](const std::function<void(Manifest&)>& change) {
    return error_after([&](Manifest& m) {
      with_slots(2, 4)(m);
      change(m);
    });
  };
  REQUIRE(changed([](Manifest& m) { m.pieces[0].region = 1; }).empty());
  REQUIRE(has(changed([](Manifest& m) { m.pieces[0].region = 2; }),
              "is in region 2, which is not one of the first slot"));
  REQUIRE(has(changed([](Manifest& m) { m.regions[3].bytes = 21; }),
              "region 3 differs in kind or size from region 1"));
  REQUIRE(has(changed([](Manifest& m) { m.regions[2].kind = RegionKind::host_private; }),
              "region 2 differs in kind or size from region 0"));
  REQUIRE(changed([](Manifest& m) {
            m.regions[1].bytes = 0;
            m.regions[3].bytes = 0;
            m.regions[3].tickets = {{"shm", "another"}};
          }).empty());
}

TEST_CASE("a shard without regions may have slots", "[runtime][manifest]") {
  REQUIRE(error_after([](Manifest& m) {
            m.tensors.clear();
            m.pieces.clear();
            m.regions.clear();
            m.slots = 2;
          }).empty());
}

TEST_CASE("a piece whose bytes 64 bits cannot count is refused", "[runtime][manifest]") {
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].stride[0] = huge; }), "reaches past"));
  REQUIRE(has(error_after([](Manifest& m) { m.pieces[0].stride[1] = huge; }), "reaches past"));
  REQUIRE(has(error_after([](Manifest& m) {
                m.pieces[0].offset = std::numeric_limits<std::uint64_t>::max();
              }),
              "reaches past"));
  REQUIRE(has(error_after([](Manifest& m) {
                m.pieces[0].offset = std::numeric_limits<std::uint64_t>::max() - 10;
              }),
              "reaches past"));
}

TEST_CASE("an inventory depends on names, shapes and kinds, not on order or types",
          "[runtime][manifest]") {
  const Tensor a{"a", ElementType::bf16, {2}, TensorKind::parameter};
  const Tensor b{"b", ElementType::bf16, {}, TensorKind::buffer};
  Tensor other_type = a;
  other_type.type = ElementType::f32;
  Tensor other_kind = a;
  other_kind.kind = TensorKind::buffer;
  Tensor other_shape = a;
  other_shape.shape = {2, 1};
  REQUIRE(inventory_of({a, b}) == inventory_of({b, other_type}));
  REQUIRE(inventory_of({a, b}).tensor_count == 2);
  REQUIRE(inventory_of({a}) != inventory_of({b}));
  REQUIRE(inventory_of({a}) != inventory_of({other_kind}));
  REQUIRE(inventory_of({a}) != inventory_of({other_shape}));
}

}  // namespace weir
