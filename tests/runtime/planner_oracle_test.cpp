#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>
#include <tuple>

#include "runtime/planner.hpp"
#include "tests/runtime/random_model.hpp"

namespace weir {

// Goal: whatever the cuts and placements, a plan brings every target byte from the place that holds
// it, once, and nothing else; and whatever is taken away from or changed in good manifests is
// found. Method: memory is modelled as one name per byte: which tensor, which element of it, which
// byte of the element. A naive loop writes these names into source memory as the trainers' pieces
// say, executes the plan's copies element by element, and compares each target byte with the name
// that the rollouts' pieces demand. Random manifests from a fixed seed; WEIR_SEED changes it.

namespace {

using Memory = std::vector<std::uint64_t>;                // A name per byte; 0: never written.
using Memories = std::map<ShardId, std::vector<Memory>>;  // By shard, then region.

std::uint64_t first_seed() {
  const char* seed = std::getenv("WEIR_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

std::uint64_t name_of_byte(const std::string& tensor, std::uint64_t element, std::uint64_t byte) {
  // Tensors are t0 to t4; t0.alias names the bytes of t0.
  return (static_cast<std::uint64_t>(tensor[1] - '0' + 1) << 32) | element << 8 | byte;
}

/// Calls `visit(index)` for every index below `extent`.
template <class Visit>
void for_each_index(const Dims& extent, const Visit& visit) {
  for (std::int64_t flat = 0; flat < element_count(extent); ++flat) {
    Dims index = extent;
    std::int64_t rest = flat;
    for (int dim = extent.rank() - 1; dim >= 0; --dim) {
      index[dim] = rest % extent[dim];
      rest /= extent[dim];
    }
    visit(index);
  }
}

std::uint64_t at(std::uint64_t offset, const Dims& index, const Dims& stride) {
  for (int dim = 0; dim < index.rank(); ++dim) {
    offset += static_cast<std::uint64_t>(index[dim] * stride[dim]);
  }
  return offset;
}

/// What the bytes of that shard's pieces should be called.
std::vector<Memory> named_memory(const Manifest& manifest) {
  std::vector<Memory> memory;
  for (const RegionInfo& region : manifest.regions) memory.emplace_back(region.bytes);
  for (const Piece& piece : manifest.pieces) {
    const Tensor& tensor = manifest.tensors[piece.tensor];
    for_each_index(piece.box.extent, [&](const Dims& index) {
      std::uint64_t element = 0;
      for (int dim = 0; dim < index.rank(); ++dim) {
        element = element * static_cast<std::uint64_t>(tensor.shape[dim]) +
                  static_cast<std::uint64_t>(piece.box.start[dim] + index[dim]);
      }
      const std::uint64_t place = at(piece.offset, index, piece.stride);
      for (std::size_t byte = 0; byte < size_of(tensor.type); ++byte) {
        memory[piece.region][place + byte] = name_of_byte(tensor.name, element, byte);
      }
    });
  }
  return memory;
}

/// False where a copy reads what is no element of its source type, or writes a byte again.
bool execute(const Copy& copy, const Memory& source, Memory& target) {
  bool good = true;
  for_each_index(copy.extent, [&](const Dims& index) {
    const std::uint64_t from = at(copy.source_offset, index, copy.source_stride);
    const std::uint64_t to = at(copy.target_offset, index, copy.target_stride);
    const std::uint64_t first = source.at(from);
    for (std::size_t byte = 0; byte < size_of(copy.source_type); ++byte) {
      good = good && first != 0 && source.at(from + byte) == first + byte;
    }
    for (std::size_t byte = 0; byte < size_of(copy.target_type); ++byte) {
      good = good && target.at(to + byte) == 0;
      target[to + byte] = first + byte;
    }
  });
  return good;
}

/// The normal form, as `Copy` documents it.
bool is_normal(const Copy& copy) {
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    if (copy.extent[dim] < 2) return false;
    if (dim == 0) continue;
    if (copy.target_stride[dim] >= copy.target_stride[dim - 1]) return false;
    const std::int64_t inner = copy.extent[dim];
    if (copy.source_stride[dim - 1] == copy.source_stride[dim] * inner &&
        copy.target_stride[dim - 1] == copy.target_stride[dim] * inner) {
      return false;
    }
  }
  return true;
}

void require_right(const std::vector<Manifest>& manifests, const Plan& plan) {
  Memories expected;
  for (const Manifest& manifest : manifests) {
    expected[manifest.shard] = named_memory(manifest);
  }
  std::size_t rollouts = 0;
  for (const Manifest& manifest : manifests) rollouts += manifest.shard.side == Side::rollout;
  REQUIRE(plan.parts.size() == rollouts);
  for (const PlanPart& part : plan.parts) {
    std::vector<Memory> target;
    for (const Memory& memory : expected.at(part.target)) target.emplace_back(memory.size());
    const Copy* before = nullptr;
    for (const Copy& copy : part.copies) {
      const auto& source = expected.at(plan.sources.at(copy.source).shard);
      REQUIRE(execute(copy, source.at(copy.source_region), target.at(copy.target_region)));
      REQUIRE(is_normal(copy));
      if (before != nullptr) {
        REQUIRE(std::tie(before->target_region, before->target_offset) <
                std::tie(copy.target_region, copy.target_offset));
      }
      before = &copy;
    }
    REQUIRE(target == expected.at(part.target));
  }
}

std::string error_of(const std::vector<Manifest>& manifests) {
  const auto plan = make_plan(manifests);
  return plan ? "" : plan.error().text;
}

/// A manifest of that side that has a piece, as an index; -1 without one.
int shard_with_piece(Random& random, const std::vector<Manifest>& manifests, Side side) {
  std::vector<int> found;
  for (std::size_t i = 0; i < manifests.size(); ++i) {
    if (manifests[i].shard.side == side && !manifests[i].pieces.empty()) {
      found.push_back(static_cast<int>(i));
    }
  }
  return found.empty() ? -1 : found[random.below(found.size())];
}

/// Whether the shards of that replica hold every element of the tensor, found element by element.
bool holds_whole(const std::vector<Manifest>& manifests, const ShardId& replica,
                 const Tensor& tensor) {
  std::vector<bool> held(static_cast<std::size_t>(element_count(tensor.shape)));
  for (const Manifest& manifest : manifests) {
    if (manifest.shard.side != replica.side || manifest.shard.replica != replica.replica) continue;
    for (const Piece& piece : manifest.pieces) {
      if (manifest.tensors[piece.tensor].name != tensor.name) continue;
      for_each_index(piece.box.extent, [&](const Dims& index) {
        Dims place = index;
        for (int dim = 0; dim < index.rank(); ++dim) place[dim] += piece.box.start[dim];
        held[at(0, place, dense_strides(tensor.shape, 1))] = true;
      });
    }
  }
  return std::find(held.begin(), held.end(), false) == held.end();
}

}  // namespace

TEST_CASE("a plan brings every target byte from where it lies, once", "[runtime][planner]") {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 1500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::vector<Manifest> manifests = testing::random_manifests(random);
    const auto plan = make_plan(manifests);
    if (!plan) FAIL(plan.error().text);
    require_right(manifests, *plan);
    const auto sharing = make_plan(manifests, 0);
    REQUIRE(sharing);
    require_right(manifests, *sharing);

    for (std::size_t i = manifests.size(); i > 1; --i) {
      std::swap(manifests[i - 1], manifests[random.below(i)]);
    }
    REQUIRE(make_plan(manifests) == *plan);
    REQUIRE(make_plan(manifests, 0) == *sharing);
  }
}

TEST_CASE("a piece taken away leaves a hole, unless others hold its box", "[runtime][planner]") {
  std::size_t holes = 0;
  std::size_t covered = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::vector<Manifest> manifests = testing::random_manifests(random);
    const Side side = random.chance(1, 2) ? Side::trainer : Side::rollout;
    const int shard = shard_with_piece(random, manifests, side);
    if (shard < 0) continue;
    Manifest& manifest = manifests[static_cast<std::size_t>(shard)];
    const std::size_t index = random.below(manifest.pieces.size());
    const Tensor tensor = manifest.tensors[manifest.pieces[index].tensor];
    manifest.pieces.erase(manifest.pieces.begin() + static_cast<std::ptrdiff_t>(index));
    const auto plan = make_plan(manifests);
    if (holds_whole(manifests, manifest.shard, tensor)) {
      ++covered;
      REQUIRE(plan);
      require_right(manifests, *plan);
    } else {
      ++holes;
      REQUIRE_FALSE(plan);
      REQUIRE(plan.error().text.starts_with("hole"));
      REQUIRE(plan.error().text.find("'" + tensor.name + "'") != std::string::npos);
    }
  }
  REQUIRE(holes > 50);
  REQUIRE(covered > 50);
}

TEST_CASE("every fault put into good manifests is found and named", "[runtime][planner]") {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::vector<Manifest> good = testing::random_manifests(random);
    const int shard = shard_with_piece(random, good, Side::rollout);
    if (shard < 0) continue;
    const auto place = static_cast<std::size_t>(shard);
    const std::size_t index = random.below(good[place].pieces.size());
    const std::uint32_t tensor = good[place].pieces[index].tensor;
    const std::string quoted = "'" + good[place].tensors[tensor].name + "'";

    auto bad = good;
    bad[place].pieces.push_back(bad[place].pieces[index]);
    REQUIRE(error_of(bad).starts_with("overlap"));

    bad = good;
    Tensor& changed = bad[place].tensors[tensor];
    if (changed.encoding == 0) {
      changed.type = changed.type == ElementType::u8 ? ElementType::i8 : ElementType::u8;
      REQUIRE(error_of(bad).starts_with("type mismatch"));
    } else {
      changed.encoding = 0;
      REQUIRE(error_of(bad).find("less one") != std::string::npos);
    }
    REQUIRE(error_of(bad).find(quoted) != std::string::npos);

    if (good[place].tensors[tensor].shape.rank() > 0) {
      bad = good;
      ++bad[place].tensors[tensor].shape[0];
      REQUIRE_FALSE(error_of(bad).empty());
    }

    bad = good;
    bad[place].tensors[tensor].name = "renamed";
    REQUIRE_FALSE(error_of(bad).empty());

    bad = good;
    bad.erase(bad.begin() + shard);
    const bool alone = std::none_of(bad.begin(), bad.end(), [&](const Manifest& other) {
      return other.shard.side == Side::rollout && other.shard.replica == good[place].shard.replica;
    });
    if (!alone) REQUIRE(error_of(bad).find("is missing") != std::string::npos);
  }
}

}  // namespace weir
