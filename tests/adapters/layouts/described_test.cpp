#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <string>

#include "adapters/layouts/internal/description.hpp"
#include "tests/adapters/engines/golden_case.hpp"
#include "tests/adapters/files/scratch_folder.hpp"
#include "tests/adapters/layouts/small_models.hpp"
#include "tests/adapters/oracle/random_models.hpp"

// Goal: a user can describe a layout in a file and have the same pieces as if it were built in; and
// what is wrong in a file is told by line. Method: the examples, which describe dense models in
// vLLM and Megatron, are compared with the built-in layouts for random models; small files by hand,
// good and bad.

namespace weir {

namespace {

const std::string examples = WEIR_LAYOUTS_FOLDER;

/// Names, shapes and elements of a rank; nothing where the layout refuses the model.
std::optional<NumberedRank> rank_in(const Model& model, const std::string& spec,
                                    std::uint32_t rank) {
  const auto parsed = parse_layout(spec);
  INFO((parsed ? "" : parsed.error().text));
  REQUIRE(parsed.has_value());
  const auto layout = lay_out(model, *parsed, rank);
  if (!layout) return std::nullopt;
  return numbered_rank(model, *layout);
}

/// Compares all ranks, and returns whether there were any.
bool compare(const Model& model, const std::string& built_in, const std::string& described) {
  const std::uint32_t ranks = size_of(spec_of(built_in))->ranks;
  REQUIRE(size_of(spec_of(described))->ranks == ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto wanted = rank_in(model, built_in, rank);
    if (!wanted) return false;
    const auto layout = lay_out(model, spec_of(described), rank);
    INFO(described << " rank " << rank << ": " << (layout ? "" : layout.error().text));
    REQUIRE(layout.has_value());
    const auto lines = differences(model, *wanted, numbered_rank(model, *layout));
    INFO((lines.empty() ? "" : lines.front()));
    REQUIRE(lines.empty());
  }
  return true;
}

/// A file that holds the text, and a layout of a small llama by it.
class Described {
 public:
  explicit Described(const std::string& text) { write_bytes(path_, text); }

  [[nodiscard]] std::string path() const { return path_.string(); }
  /// What is wrong, without the path; empty where nothing is.
  [[nodiscard]] std::string refusal(const std::string& options = "") const {
    const auto spec = parse_layout(path() + options);
    const Model model = model_with(llama_config(2, 2));
    std::string text = spec ? "" : spec.error().text;
    if (spec) {
      const auto layout = lay_out(model, *spec, 0);
      if (!layout) text = layout.error().text;
    }
    return text.starts_with(path()) ? text.substr(path().size()) : text;
  }

 private:
  ScratchFolder folder_;
  std::filesystem::path path_ = folder_ / "mine.toml";
};

/// Of a whole file that has one tensor with these lines.
std::string refused_tensor(const std::string& lines) {
  return Described("ranks = 1\n[[tensor]]\nname = \"x\"\n" + lines).refusal();
}

}  // namespace

TEST_CASE("vLLM's and Megatron's dense layouts are the same when described in a file",
          "[layouts]") {
  const std::uint64_t seed = oracle::seed_from_environment();
  int vllm = 0;
  int megatron = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    oracle::Dice dice(seed + i);
    const std::int64_t tp = dice.one_in(2) ? 1 << dice.between(0, 3) : dice.between(1, 6);
    ModelConfig config = oracle::random_config(dice, tp);
    if (config.experts.count > 0 || config.family == "qwen3_next") continue;
    if (config.family != "qwen2" && config.family != "qwen3") config.family = "llama";
    config.latent = {};
    config.mtp_layers = 0;
    const auto model = model_of(config);
    if (!model) continue;
    const std::string degree = ":tp=" + std::to_string(tp);
    const std::string stages = ",pp=" + std::to_string(dice.between(1, 3));
    const std::string multiple = ",vocab_multiple=" + std::to_string(dice.between(1, 9));
    INFO("WEIR_SEED=" << seed + i << degree << stages << multiple);
    if (compare(*model, "vllm" + degree + stages,
                examples + "/vllm_dense.toml" + degree + stages)) {
      ++vllm;
    }
    if (compare(*model, "megatron" + degree + multiple,
                examples + "/megatron_dense.toml" + degree + multiple)) {
      ++megatron;
    }
  }
  CHECK(vllm > 20);
  CHECK(megatron > 20);
}

TEST_CASE("a described layout goes for any model, by the shapes in its files", "[layouts]") {
  const Described mine(R"toml(
ranks = "tp"
[options]
tp = 2
[let]
blocks = "count('block.{}.up')"
[[tensor]]
name = "up.{block}"
for = ["block", "blocks"]
let = { rows = "dim('block.{block}.up', 0) / tp" }
rows = { of = "block.{block}.up", first = "rank * rows", count = "rows" }
[[tensor]]
name = "all.down"
columns = [{ of = "block.{block}.down", for = ["block", "blocks"], count = 1, first = "rank" }]
[[tensor]]
name = "both"
rows = { of = "block.{block}.up", for = ["block", "blocks"], count = 2 }
parts = "blocks"
[[tensor]]
name = "norm"
if = "has('norm')"
whole = "norm"
)toml");
  const auto tensor = [](const char* name, Dims shape) {
    return Tensor{.name = name, .type = ElementType::bf16, .shape = shape};
  };
  const Model model{.config = {},
                    .tensors = {tensor("block.0.down", {3, 2}), tensor("block.0.up", {4, 3}),
                                tensor("block.1.down", {3, 2}), tensor("block.1.up", {4, 3})},
                    .aliases = {}};
  const RankLayout layout = rank_of(model, mine.path(), 1);
  REQUIRE(names_and_shapes(layout) ==
          std::vector<std::string>{"up.0 2x3", "up.1 2x3", "all.down 2x3x1", "both 2x2x3"});
  REQUIRE(find(layout, "up.1")->pieces.at(0).box == Box{{2, 0}, {2, 3}});
  REQUIRE(find(layout, "all.down")->pieces.at(1).box == Box{{0, 1}, {3, 1}});
  REQUIRE(size_of(spec_of(mine.path() + ":tp=3"))->ranks == 3);
  REQUIRE(text_of(spec_of(mine.path() + ":tp=3,dtype=f32")) == mine.path() + ":tp=3,dtype=f32");
}

TEST_CASE("what is wrong in a description is told by line", "[layouts]") {
  const auto refusal = [](const std::string& text) { return Described(text).refusal(); };
  REQUIRE(refusal("ranks = \n").starts_with(", line 1: is no TOML: "));
  REQUIRE(refusal("ranks = 1\n") == " has no [[tensor]]: give one for each tensor of a rank");
  REQUIRE(refusal("ranks = 1\n\nrank = 1\n") ==
          ", line 3: unknown key 'rank': use families, options, ranks, let, require or tensor");
  REQUIRE(refusal("ranks = 1\ntensor = 3\n") == ", line 2: tensor should be [[tensor]] tables");
  REQUIRE(refusal("ranks = [1]\n") ==
          ", line 1: ranks should be a number, or a text of 1 to 1024 plain characters");
  REQUIRE(
      refusal("ranks = 1\n[options]\nTp = 1\n") ==
      ", line 3: 'Tp' can't be a name: use lower-case letters, digits and '_', and neither rank, "
      "dtype nor the name of a function");
  REQUIRE(refusal("ranks = 1\n[options]\ntp = 0\n") ==
          ", line 3: tp: use a whole number from 1 to 65536");
  REQUIRE(refusal("ranks = 1\nrequire = [\"a\"]\n") ==
          ", line 2: require should be a list of [condition, what to say otherwise]");
  REQUIRE(refused_tensor("") ==
          ", line 2: a tensor has one of whole, rows, padded_rows and columns");
  REQUIRE(refused_tensor("whole = \"a\"\nrows = { of = \"a\", count = 1 }\n") ==
          ", line 2: a tensor has one of whole, rows, padded_rows and columns");
  REQUIRE(refused_tensor("whole = \"a\"\nfor = [\"i\"]\n") ==
          ", line 5: for should be [name, count], [name, first, count] or a list of such lists");
  REQUIRE(refused_tensor("rows = { of = \"a\" }\n") ==
          ", line 4: lacks count: give an expression: how many rows or columns");
  REQUIRE(refused_tensor("rows = 3\n") ==
          ", line 4: rows should be {of, first, count}, or a list of these");
  REQUIRE(refused_tensor("whole = \"a\"\nparts = 2\n") ==
          ", line 5: parts goes with rows: leave it out");
}

TEST_CASE("what does not fit the model is told by line and tensor", "[layouts]") {
  const std::string norm = "'model.norm.weight'";
  REQUIRE(refused_tensor("whole = \"bias\"\n") == ", line 4: the model has no tensor bias");
  REQUIRE(refused_tensor("rows = { of = \"lm_head.weight\", first = 60, count = 5 }\n") ==
          ", line 4: lm_head.weight is 64x2, where there is no [60, 60 + 5) of dimension 0");
  REQUIRE(refused_tensor("columns = { of = \"model.norm.weight\", count = 1 }\n") ==
          ", line 4: model.norm.weight is 2, where there is no [0, 0 + 1) of dimension 1");
  REQUIRE(
      refused_tensor("rows = [{ of = \"lm_head.weight\", count = 1 },\n"
                     "{ of = \"model.norm.weight\", count = 1 }]\n") ==
      ", line 5: model.norm.weight is 2 and lm_head.weight 64x2: rows of one tensor are equally "
      "wide");
  REQUIRE(refused_tensor("rows = { of = \"lm_head.weight\", count = 3 }\nparts = 2\n") ==
          ", line 5: 3 rows are not 2 equal parts");
  REQUIRE(refused_tensor("rows = { of = \"lm_head.weight\", count = 3, if = 0 }\n") ==
          ", line 3: the tensor is made of nothing: give it an if");
  REQUIRE(refused_tensor("whole = \"lm_head.weight\"\nfor = [\"i\", 2]\n") ==
          ", line 3: a rank has two tensors x");
  REQUIRE(refused_tensor("whole = \"lm_head.weight\"\nfor = [\"i\", \"0 - 1\"]\n") ==
          ", line 5: i would count from 0 -1 on: use numbers from 0 to 65536");
  REQUIRE(Described("ranks = 0\n[[tensor]]\nname = \"x\"\nwhole = \"y\"\n").refusal() ==
          ", line 1: ranks is 0: make it 1 or more");
  REQUIRE(Described("ranks = 1\nrequire = [[\"tp > 1\", \"tp must be 2\"]]\n[options]\ntp = 1\n"
                    "[[tensor]]\nname = \"x\"\nwhole = \"lm_head.weight\"\n")
              .refusal() == ", line 2: tp must be 2");
  REQUIRE(parse_layout("no/such.toml").error().code == ErrorCode::not_found);
}

TEST_CASE("a described layout's options are checked as any other's", "[layouts]") {
  const Described mine(
      "ranks = \"tp\"\n[options]\ntp = 1\n[[tensor]]\nname = \"x\"\nwhole = \"y\"\n");
  REQUIRE(parse_layout(mine.path() + ":pp=2").error().text ==
          "layout " + mine.path() + " has no option 'pp': use tp, dtype or quant");
  REQUIRE(parse_layout(mine.path() + ":tp=0").error().text ==
          "tp=0 is out of bounds: use a whole number from 1 to 65536");
}

}  // namespace weir
