#include "runtime/codec.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "runtime/planner.hpp"
#include "schemas/manifest.capnp.h"
#include "schemas/plan.capnp.h"
#include "tests/runtime/random_model.hpp"

namespace weir {

// Goal: what crosses a process border arrives as it was sent, or is refused with a reason.
// Method: random manifests and their plans there and back; messages built with the schema itself
// that no encoder of ours would make; random damage to good ones. tests/fuzz/ goes further.

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// A message as a stranger would send it.
template <class Schema>
std::string message(const std::function<void(typename Schema::Builder)>& fill) {
  capnp::MallocMessageBuilder builder;
  fill(builder.initRoot<Schema>());
  const auto words = capnp::canonicalize(builder.getRoot<Schema>().asReader());
  return {reinterpret_cast<const char*>(words.asBytes().begin()), words.asBytes().size()};
}

Error manifest_error(const std::string& text) {
  const auto manifest = decode_manifest(bytes_of(text));
  REQUIRE_FALSE(manifest);
  return manifest.error();
}
Error manifest_error(const std::vector<std::uint64_t>& words) {
  const auto manifest = decode_manifest(std::as_bytes(std::span(words)));
  REQUIRE_FALSE(manifest);
  return manifest.error();
}

Error plan_error(const std::string& text) {
  const auto plan = decode_plan(bytes_of(text));
  REQUIRE_FALSE(plan);
  return plan.error();
}
Error plan_error(const std::vector<std::uint64_t>& words) {
  const auto plan = decode_plan(std::as_bytes(std::span(words)));
  REQUIRE_FALSE(plan);
  return plan.error();
}

/// A plan of one copy from the first region of the first source, changed by `change`.
std::string one_copy_plan(
    const std::function<void(schemas::Plan::Builder, schemas::Copy::Builder)>& change) {
  return message<schemas::Plan>([&](schemas::Plan::Builder root) {
    auto source = root.initSources(1)[0];
    source.initShard();
    source.initRegions(1)[0].setKind(1);
    auto part = root.initParts(1)[0];
    part.initTarget().setSide(1);
    auto copy = part.initCopies(1)[0];
    copy.setTargetRegion(1);
    copy.setRank(1);
    copy.setExtent0(2);
    copy.setSourceStride0(4);
    copy.setTargetStride0(4);
    change(root, copy);
  });
}

// Pointers by the encoding specification of Cap'n Proto, for messages that no builder makes. The
// first is also the tag of a list of structs, where the number of elements takes the offset's
// place.
constexpr std::uint64_t struct_pointer(std::uint64_t offset, std::uint64_t data,
                                       std::uint64_t pointers) {
  return offset << 2 | data << 32 | pointers << 48;
}
constexpr std::uint64_t list_pointer(std::uint64_t offset, std::uint64_t size,
                                     std::uint64_t count) {
  return 1 | offset << 2 | size << 32 | count << 35;
}

bool has(const Error& error, ErrorCode code, const std::string& part) {
  CAPTURE(error.text, part);
  REQUIRE(error.text.find('\n') == std::string::npos);
  return error.code == code && error.text.find(part) != std::string::npos;
}

/// Matrices side by side in one region; `rank` 1 or 2.
Manifest manifest_of_pieces(int rank, std::int64_t pieces) {
  Manifest manifest;
  manifest.tensors = {{"w", ElementType::bf16, Dims::filled(rank, pieces), TensorKind::buffer}};
  manifest.regions = {{RegionKind::host_private, std::uint64_t{1} << 40, {}}};
  for (std::int64_t i = 0; i < pieces; ++i) {
    Box box{Dims::filled(rank, i), Dims::filled(rank, 1)};
    manifest.pieces.push_back(
        {0, 0, static_cast<std::uint64_t>(i) * 64, box, Dims::filled(rank, 2)});
  }
  return manifest;
}

}  // namespace

TEST_CASE("manifests and plans arrive as they were sent", "[runtime][codec]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::vector<Manifest> manifests = testing::random_manifests(random);
    for (const Manifest& manifest : manifests) {
      REQUIRE(decode_manifest(bytes_of(encode(manifest))) == manifest);
    }
    const auto plan = make_plan(manifests);
    REQUIRE(plan);
    const std::string encoded = encode(*plan);
    REQUIRE(decode_plan(bytes_of(encoded)) == *plan);
    REQUIRE(encode(*decode_plan(bytes_of(encoded))) == encoded);
  }
}

TEST_CASE("slots arrive as they were sent, in manifests and in plans", "[runtime][codec]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::vector<Manifest> manifests = testing::random_manifests(random);
    for (Manifest& manifest : manifests) {
      manifest.slots = manifest.shard.side == Side::trainer ? 3 : 2;
      const std::vector<RegionInfo> slot = manifest.regions;
      for (std::uint32_t i = 1; i < manifest.slots; ++i) {
        manifest.regions.insert(manifest.regions.end(), slot.begin(), slot.end());
      }
      REQUIRE(decode_manifest(bytes_of(encode(manifest))) == manifest);
    }
    const auto plan = make_plan(manifests);
    REQUIRE(plan);
    for (const PlanSource& source : plan->sources) REQUIRE(source.slots == 3);
    REQUIRE(decode_plan(bytes_of(encode(*plan))) == *plan);
  }
}

TEST_CASE("a message that says nothing of slots means one", "[runtime][codec]") {
  const std::string text = message<schemas::Manifest>([](auto root) {
    root.initShard();
    root.setReplicaRanks(1);
  });
  REQUIRE(decode_manifest(bytes_of(text))->slots == 1);
  REQUIRE(decode_plan(bytes_of(one_copy_plan([](auto, auto) {})))->sources[0].slots == 1);
}

TEST_CASE("a zero byte in a text is a byte like any other", "[runtime][codec]") {
  Plan plan;
  plan.sources = {{{}, {{RegionKind::device, 1, {{std::string("a\0b", 3), std::string(4, 0)}}}}}};
  plan.unused = {std::string("c\0d", 3)};
  REQUIRE(decode_plan(bytes_of(encode(plan))) == plan);
}

TEST_CASE("many elements that are all zero arrive", "[runtime][codec]") {
  Plan plan;
  plan.sources = {{{}, std::vector<RegionInfo>(1000)}};
  Copy copy;
  copy.source_type = copy.target_type = ElementType::f32;
  plan.parts = {{{}, std::vector<Copy>(1000, copy)}};
  REQUIRE(decode_plan(bytes_of(encode(plan))) == plan);
  Manifest manifest;
  manifest.tensors = {{"s", ElementType::f32, {}, TensorKind::parameter}};
  manifest.regions.resize(1000, {RegionKind::host_private, 4, {}});
  manifest.pieces.resize(1000);
  REQUIRE(decode_manifest(bytes_of(encode(manifest))) == manifest);
}

TEST_CASE("bytes need not be aligned", "[runtime][codec]") {
  Random random(7);
  const Manifest manifest = testing::random_manifests(random).front();
  const std::string encoded = encode(manifest);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> shifted(encoded.size() + 8);
    std::memcpy(shifted.data() + shift, encoded.data(), encoded.size());
    REQUIRE(decode_manifest(std::span(shifted).subspan(shift, encoded.size())) == manifest);
  }
}

TEST_CASE("a piece takes 40 bytes more for a vector and 64 for a matrix", "[runtime][codec]") {
  REQUIRE(encode(manifest_of_pieces(1, 101)).size() - encode(manifest_of_pieces(1, 1)).size() ==
          100 * 40);
  REQUIRE(encode(manifest_of_pieces(2, 101)).size() - encode(manifest_of_pieces(2, 1)).size() ==
          100 * 64);
}

TEST_CASE("what is no message is refused", "[runtime][codec]") {
  const auto error = [](const std::string& text) { return decode_plan(bytes_of(text)).error(); };
  REQUIRE(has(error(""), ErrorCode::invalid, "no whole number of words"));
  REQUIRE(has(error("seven b"), ErrorCode::invalid, "has 7 bytes"));
  REQUIRE(has(error("GET / HTTP/1.1\r\n"), ErrorCode::invalid, "is malformed"));
}

TEST_CASE("a message over the limit of size is refused unread", "[runtime][codec]") {
  // The span is longer than its memory: to read it would be a fault.
  const std::byte byte{};
  const std::span<const std::byte> huge(&byte, message_bytes_max + 8);
  REQUIRE(has(decode_manifest(huge).error(), ErrorCode::refused, "the limit is 268435456"));
}

TEST_CASE("a message that is read more often than it is long is refused", "[runtime][codec]") {
  // 200 unused names that are all one text of 128 words.
  constexpr std::uint64_t names = 200;
  std::vector<std::uint64_t> words = {struct_pointer(0, 0, 3), 0, 0, list_pointer(0, 6, names)};
  for (std::uint64_t i = 0; i < names; ++i) {
    words.push_back(list_pointer(names - 1 - i, 2, 128 * 8));
  }
  words.resize(words.size() + 128, 0x2020202020202020);
  words.back() = 0;
  REQUIRE(has(plan_error(words), ErrorCode::refused, "refers to itself"));
}

TEST_CASE("more elements of one kind than the limit are refused", "[runtime][codec]") {
  // Lists of elements of one word each, behind each of the root's pointers in turn.
  constexpr std::uint64_t many = (std::uint64_t{1} << 22) + 1;
  const auto with_list = [](std::uint64_t pointers, std::uint64_t place) {
    std::vector<std::uint64_t> words(1 + pointers);
    words[0] = struct_pointer(0, 0, pointers);
    words[1 + place] = list_pointer(pointers - 1 - place, 7, many);
    words.push_back(struct_pointer(many, 1, 0));
    words.resize(words.size() + many);
    return words;
  };
  const auto refused = [](const Error& error, const std::string& kind) {
    return has(error, ErrorCode::refused, "holds more than 4194304 " + kind);
  };
  REQUIRE(refused(manifest_error(with_list(5, 1)), "tensors"));
  REQUIRE(refused(manifest_error(with_list(5, 2)), "aliases"));
  REQUIRE(refused(manifest_error(with_list(5, 3)), "regions and tickets"));
  REQUIRE(refused(manifest_error(with_list(5, 4)), "pieces"));
  REQUIRE(refused(plan_error(with_list(3, 0)), "sources"));
  REQUIRE(refused(plan_error(with_list(3, 1)), "parts"));

  std::vector<std::uint64_t> unused = {struct_pointer(0, 0, 3), 0, 0, list_pointer(0, 6, many)};
  unused.resize(unused.size() + many);
  REQUIRE(refused(plan_error(unused), "unused tensors"));
  // One part with that many copies; one region with that many tickets.
  std::vector<std::uint64_t> copies = {
      struct_pointer(0, 0, 3), 0, list_pointer(1, 7, 2),    0,
      struct_pointer(1, 0, 2), 0, list_pointer(0, 7, many), struct_pointer(many, 1, 0)};
  copies.resize(copies.size() + many);
  REQUIRE(refused(plan_error(copies), "copies"));
  std::vector<std::uint64_t> tickets = {struct_pointer(0, 0, 5),
                                        0,
                                        0,
                                        0,
                                        list_pointer(1, 7, 2),
                                        0,
                                        struct_pointer(1, 1, 1),
                                        1,
                                        list_pointer(0, 7, many),
                                        struct_pointer(many, 1, 0)};
  tickets.resize(tickets.size() + many);
  REQUIRE(refused(manifest_error(tickets), "regions and tickets"));
}

TEST_CASE("a manifest with numbers that mean nothing is refused", "[runtime][codec]") {
  const auto error = [](const std::function<void(schemas::Manifest::Builder)>& fill) {
    return manifest_error(message<schemas::Manifest>(fill));
  };
  const auto invalid = ErrorCode::invalid;
  REQUIRE(has(error([](auto m) { m.initShard().setSide(2); }), invalid, "unknown side"));
  REQUIRE(has(error([](auto m) { m.initTensors(1)[0].setType(10); }), invalid, "element type"));
  REQUIRE(has(error([](auto m) { m.initTensors(1)[0].setKind(2); }), invalid, "kind of tensor"));
  REQUIRE(has(error([](auto m) { m.initTensors(1)[0].setRank(5); }), invalid, "many dimensions"));
  REQUIRE(has(error([](auto m) { m.initRegions(1)[0].setKind(4); }), invalid, "kind of region"));
  REQUIRE(has(error([](auto m) { m.initRegions(1); }), invalid, "kind of region"));
  REQUIRE(has(error([](auto m) { m.initPieces(1); }), invalid, "does not list"));
  REQUIRE(has(error([](auto m) { m.initTensors(1), m.initPieces(1); }), invalid, "in no region"));
  // What only `check` sees: no ranks.
  REQUIRE(has(error([](auto) {}), invalid, "trainer 0.0: its rank is not below"));
}

TEST_CASE("a plan with numbers that mean nothing is refused", "[runtime][codec]") {
  const auto error = [](const auto& change) { return plan_error(one_copy_plan(change)); };
  const auto invalid = ErrorCode::invalid;
  REQUIRE(decode_plan(bytes_of(one_copy_plan([](auto, auto) {}))));
  REQUIRE(has(error([](auto, auto c) { c.setSource(1); }), invalid, "from a source or region"));
  REQUIRE(has(error([](auto, auto c) { c.setSourceRegion(1); }), invalid, "source or region"));
  const auto two_slots = [&](std::uint32_t region) {
    return one_copy_plan([region](auto p, auto c) {
      auto regions = p.getSources()[0].initRegions(2);
      regions[0].setKind(1);
      regions[1].setKind(1);
      p.getSources()[0].setSlots(2);
      c.setSourceRegion(region);
    });
  };
  REQUIRE(decode_plan(bytes_of(two_slots(0))));
  REQUIRE(has(plan_error(two_slots(1)), invalid, "source or region"));
  const std::string no_slots = "regions do not make up its slots";
  for (const std::uint32_t slots : {0U, 2U, 65U}) {
    REQUIRE(has(error([slots](auto p, auto) { p.getSources()[0].setSlots(slots); }), invalid,
                no_slots));
  }
  const std::string no_region = "to an impossible region";
  REQUIRE(has(error([](auto, auto c) { c.setTargetRegion(0); }), invalid, no_region));
  REQUIRE(has(error([](auto, auto c) { c.setTargetRegion(1U << 30); }), invalid, no_region));
  REQUIRE(has(error([](auto, auto c) { c.setSourceType(10); }), invalid, "unknown element type"));
  REQUIRE(has(error([](auto, auto c) { c.setTargetType(10); }), invalid, "unknown element type"));
  REQUIRE(has(error([](auto, auto c) { c.setRank(5); }), invalid, "too many dimensions"));
  const std::string impossible = "extents or strides are not possible";
  REQUIRE(has(error([](auto, auto c) { c.setExtent0(0); }), invalid, impossible));
  REQUIRE(has(error([](auto, auto c) { c.setSourceStride0(-4); }), invalid, impossible));
  REQUIRE(has(error([](auto, auto c) { c.setTargetStride0(0); }), invalid, impossible));
  REQUIRE(
      has(error([](auto, auto c) { c.setExtent0(std::int64_t{1} << 61); }), invalid, impossible));
  REQUIRE(has(error([](auto p, auto) { p.getParts()[0].getTarget().setSide(2); }), invalid,
              "unknown side"));
  REQUIRE(has(error([](auto p, auto) { p.getSources()[0].getShard().setSide(2); }), invalid,
              "unknown side"));
  REQUIRE(has(error([](auto p, auto) { p.getSources()[0].getRegions()[0].setKind(4); }), invalid,
              "kind of region"));
}

TEST_CASE("a damaged message is refused or is another good one", "[runtime][codec]") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::string good = encode(testing::random_manifests(random).front());
    std::string bad = good;
    for (std::size_t i = 1 + random.below(4); i > 0; --i) {
      bad[random.below(bad.size())] = static_cast<char>(random.below(256));
    }
    bad.resize(random.chance(1, 4) ? random.below(bad.size()) : bad.size());
    const auto manifest = decode_manifest(bytes_of(bad));
    if (manifest) REQUIRE(decode_manifest(bytes_of(encode(*manifest))) == manifest);
  }
}

}  // namespace weir
