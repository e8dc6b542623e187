#include "runtime/staging.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/naive_copy.hpp"

namespace weir {

// Goal: a slot is filled with what the live memory holds, converted as declared, on several
// threads, and nothing is written after a stager says that it is done or is gone.
// Method: random bytes against the naive loop over elements; waits are promises that callbacks
// keep.

namespace {

/// Blocks of memory, and regions of them.
struct Memory {
  Memory(const std::vector<std::size_t>& sizes, std::uint32_t slots) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      for (const std::size_t size : sizes) blocks.emplace_back(size, std::byte{0xa5});
    }
    for (Bytes& block : blocks) {
      regions.push_back(Region::borrow(block));
      pointers.push_back(regions.back().get());
    }
  }
  void draw(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (Bytes& block : blocks) {
      for (std::byte& byte : block) byte = static_cast<std::byte>(random());
    }
  }

  std::vector<Bytes> blocks;
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<Region*> pointers;
};

/// Starts and waits.
Result<std::uint64_t> fill(Stager& stager, std::uint32_t slot,
                           const Stager::Progress& progress = {}) {
  std::promise<Result<std::uint64_t>> said;
  stager.start(slot, progress,
               [&said](Result<std::uint64_t> bytes) { said.set_value(std::move(bytes)); });
  return said.get_future().get();
}

/// A matrix of 6x8 in region 0 and a vector of 5 in region 1, dense, behind 16 bytes.
Manifest manifest_of(ElementType matrix, ElementType vector) {
  const auto size = [](ElementType type) { return static_cast<std::int64_t>(size_of(type)); };
  Manifest manifest;
  manifest.tensors = {{"matrix", matrix, {6, 8}, TensorKind::parameter},
                      {"vector", vector, {5}, TensorKind::parameter}};
  manifest.inventory = inventory_of(manifest.tensors);
  manifest.regions = {{RegionKind::host_private, 16 + 48 * size_of(matrix), {}},
                      {RegionKind::host_private, 16 + 5 * size_of(vector), {}}};
  manifest.pieces = {{0, 0, 16, Box::whole({6, 8}), {8 * size(matrix), size(matrix)}},
                     {1, 1, 16, Box::whole({5}), {size(vector)}}};
  return manifest;
}

std::vector<std::size_t> sizes_of(const Manifest& manifest) {
  std::vector<std::size_t> sizes;
  for (const RegionInfo& region : manifest.regions) sizes.push_back(region.bytes);
  return sizes;
}

}  // namespace

TEST_CASE("a snapshot holds every byte, in the slot that was asked for", "[runtime][staging]") {
  const std::vector<std::size_t> sizes = {(std::size_t{9} << 20) + 13, 0, 1, 4097};
  Memory live(sizes, 1);
  Memory slots(sizes, 3);
  Workers workers(3);
  Stager stager(snapshot_of(live.pointers), live.pointers, slots.pointers, 3, workers);
  for (const std::uint32_t slot : {1U, 2U, 1U}) {
    live.draw(slot);
    const std::vector<Bytes> before = slots.blocks;
    REQUIRE(fill(stager, slot) == (std::uint64_t{9} << 20) + 13 + 1 + 4097);
    for (std::size_t i = 0; i < slots.blocks.size(); ++i) {
      CAPTURE(i);
      const bool filled = i / sizes.size() == slot;
      REQUIRE(slots.blocks[i] == (filled ? live.blocks[i % sizes.size()] : before[i]));
    }
  }
}

TEST_CASE("a snapshot is one run of bytes for each region", "[runtime][staging]") {
  Memory live({100, 0, 1}, 1);
  const std::vector<Copy> copies = snapshot_of(live.pointers).copies;
  REQUIRE(copies.size() == 2);
  REQUIRE(copies[0].extent == Dims{100});
  REQUIRE(size_of(copies[0].target_type) == 1);
  REQUIRE(copies[1].source_region == 2);
  REQUIRE(copies[1].target_region == 2);
  REQUIRE(copies[1].extent == Dims{});
}

TEST_CASE("copies of whatever shape and type are carried out", "[runtime][staging]") {
  std::mt19937_64 random(7);
  Workers workers(2);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    std::uint64_t source_bytes = 0;
    std::uint64_t target_bytes = 0;
    Copy copy = draw_copy(random, source_bytes, target_bytes);
    copy.source = 17;  // It does not count.
    Memory live({source_bytes}, 1);
    live.draw(random());
    Memory slots({target_bytes}, 2);
    Bytes expected = slots.blocks[1];
    naive_copy(copy, live.blocks[0], expected);
    Stager stager({{copy}, {}}, live.pointers, slots.pointers, 2, workers);
    REQUIRE(fill(stager, 1));
    REQUIRE(slots.blocks[1] == expected);
  }
}

TEST_CASE("weights are converted piece by piece", "[runtime][staging]") {
  const Manifest from = manifest_of(ElementType::f32, ElementType::i32);
  Manifest to = manifest_of(ElementType::bf16, ElementType::i32);
  to.pieces[0].stride = {2, 12};  // Transposed.
  const auto conversion = conversion_between(from, to);
  REQUIRE(conversion);
  REQUIRE(conversion->copies.size() == 2);
  REQUIRE(target_bytes(*conversion) == 2U * 48 + 4 * 5);
  Memory live(sizes_of(from), 1);
  live.draw(1);
  Memory slot(sizes_of(to), 1);
  std::vector<Bytes> expected = slot.blocks;
  for (std::size_t i = 0; i < 48; ++i) {
    const std::size_t row = i / 8;
    const std::size_t column = i % 8;
    float value = 0;
    std::memcpy(&value, &live.blocks[0][16 + 4 * i], 4);
    const std::uint16_t rounded = nearest_bf16(value);
    std::memcpy(&expected[0][16 + 2 * row + 12 * column], &rounded, 2);
  }
  std::memcpy(&expected[1][16], &live.blocks[1][16], 20);
  Workers workers(2);
  Stager stager(*conversion, live.pointers, slot.pointers, 1, workers);
  REQUIRE(fill(stager, 0) == 2U * 48 + 4 * 5);
  REQUIRE(slot.blocks == expected);
}

TEST_CASE("progress rises to all bytes before a slot is done", "[runtime][staging]") {
  const std::vector<std::size_t> sizes = {std::size_t{40} << 20};
  Memory live(sizes, 1);
  Memory slot(sizes, 1);
  Workers workers(2);
  Stager stager(snapshot_of(live.pointers), live.pointers, slot.pointers, 1, workers);
  std::vector<std::uint64_t> steps;
  std::atomic<int> inside = 0;
  bool alone = true;
  REQUIRE(fill(stager, 0, [&](std::uint64_t bytes) {
    alone = alone && ++inside == 1;
    steps.push_back(bytes);
    --inside;
  }));
  REQUIRE(alone);
  REQUIRE(steps.size() > 5);
  REQUIRE(std::is_sorted(steps.begin(), steps.end()));
  REQUIRE(steps.back() == sizes[0]);
}

TEST_CASE("what progress says is there, is there", "[runtime][staging]") {
  // Pieces whose order is not that of the slot's memory, of 5 MiB and a few bytes.
  const std::vector<std::size_t> sizes = {std::size_t{30} << 20, 100, std::size_t{10} << 20};
  Memory live(sizes, 1);
  live.draw(5);
  std::vector<Copy> copies;
  const auto add = [&copies](std::uint32_t region, std::uint64_t offset, std::int64_t bytes) {
    Copy copy;
    copy.source_region = copy.target_region = region;
    copy.source_offset = copy.target_offset = offset;
    copy.source_type = copy.target_type = ElementType::u8;
    copy.extent = {bytes};
    copy.source_stride = copy.target_stride = {1};
    copies.push_back(copy);
  };
  constexpr std::int64_t piece = (std::int64_t{5} << 20) - 7;
  for (const std::uint32_t region : {2U, 0U}) {
    for (std::int64_t offset = static_cast<std::int64_t>(sizes[region]) - piece; offset >= 0;
         offset -= piece + 3) {
      add(region, static_cast<std::uint64_t>(offset), piece);
    }
  }
  add(1, 10, 50);
  Workers workers(3);
  Memory slot(sizes, 1);
  Bytes expected;
  for (std::size_t region = 0; region < sizes.size(); ++region) {
    Bytes bytes = slot.blocks[region];
    for (const Copy& copy : copies) {
      if (copy.target_region != region) continue;
      const auto begin = static_cast<std::ptrdiff_t>(copy.target_offset);
      std::copy_n(live.blocks[region].begin() + begin, copy.extent[0], bytes.begin() + begin);
    }
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  Stager stager({copies, {}}, live.pointers, slot.pointers, 1, workers);
  std::size_t calls = 0;
  bool there = true;
  std::uint64_t last = 0;
  REQUIRE(fill(stager, 0, [&](std::uint64_t bytes) {
    ++calls;
    there = there && bytes > last;
    last = bytes;
    std::uint64_t begin = 0;
    for (const Bytes& block : slot.blocks) {
      const std::uint64_t end = std::min<std::uint64_t>(begin + block.size(), bytes);
      there = there &&
              (end <= begin ||
               std::equal(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(end - begin),
                          expected.begin() + static_cast<std::ptrdiff_t>(begin)));
      begin += block.size();
    }
  }));
  REQUIRE(there);
  REQUIRE(calls > 3);
  REQUIRE(last == sizes[0] + sizes[1] + sizes[2]);
}

TEST_CASE("one slot is filled at a time", "[runtime][staging]") {
  Memory live({1000}, 1);
  Memory slots({1000}, 2);
  Workers workers(1);
  Stager stager(snapshot_of(live.pointers), live.pointers, slots.pointers, 2, workers);
  std::promise<void> blocked;
  std::promise<Result<std::uint64_t>> first;
  stager.start(
      0, [&blocked](std::uint64_t) { blocked.get_future().wait(); },
      [&first](Result<std::uint64_t> bytes) { first.set_value(std::move(bytes)); });
  const auto second = fill(stager, 1);
  REQUIRE_FALSE(second);
  REQUIRE(second.error().code == ErrorCode::refused);
  blocked.set_value();
  REQUIRE(first.get_future().get() == 1000U);
  REQUIRE(fill(stager, 1));
}

TEST_CASE("what is told of the end may start the next slot", "[runtime][staging]") {
  Memory live({1000}, 1);
  live.draw(3);
  Memory slots({1000}, 2);
  Workers workers(2);
  Stager stager(snapshot_of(live.pointers), live.pointers, slots.pointers, 2, workers);
  std::promise<bool> said;
  stager.start(0, {}, [&](const Result<std::uint64_t>& first) {
    stager.start(1, {}, [&said, whole = first.has_value()](const Result<std::uint64_t>& second) {
      said.set_value(whole && second.has_value());
    });
  });
  REQUIRE(said.get_future().get());
  REQUIRE(slots.blocks[0] == live.blocks[0]);
  REQUIRE(slots.blocks[1] == live.blocks[0]);
}

TEST_CASE("nothing to copy is done at once", "[runtime][staging]") {
  Workers workers(1);
  Stager stager({}, {}, {}, 1, workers);
  REQUIRE(fill(stager, 0) == 0U);
}

TEST_CASE("what does not fit its regions is refused", "[runtime][staging]") {
  Memory live({10}, 1);
  Workers workers(1);
  const auto error = [&](const std::vector<std::size_t>& slot_sizes, std::uint32_t count,
                         std::uint32_t slot, const std::function<void(Copy&)>& change) {
    Memory slots(slot_sizes, 1);
    Conversion conversion = snapshot_of(live.pointers);
    change(conversion.copies[0]);
    Stager stager(conversion, live.pointers, slots.pointers, count, workers);
    const auto filled = fill(stager, slot);
    REQUIRE_FALSE(filled);
    REQUIRE(filled.error().code == ErrorCode::invalid);
    return filled.error().text;
  };
  const auto nothing = [](Copy&) {};
  REQUIRE(error({10}, 1, 1, nothing) == "there is no slot 1 of 1");
  REQUIRE(error({10}, 0, 0, nothing) == "1 regions don't make up 0 slots");
  REQUIRE(error({10, 10, 10}, 2, 0, nothing) == "3 regions don't make up 2 slots");
  REQUIRE(error({10, 11}, 2, 0, nothing) == "slots differ in size: make them equal");
  REQUIRE(error({10}, 1, 0, [](Copy& c) { c.source_region = 1; }) ==
          "a copy names a region that is not there");
  REQUIRE(error({10, 10}, 2, 0, [](Copy& c) { c.target_region = 1; }) ==
          "a copy names a region that is not there");
  error({9}, 1, 0, nothing);
  error({10}, 1, 0, [](Copy& c) { c.source_offset = 1; });
}

TEST_CASE("after a stager is destroyed nothing is written, and its end was told",
          "[runtime][staging]") {
  const std::vector<std::size_t> sizes = {std::size_t{40} << 20};
  Memory live(sizes, 1);
  Memory slot(sizes, 1);
  Workers workers(2);
  std::optional<Result<std::uint64_t>> said;
  std::promise<void> begun;
  std::promise<void> go_on;
  {
    Workers destroyer(1);
    auto stager = std::make_unique<Stager>(snapshot_of(live.pointers), live.pointers, slot.pointers,
                                           1, workers);
    bool first = true;
    stager->start(
        0,
        [&](std::uint64_t) {
          if (!std::exchange(first, false)) return;
          begun.set_value();
          go_on.get_future().wait();
        },
        [&said](Result<std::uint64_t> bytes) { said = std::move(bytes); });
    begun.get_future().wait();
    destroyer.post(
        [last = std::make_shared<std::unique_ptr<Stager>>(std::move(stager))] { last->reset(); });
    go_on.set_value();
  }
  // It may have been whole before it was told to end.
  REQUIRE(said.has_value());
  REQUIRE((said->has_value() || said->error().code == ErrorCode::unavailable));
  const Bytes before = slot.blocks[0];
  workers.for_each(2, [](std::size_t) {});
  REQUIRE(slot.blocks[0] == before);
}

}  // namespace weir
