#include "runtime/conversion.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/conversion_sides.hpp"
#include "runtime/planner.hpp"
#include "runtime/strided_copy.hpp"
#include "tests/runtime/nearest_code.hpp"
#include "tests/runtime/random_model.hpp"

namespace weir {

// Goal: whatever form live weights have and engines need, each byte of the engines is what the
// formulas say of the trained values, wherever pieces lie, however blocks fall among them, and
// whichever side converts; and what can't be made is refused by name.
// Method: random tensors, forms and manifests, from live memory through slots, the plan and what is
// received to the engines' memory. The oracle knows whole tensors, goes by single elements, and
// finds codes by searching all of them.

namespace {

constexpr auto bf16 = ElementType::bf16;
constexpr auto f16 = ElementType::f16;
constexpr auto f32 = ElementType::f32;
constexpr auto f8 = ElementType::f8_e4m3;

float f32_of(ElementType type, std::uint32_t bits) {
  return std::bit_cast<float>(converted(type, bits, f32));
}
std::uint32_t bits_of(ElementType type, float value) {
  return converted(f32, std::bit_cast<std::uint32_t>(value), type);
}
/// Double has more than twice the digits of float, so that rounding twice is rounding once.
float over(float a, float b) {
  return static_cast<float>(double{a} / double{b});
}
float times(float a, float b) {
  return static_cast<float>(double{a} * double{b});
}

struct Form {
  ElementType type = bf16;
  std::uint32_t encoding = 0;  ///< As a tensor states it, of `encodings`.
};

/// Small blocks, so that small tensors have many.
const std::vector<Encoding> encodings = {{Encoding::Kind::plus_one},
                                         {Encoding::Kind::scaled, "_s", {4, 3}},
                                         {Encoding::Kind::scaled, "_s", {4, 3}, true},
                                         {Encoding::Kind::scaled, "_s", {1, 0}},
                                         {Encoding::Kind::scaled, "_s", {1, 4, 3}},
                                         {Encoding::Kind::scaled, "_s", {1, 1, 0}}};
constexpr std::uint32_t plus_one = 1;
constexpr std::uint32_t powers = 3;

bool is_scaled(std::uint32_t encoding) {
  return encoding > plus_one;
}

/// A whole tensor as it is trained: elements, and the scales of its blocks if it has any.
struct Truth {
  Dims shape;
  Form trained;
  std::vector<std::uint32_t> elements;
  std::vector<float> scales;

  [[nodiscard]] std::size_t block_of(std::size_t element, std::uint32_t encoding) const {
    const Dims grid = scales_shape(encodings[encoding - 1], shape);
    const Dims block = block_extent(encodings[encoding - 1], shape);
    std::size_t number = 0;
    std::size_t step = 1;
    for (int dim = shape.rank() - 1; dim >= 0; --dim) {
      const auto extent = static_cast<std::size_t>(shape[dim]);
      number += element % extent / static_cast<std::size_t>(block[dim]) * step;
      step *= static_cast<std::size_t>(grid[dim]);
      element /= extent;
    }
    return number;
  }

  [[nodiscard]] float value(std::size_t i) const {
    if (trained.encoding == plus_one) return f32_of(trained.type, elements[i]) + 1.0F;
    if (trained.encoding == 0) return f32_of(trained.type, elements[i]);
    const float code = trained.type == f8
                           ? static_cast<float>(code_table(f8).value(elements[i]))
                           : static_cast<float>(static_cast<std::int8_t>(elements[i]));
    return times(code, scales[block_of(i, trained.encoding)]);
  }

  /// By the formulas that `runtime/quantize.hpp` gives.
  [[nodiscard]] float scale(std::size_t block, const Form& form) const {
    if (form.encoding == trained.encoding) return scales[block];
    float most = 0;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (block_of(i, form.encoding) == block) most = std::max(most, std::abs(value(i)));
    }
    if (form.type == ElementType::i8) return most == 0 ? 0x1p-23F : over(most, 127);
    const Dims& extent = encodings[form.encoding - 1].block;
    if (extent[extent.rank() - 1] == 0) return std::max(over(most, 448), 1.0F / (448 * 512));
    const float least = over(std::max(most, 1e-4F), 448);
    return form.encoding == powers ? std::exp2(std::ceil(std::log2(least))) : least;
  }

  [[nodiscard]] std::uint32_t element(std::size_t i, const Form& form) const {
    if (form.encoding == trained.encoding) {
      return is_scaled(form.encoding) ? elements[i]
                                      : converted(trained.type, elements[i], form.type);
    }
    if (form.encoding == 0) return bits_of(form.type, value(i));
    if (form.encoding == plus_one) return bits_of(form.type, value(i) - 1.0F);
    const float by = scale(block_of(i, form.encoding), form);
    if (form.type == ElementType::i8) {
      return static_cast<std::uint8_t>(
          static_cast<std::int8_t>(std::nearbyint(over(value(i), by))));
    }
    const Dims& extent = encodings[form.encoding - 1].block;
    const bool by_row = extent[extent.rank() - 1] == 0;
    return code_table(f8).nearest(by_row ? over(value(i), by) : times(value(i), over(1, by)));
  }
};

using Truths = std::map<std::string, Truth>;

/// The bits of element `i` of a tensor or of its scales.
std::uint32_t bits_at(const Truths& truths, const std::map<std::string, Form>& forms,
                      const std::string& name, std::size_t i) {
  const auto found = truths.find(name);
  if (found != truths.end()) return found->second.element(i, forms.at(name));
  const std::string codes = name.substr(0, name.size() - 2);
  return std::bit_cast<std::uint32_t>(truths.at(codes).scale(i, forms.at(codes)));
}

/// The regions of one shard.
struct Memory {
  explicit Memory(const Manifest& manifest) {
    for (const RegionInfo& region : manifest.regions) {
      blocks.emplace_back(region.bytes, std::byte{0xa5});
    }
    for (auto& block : blocks) {
      regions.push_back(Region::borrow(block));
      pointers.push_back(regions.back().get());
    }
  }
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<Region*> pointers;
};

/// Calls `use(name, element, bytes)` for each element of each piece.
template <class Use>
void for_each_element(const Manifest& manifest, Memory& memory, const Use& use) {
  for (const Piece& piece : manifest.pieces) {
    const Tensor& tensor = manifest.tensors[piece.tensor];
    const std::int64_t count = element_count(piece.box.extent);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i;
      std::int64_t offset = 0;
      std::int64_t element = 0;
      std::int64_t step = 1;
      for (int dim = tensor.shape.rank() - 1; dim >= 0; --dim) {
        const std::int64_t at = rest % piece.box.extent[dim];
        rest /= piece.box.extent[dim];
        offset += at * piece.stride[dim];
        element += (piece.box.start[dim] + at) * step;
        step *= tensor.shape[dim];
      }
      use(tensor, static_cast<std::size_t>(element),
          memory.blocks[piece.region].data() + piece.offset + static_cast<std::uint64_t>(offset));
    }
  }
}

/// In the two halves that two threads would take.
void carry_out(const Manifest& from, const Manifest& to, const Memory& source,
               const Memory& target) {
  const auto conversion = conversion_between(from, to);
  if (!conversion) FAIL(conversion.error().text);
  for (const Copy& copy : conversion->copies) {
    copy_strided(copy, source.pointers[copy.source_region]->bytes(),
                 target.pointers[copy.target_region]->bytes());
  }
  for (const Recoding& recoding : conversion->recodings) {
    REQUIRE(check_bounds(recoding, source.pointers, target.pointers));
    const std::size_t middle = recoding.blocks.size() / 2;
    recode(recoding, middle, recoding.blocks.size(), source.pointers, target.pointers);
    recode(recoding, 0, middle, source.pointers, target.pointers);
  }
}

/// Everything between live weights and engines: tensors, their forms, and who holds what.
class World {
 public:
  explicit World(Random& random) {
    const std::size_t count = 1 + random.below(4);
    for (std::size_t i = 0; i < count; ++i) draw_tensor(random, "t" + std::to_string(i));
    live = manifests(random, Side::trainer, trained);
    engines = manifests(random, Side::rollout, needed);
  }

  void run() {
    const auto sides = choose_conversion_sides(live, engines);
    if (!sides) FAIL(sides.error().text);
    at_source = sides->tensors_at_source;
    at_target = sides->tensors_at_target;
    std::vector<std::unique_ptr<Memory>> slots;
    std::vector<Manifest> all;
    for (std::size_t i = 0; i < live.size(); ++i) {
      Memory memory(live[i]);
      for_each_element(live[i], memory, [&](const Tensor& tensor, std::size_t e, std::byte* bytes) {
        const std::uint32_t bits = bits_at(truths, trained, tensor.name, e);
        std::memcpy(bytes, &bits, size_of(tensor.type));
      });
      slots.push_back(std::make_unique<Memory>(sides->published[i]));
      carry_out(live[i], sides->published[i], memory, *slots.back());
      all.push_back(sides->published[i]);
    }
    all.insert(all.end(), sides->received.begin(), sides->received.end());
    const auto plan = make_plan(all);
    if (!plan) FAIL(plan.error().text);
    for (std::size_t i = 0; i < engines.size(); ++i) {
      const auto part =
          std::find_if(plan->parts.begin(), plan->parts.end(),
                       [&](const PlanPart& one) { return one.target == engines[i].shard; });
      Memory arrived(sides->received[i]);
      for (const Copy& copy : part->copies) {
        const auto from = std::find_if(live.begin(), live.end(), [&](const Manifest& one) {
          return one.shard == plan->sources[copy.source].shard;
        });
        copy_strided(copy,
                     slots[static_cast<std::size_t>(from - live.begin())]
                         ->pointers[copy.source_region]
                         ->bytes(),
                     arrived.pointers[copy.target_region]->bytes());
      }
      Memory memory(engines[i]);
      carry_out(sides->received[i], engines[i], arrived, memory);
      // Installing a version once more changes nothing.
      const auto blocks = memory.blocks;
      carry_out(sides->received[i], engines[i], arrived, memory);
      REQUIRE(memory.blocks == blocks);
      for_each_element(engines[i], memory,
                       [&](const Tensor& tensor, std::size_t e, const std::byte* bytes) {
                         std::uint32_t bits = 0;
                         std::memcpy(&bits, bytes, size_of(tensor.type));
                         if (bits == bits_at(truths, needed, tensor.name, e)) return;
                         CAPTURE(e, bits, bits_at(truths, needed, tensor.name, e));
                         FAIL(tensor.name << " of " << text_of(engines[i].shard));
                       });
    }
  }

  Truths truths;
  std::map<std::string, Form> trained;
  std::map<std::string, Form> needed;
  std::vector<Manifest> live;
  std::vector<Manifest> engines;
  std::uint64_t at_source = 0;
  std::uint64_t at_target = 0;

 private:
  static Form draw_form(Random& random, int rank) {
    const ElementType type = std::vector{f32, bf16, f16}[random.below(3)];
    switch (random.below(4)) {
      case 0:
        return {type, plus_one};
      case 1:
        if (rank == 2) return {f8, static_cast<std::uint32_t>(2 + random.below(3))};
        if (rank == 3) return {f8, static_cast<std::uint32_t>(5 + random.below(2))};
        return {type, 0};
      case 2:
        if (rank == 2) return {ElementType::i8, 4};
        if (rank == 3) return {ElementType::i8, 6};
        return {type, 0};
      default:
        return {type, 0};
    }
  }

  void draw_tensor(Random& random, const std::string& name) {
    Truth truth;
    truth.shape = Dims::filled(static_cast<int>(1 + random.below(3)), 0);
    const std::int64_t most = truth.shape.rank() > 2 ? 6 : 14;
    for (int dim = 0; dim < truth.shape.rank(); ++dim) truth.shape[dim] = random.between(1, most);
    truth.trained = draw_form(random, truth.shape.rank());
    Form wanted = draw_form(random, truth.shape.rank());
    if (truth.trained.encoding != 0 && wanted.encoding != 0) wanted = truth.trained;
    const std::uint32_t encoding = truth.trained.encoding;
    for (std::int64_t i = 0; i < element_count(truth.shape); ++i) {
      const float size = std::vector{0.0F, 1e-6F, 0.3F, 900.0F}[random.below(4)];
      const auto value = static_cast<float>(random.between(-1000, 1000)) / 1000 * size;
      std::uint32_t code = static_cast<std::uint32_t>(random.below(256));
      if (truth.trained.type == f8 && code % 128 == 127) --code;  // No NaN.
      truth.elements.push_back(is_scaled(encoding) ? code : bits_of(truth.trained.type, value));
    }
    if (is_scaled(encoding)) {
      const Dims grid = scales_shape(encodings[encoding - 1], truth.shape);
      for (std::int64_t i = 0; i < element_count(grid); ++i) {
        truth.scales.push_back(static_cast<float>(random.between(1, 1000)) / 4096);
      }
    }
    trained[name] = truth.trained;
    needed[name] = wanted;
    truths[name] = truth;
  }

  std::vector<Manifest> manifests(Random& random, Side side,
                                  const std::map<std::string, Form>& forms) const {
    std::vector<Tensor> model;
    for (const auto& [name, form] : forms) {
      const Dims& shape = truths.at(name).shape;
      model.push_back({name, form.type, shape, TensorKind::parameter, form.encoding});
      if (!is_scaled(form.encoding)) continue;
      model.push_back({name + "_s", f32, scales_shape(encodings[form.encoding - 1], shape)});
    }
    std::vector<Manifest> shards = testing::replica_of(random, side, 0, model);
    for (Manifest& shard : shards) {
      shard.encodings = encodings;
      for (const Tensor& tensor : model) {
        const auto listed = [&](const std::string& name) {
          return std::any_of(shard.tensors.begin(), shard.tensors.end(),
                             [&](const Tensor& other) { return other.name == name; });
        };
        if (!listed(tensor.name) && listed(tensor.name + "_s")) shard.tensors.push_back(tensor);
      }
    }
    return shards;
  }
};

/// One shard, dense pieces behind one another in one region.
Manifest shard_of(const std::vector<Tensor>& tensors, const std::vector<Box>& boxes,
                  Side side = Side::trainer) {
  Manifest manifest;
  manifest.shard.side = side;
  manifest.tensors = tensors;
  manifest.encodings = encodings;
  manifest.regions = {{RegionKind::host_private, 0, {}}};
  manifest.inventory = inventory_of(tensors);
  for (std::uint32_t i = 0; i < boxes.size(); ++i) {
    const std::size_t size = size_of(tensors[i].type);
    manifest.pieces.push_back({i, 0, manifest.regions[0].bytes, boxes[i],
                               dense_strides(boxes[i].extent, static_cast<std::int64_t>(size))});
    manifest.regions[0].bytes += static_cast<std::uint64_t>(element_count(boxes[i].extent)) * size;
  }
  return manifest;
}

std::string error_of(const Manifest& from, const Manifest& to) {
  const auto conversion = conversion_between(from, to);
  REQUIRE_FALSE(conversion);
  REQUIRE(conversion.error().code == ErrorCode::invalid);
  return conversion.error().text;
}

}  // namespace

TEST_CASE("engines have what the formulas say of trained values, whoever converts",
          "[runtime][conversion]") {
  std::uint64_t at_source = 0;
  std::uint64_t at_target = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    World world(random);
    world.run();
    at_source += world.at_source;
    at_target += world.at_target;
  }
  REQUIRE(at_source > 100);
  REQUIRE(at_target > 100);
}

TEST_CASE("whole blocks are encoded at the source, cut ones at the target",
          "[runtime][conversion]") {
  const std::vector<Tensor> codes = {{"w", f8, {8, 6}, TensorKind::parameter, 2},
                                     {"w_s", f32, {2, 2}}};
  const auto live = [](std::int64_t rows) {
    return shard_of({{"w", bf16, {8, 6}}}, {{{0, 0}, {rows, 6}}});
  };
  const Manifest engine = shard_of(codes, {Box::whole({8, 6}), Box::whole({2, 2})}, Side::rollout);

  const auto whole = choose_conversion_sides(std::vector{live(4)}, std::vector{engine});
  REQUIRE(whole);
  REQUIRE(whole->tensors_at_source == 1);
  REQUIRE(whole->received[0] == engine);
  REQUIRE(whole->published[0].encodings == std::vector{encodings[1]});
  REQUIRE(whole->published[0].tensors ==
          std::vector<Tensor>{{"w", f8, {8, 6}, TensorKind::parameter, 1}, {"w_s", f32, {2, 2}}});
  REQUIRE(whole->published[0].inventory == engine.inventory);
  REQUIRE(whole->published[0].regions[0].bytes == 256);
  REQUIRE(whole->published[0].pieces == std::vector<Piece>{{0, 0, 0, {{0, 0}, {4, 6}}, {6, 1}},
                                                           {1, 0, 24, {{0, 0}, {1, 2}}, {8, 4}}});

  const auto cut = choose_conversion_sides(std::vector{live(5)}, std::vector{engine});
  REQUIRE(cut);
  REQUIRE(cut->tensors_at_target == 1);
  REQUIRE(cut->published[0] == live(5));
  REQUIRE(cut->received[0].tensors == std::vector<Tensor>{{"w", bf16, {8, 6}}});
  // Codes and scales are made of the same values: they arrive once.
  REQUIRE(cut->received[0].pieces == std::vector<Piece>{{0, 0, 0, Box::whole({8, 6}), {12, 2}}});
}

TEST_CASE("what is only cast is cast where that makes fewer bytes to move",
          "[runtime][conversion]") {
  const auto of = [](ElementType type, Side side) {
    return shard_of({{"w", type, {4}}}, {Box::whole({4})}, side);
  };
  const auto narrow = choose_conversion_sides(std::vector{of(f32, Side::trainer)},
                                              std::vector{of(bf16, Side::rollout)});
  REQUIRE(narrow);
  REQUIRE(narrow->published[0].tensors[0].type == bf16);
  const auto wide = choose_conversion_sides(std::vector{of(bf16, Side::trainer)},
                                            std::vector{of(f32, Side::rollout)});
  REQUIRE(wide);
  REQUIRE(wide->published[0] == of(bf16, Side::trainer));
  REQUIRE(wide->received[0] == of(f32, Side::rollout));
}

TEST_CASE("what can't be made of what is there is refused by name", "[runtime][conversion]") {
  const Manifest plain = shard_of({{"w", bf16, {8, 6}}}, {{{0, 0}, {5, 6}}});
  REQUIRE(error_of(plain, shard_of({{"v", bf16, {8, 6}}}, {{{0, 0}, {5, 6}}})) ==
          "trainer 0.0: [0:5, 0:6] of 'v' is to be made, but is not there to make it of: hold it "
          "on this shard, or convert on the other side");
  REQUIRE(error_of(plain, shard_of({{"w", bf16, {8, 6}}}, {{{0, 0}, {6, 6}}}))
              .starts_with("trainer 0.0: [5:6, 0:6] of 'w' is to be made, but"));
  REQUIRE(error_of(plain, shard_of({{"w", bf16, {8, 7}}}, {{{0, 0}, {5, 6}}})) ==
          "trainer 0.0: 'w' is 8x6 and is to be 8x7: state one shape");
  REQUIRE(error_of(plain, shard_of({{"w", ElementType::i32, {8, 6}}}, {{{0, 0}, {5, 6}}})) ==
          "trainer 0.0: 'w' can't be converted from bf16 to i32");
  const Tensor codes{"w", f8, {8, 6}, TensorKind::parameter, 2};
  REQUIRE(error_of(plain, shard_of({codes}, {{{0, 0}, {5, 6}}})) ==
          "trainer 0.0: block [4:8, 0:3] of 'w' 8x6 is cut: [5:8, 0:3] is not on this shard, so "
          "that its scale can't be known here: cut the tensor between blocks, or convert on the "
          "other side");
  REQUIRE(error_of(shard_of({codes}, {{{0, 0}, {5, 6}}}), plain)
              .starts_with("trainer 0.0: [0:2, 0:2] of 'w_s' is to be made, but"));
  Tensor others = codes;
  others.encoding = 3;
  REQUIRE(error_of(shard_of({codes}, {{{0, 0}, {5, 6}}}), shard_of({others}, {{{0, 0}, {5, 6}}}))
              .ends_with(": convert to plain values first"));
  Manifest twice = plain;
  twice.pieces.push_back(twice.pieces[0]);
  REQUIRE(error_of(plain, twice).starts_with("overlap"));
}

TEST_CASE("two encodings of one tensor are refused", "[runtime][conversion]") {
  const Tensor codes{"w", f8, {4, 3}, TensorKind::parameter, 2};
  Tensor others = codes;
  others.encoding = 3;
  const Box whole = Box::whole({4, 3});
  const Manifest live = shard_of({codes}, {whole});
  const auto sides =
      choose_conversion_sides(std::vector{live}, std::vector{shard_of({others}, {whole})});
  REQUIRE_FALSE(sides);
  REQUIRE(sides.error().text ==
          "'w' is trained scaled in blocks of 4x3 by '_s' and needed scaled in blocks of 4x3 by "
          "'_s', which are powers of two: use one encoding, or none where it is trained");
  const auto mixed =
      choose_conversion_sides(std::vector{live, shard_of({others}, {whole})}, std::vector{live});
  REQUIRE_FALSE(mixed);
  REQUIRE(mixed.error().text.starts_with("shards disagree on 'w', which is scaled"));
}

TEST_CASE("a recoding that does not fit its regions is refused", "[runtime][conversion]") {
  const Manifest from = shard_of({{"w", bf16, {4, 3}}}, {Box::whole({4, 3})});
  const Manifest to = shard_of({{"w", f8, {4, 3}, TensorKind::parameter, 2}, {"w_s", f32, {1, 1}}},
                               {Box::whole({4, 3}), Box::whole({1, 1})});
  const auto conversion = conversion_between(from, to);
  REQUIRE(conversion);
  REQUIRE(conversion->recodings.size() == 1);
  REQUIRE(target_bytes(*conversion) == 16);
  const Memory source(from);
  const Memory target(to);
  REQUIRE(check_bounds(conversion->recodings[0], source.pointers, target.pointers));
  REQUIRE_FALSE(check_bounds(conversion->recodings[0], target.pointers, target.pointers));
  REQUIRE_FALSE(check_bounds(conversion->recodings[0], source.pointers, {}));
}

}  // namespace weir
