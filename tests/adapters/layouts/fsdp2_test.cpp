#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: plain Hugging Face and FSDP2 layouts take any model whatever, and FSDP2 cuts as PyTorch
// does. Method: models of a few odd tensors, tables worked by hand from the rule.

namespace weir {

namespace {

/// A model of no known family.
Model odd_model(std::vector<Tensor> tensors) {
  return {.config = {}, .tensors = std::move(tensors), .aliases = {}};
}

Tensor tensor(const char* name, Dims shape) {
  return {.name = name, .type = ElementType::bf16, .shape = shape};
}

std::vector<std::int64_t> rows_of_each_rank(std::int64_t rows, std::uint32_t ranks) {
  const Model model = odd_model({tensor("w", {rows, 3})});
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const RankLayout layout = rank_of(model, "fsdp2:dp=" + std::to_string(ranks), rank);
    const std::int64_t count = layout.tensors.at(0).shape.at(0);
    const std::string expected =
        count == 0 ? "" : "w " + std::to_string(next) + ":" + std::to_string(next + count);
    REQUIRE(row_runs(model, layout, "w") == expected);
    next += count;
    counts.push_back(count);
  }
  REQUIRE(next == rows);
  return counts;
}

}  // namespace

TEST_CASE("FSDP2 gives ranks chunks rounded up, so the last may be short or empty", "[layouts]") {
  REQUIRE(rows_of_each_rank(10, 4) == std::vector<std::int64_t>{3, 3, 3, 1});
  REQUIRE(rows_of_each_rank(5, 4) == std::vector<std::int64_t>{2, 2, 1, 0});
  REQUIRE(rows_of_each_rank(8, 4) == std::vector<std::int64_t>{2, 2, 2, 2});
  REQUIRE(rows_of_each_rank(1, 3) == std::vector<std::int64_t>{1, 0, 0});
  std::vector<std::int64_t> many(42, 3);
  many.push_back(2);
  many.insert(many.end(), 5, 0);
  REQUIRE(rows_of_each_rank(128, 48) == many);
}

TEST_CASE("FSDP2 cuts tensors of any rank on their first dimension", "[layouts]") {
  const Model model = odd_model({tensor("bias", {3}), tensor("conv", {3, 2, 5, 5})});
  REQUIRE(names_and_shapes(rank_of(model, "fsdp2:dp=2", 0)) ==
          std::vector<std::string>{"bias 2", "conv 2x2x5x5"});
  const RankLayout last = rank_of(model, "fsdp2:dp=2,hsdp=7", 1);
  REQUIRE(names_and_shapes(last) == std::vector<std::string>{"bias 1", "conv 1x2x5x5"});
  REQUIRE(last.tensors.at(1).pieces.at(0) == LocalPiece{.tensor = 1,
                                                        .box = {{2, 0, 0, 0}, {1, 2, 5, 5}},
                                                        .offset = 0,
                                                        .stride = {50, 25, 5, 1}});
}

TEST_CASE("FSDP2 keeps scalars and buffers whole on every rank", "[layouts]") {
  Tensor buffer = tensor("running_mean", {4});
  buffer.kind = TensorKind::buffer;
  const Model model = odd_model({buffer, tensor("scale", {})});
  for (const std::uint32_t rank : {0U, 1U}) {
    const RankLayout layout = rank_of(model, "fsdp2:dp=2", rank);
    REQUIRE(names_and_shapes(layout) == std::vector<std::string>{"running_mean 4", "scale scalar"});
    REQUIRE(layout.tensors.at(0).pieces.at(0).box == Box{{0}, {4}});
    REQUIRE(layout.tensors.at(1).pieces.at(0).box == Box{});
  }
}

TEST_CASE("hf keeps every tensor of any model whole", "[layouts]") {
  const Model model = odd_model({tensor("a", {}), tensor("b", {2, 3}), tensor("c", {0, 3})});
  const RankLayout layout = rank_of(model, "hf", 0);
  REQUIRE(names_and_shapes(layout) == std::vector<std::string>{"a scalar", "b 2x3", "c 0x3"});
  REQUIRE(layout.tensors.at(0).pieces.size() == 1);
  REQUIRE(layout.tensors.at(1).pieces.at(0) ==
          LocalPiece{.tensor = 1, .box = {{0, 0}, {2, 3}}, .offset = 0, .stride = {3, 1}});
  REQUIRE(layout.tensors.at(2).pieces.empty());
}

TEST_CASE("dtype replaces f32 and bf16, and no other type", "[layouts]") {
  std::vector<Tensor> tensors;
  for (int index = 0; index < element_type_count; ++index) {
    const auto type = static_cast<ElementType>(index);
    tensors.push_back({.name = std::to_string(index), .type = type, .shape = {2}});
  }
  const Model model = odd_model(tensors);
  for (const char* spec : {"hf:dtype=f32", "fsdp2:dtype=f32"}) {
    const RankLayout layout = rank_of(model, spec, 0);
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      const ElementType type = tensors[index].type;
      REQUIRE(layout.tensors.at(index).type ==
              (type == ElementType::bf16 ? ElementType::f32 : type));
    }
  }
}

TEST_CASE("a rank that hf or FSDP2 does not have is refused", "[layouts]") {
  const Model model = odd_model({tensor("a", {2})});
  REQUIRE(lay_out(model, spec_of("hf"), 1).error() ==
          Error{ErrorCode::invalid, "rank 1 is out of range: hf has ranks 0 to 0"});
  REQUIRE(lay_out(model, spec_of("fsdp2:dp=3"), 3).error() ==
          Error{ErrorCode::invalid, "rank 3 is out of range: fsdp2:dp=3 has ranks 0 to 2"});
}

TEST_CASE("a layout that lay_out can't understand is refused", "[layouts]") {
  const Model model = odd_model({tensor("a", {2})});
  LayoutSpec spec{.name = "none", .options = {}, .layers = {}, .dtype = {}};
  REQUIRE(lay_out(model, spec, 0).error().text ==
          "unknown layout 'none': use hf, fsdp2, megatron, vllm, sglang or the name of "
          "a .toml file that describes one");
  spec = {.name = "fsdp2", .options = {{"dp", -1}}, .layers = {}, .dtype = {}};
  REQUIRE(lay_out(model, spec, 0).error().text ==
          "dp=-1 is out of bounds: use a whole number from 1 to 65536");
}

}  // namespace weir
