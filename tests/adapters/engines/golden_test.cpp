#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/adapters/engines/golden_case.hpp"

// Goal: Weir's layouts say of each engine what that engine does. Method: golden files that came out
// of the engines (tests/engines) hold, under the engines' own names, tensors whose elements name
// the canonical element that lies there; every name, shape and element must be the layout's.

namespace weir {

namespace {

/// Cases that a layout or a family is still missing for. A case that Weir can lay out must go from
/// here, so the list only shrinks.
const std::set<std::string_view> not_yet_supported = {};

struct Outcome {
  std::string unsupported;  ///< Why Weir can't lay it out; empty if it can.
  std::vector<std::string> differences;
};

std::string shape_and_kind(const Tensor& tensor) {
  return text_of(tensor.shape) + (tensor.kind == TensorKind::buffer ? " (a buffer)" : "");
}

/// Canonical tensors are compared first: with others the numbers would mean nothing.
std::vector<std::string> canonical_differences(const GoldenCase& golden, const Model& model) {
  std::map<std::string, std::string> theirs;
  for (const Tensor& tensor : golden.canonical) theirs[tensor.name] = shape_and_kind(tensor);
  std::vector<std::string> lines;
  for (const Tensor& tensor : model.tensors) {
    const auto found = theirs.find(tensor.name);
    const std::string shape = found == theirs.end() ? "nothing" : found->second;
    Tensor stored = tensor;
    stored.shape = Dims(stored_shape(model.config, tensor));
    if (shape != shape_and_kind(stored)) {
      lines.push_back("canonical " + tensor.name + ": " + shape + " in Transformers, " +
                      shape_and_kind(stored) + " in Weir");
    }
    theirs.erase(tensor.name);
  }
  for (const auto& [name, shape] : theirs) {
    lines.push_back("canonical " + name + ": " + shape + " in Transformers, nothing in Weir");
  }
  return lines;
}

/// What Weir says of a case that the engine refuses: nothing if it lays it out.
std::string refusal_of(const GoldenCase& golden) {
  const auto model = model_of(golden).value();
  const auto layout = Layout::of(model, parse_layout(golden.layout).value());
  if (!layout) return layout.error().text;
  const auto kept = layout->rank(0);
  return kept ? "" : kept.error().text;
}

Outcome compare(const GoldenCase& golden) {
  const auto spec = parse_layout(golden.layout);
  if (!spec) return {.unsupported = spec.error().text, .differences = {}};
  const auto size = size_of(*spec);
  if (!size) return {.unsupported = size.error().text, .differences = {}};
  const auto model = model_of(golden);
  if (!model) return {.unsupported = model.error().text, .differences = {}};
  const auto layout = Layout::of(*model, *spec);
  if (!layout) return {.unsupported = layout.error().text, .differences = {}};

  Outcome outcome{.unsupported = {}, .differences = canonical_differences(golden, layout->model())};
  if (size->ranks * size->replicas != golden.ranks) {
    outcome.differences.push_back(std::to_string(golden.ranks) + " ranks in the engine, " +
                                  std::to_string(size->ranks * size->replicas) + " in Weir");
  }
  if (!outcome.differences.empty()) return outcome;
  for (std::uint32_t rank = 0; rank < golden.ranks; ++rank) {
    const auto kept = layout->rank(rank % size->ranks);
    if (!kept) return {.unsupported = kept.error().text, .differences = {}};
    const NumberedRank ours = numbered_rank(layout->model(), *kept);
    for (const std::string& line : differences(layout->model(), golden_rank(golden, rank), ours)) {
      outcome.differences.push_back("rank " + std::to_string(rank) + ": " + line);
    }
  }
  return outcome;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n    " + line;
  return text;
}

}  // namespace

TEST_CASE("layouts agree with what the engines themselves keep", "[engines]") {
  const std::vector<GoldenCase> cases = golden_cases(WEIR_GOLDEN_FOLDER);
  // As many as tests/engines/cases.py lists: none may be lost on the way.
  REQUIRE(cases.size() == 144);
  std::set<std::string_view> waiting = not_yet_supported;
  for (const GoldenCase& golden : cases) {
    if (!golden.refused.empty()) continue;
    const Outcome outcome = compare(golden);
    INFO(golden.name << ", " << golden.layout);
    if (waiting.erase(golden.name) > 0) {
      INFO("is supported now: take it from the list of those that are not");
      CHECK_FALSE(outcome.unsupported.empty());
      continue;
    }
    INFO(outcome.unsupported << joined(outcome.differences));
    CHECK(outcome.unsupported.empty());
    CHECK(outcome.differences.empty());
  }
  for (const std::string_view name : waiting) {
    INFO(name << " is listed as not yet supported, but there is no such case");
    CHECK(waiting.empty());
  }
}

TEST_CASE("what an engine refuses is refused", "[engines]") {
  std::size_t count = 0;
  for (const GoldenCase& golden : golden_cases(WEIR_GOLDEN_FOLDER)) {
    if (golden.refused.empty()) continue;
    INFO(golden.name << ": " << golden.refused);
    CHECK(refusal_of(golden).find("cuts blocks of 128x128") != std::string::npos);
    ++count;
  }
  REQUIRE(count == 3);
}

TEST_CASE("an element in the wrong place is told by where it came from", "[engines]") {
  const Model model{.config = {},
                    .tensors = {{.name = "a", .type = ElementType::f32, .shape = {2, 2}},
                                {.name = "b", .type = ElementType::f32, .shape = {3}}},
                    .aliases = {}};
  const NumberedRank engine = {{"x", {.shape = {4}, .elements = {1, 2, 6, 0}}}};
  REQUIRE(differences(model, engine, engine).empty());
  NumberedRank weir = engine;
  weir["x"].elements[2] = 7;
  REQUIRE(differences(model, engine, weir) ==
          std::vector<std::string>{"x[2]: b[1] in the engine, b[2] in Weir"});
  weir["x"] = {.shape = {2, 2}, .elements = {1, 2, 6, 0}};
  weir["y"] = {.shape = {}, .elements = {1}};
  REQUIRE(differences(model, engine, weir) ==
          std::vector<std::string>{"x: 4 in the engine, 2x2 in Weir", "y: only Weir has it"});
}

}  // namespace weir
