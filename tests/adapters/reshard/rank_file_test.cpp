#include "adapters/reshard/rank_file.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/adapters/reshard/quick_folder.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir {

// Goal: what rank files say of themselves is read back exactly, and nothing else is believed.
// Method: texts worked by hand, good and bent.

namespace {

CheckpointFacts sample_facts() {
  CheckpointFacts facts;
  facts.model.tensors = {
      {.name = "bias", .type = ElementType::f32, .shape = {3}, .kind = TensorKind::buffer},
      {.name = "conv", .type = ElementType::bf16, .shape = {5, 3, 2, 6}}};
  facts.model.tensors.push_back({.name = "scale", .type = ElementType::f16, .shape = {}});
  facts.model.aliases = {{.name = "head", .of = "conv"}};
  facts.full_shapes = {{"conv", {5, 3, 2, 2, 3}}};
  facts.metadata = {{"format", "pt"}};
  return facts;
}

/// The error of a file with that metadata.
std::string statement_error(const FileMetadata& metadata) {
  QuickFolder folder;
  Random random(1);
  write_random_file(folder / "x.safetensors", {}, metadata, random);
  const auto file = SafetensorsFile::open(folder / "x.safetensors");
  REQUIRE(file);
  const auto statement = statement_in(**file);
  REQUIRE_FALSE(statement);
  return statement.error().text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank file's name says its rank and how many there are", "[reshard]") {
  const RankNumber third{.rank = 3, .ranks = 8};
  REQUIRE(rank_file_name(third) == "rank-00003-of-00008.safetensors");
  REQUIRE(parse_rank_file_name("rank-00003-of-00008.safetensors") == third);
  const RankNumber large{.rank = 123456, .ranks = 200000};
  REQUIRE(parse_rank_file_name(rank_file_name(large)) == large);
  for (const char* name :
       {"rank-00008-of-00008.safetensors", "rank-3-of-8.safetensors", "rank-00003-of-00008.bin",
        "model-00001-of-00008.safetensors", "rank-0000x-of-00008.safetensors", "rank-.safetensors",
        "rank-00003-of-.safetensors", "rank--0003-of-00008.safetensors", "rank-of-.safetensors",
        "rank-00003-of-safetensors"}) {
    INFO(name);
    REQUIRE_FALSE(parse_rank_file_name(name).has_value());
  }
}

TEST_CASE("a rank file's statement is read back as it was written", "[reshard]") {
  const RankStatement statement{.layout = parse_layout("megatron:tp=4,pp=2").value(),
                                .number = {.rank = 3, .ranks = 8},
                                .facts = "{}"};
  const FileMetadata metadata = metadata_of(statement);
  REQUIRE(metadata.at("weir.layout") == "megatron:pp=2,tp=4");
  REQUIRE(metadata.at("weir.rank") == "3");
  QuickFolder folder;
  Random random(1);
  write_random_file(folder / "x.safetensors", {}, metadata, random);
  const auto file = SafetensorsFile::open(folder / "x.safetensors");
  REQUIRE(file);
  const auto read = statement_in(**file);
  REQUIRE(read);
  REQUIRE(read->has_value());
  REQUIRE((*read)->layout == statement.layout);
  REQUIRE((*read)->number == statement.number);
  REQUIRE((*read)->facts == statement.facts);
}

TEST_CASE("a bent statement is refused by file and key", "[reshard]") {
  const FileMetadata good = {
      {"weir.layout", "vllm:tp=2"}, {"weir.rank", "1"}, {"weir.ranks", "2"}, {"weir.model", "{}"}};
  for (const auto& [key, value] : good) {
    if (key == "weir.layout") continue;
    FileMetadata bent = good;
    bent.erase(key);
    REQUIRE(contains(statement_error(bent), "x.safetensors: its metadata lacks " + key));
  }
  FileMetadata bent = good;
  bent["weir.layout"] = "frob:tp=2";
  REQUIRE(contains(statement_error(bent), "bad weir.layout"));
  for (const char* rank : {"2", "-1", "one", "", "99999999999"}) {
    bent = good;
    bent["weir.rank"] = rank;
    REQUIRE(contains(statement_error(bent), "weir.rank"));
  }
}

TEST_CASE("facts are read back as they were written", "[reshard]") {
  const CheckpointFacts facts = sample_facts();
  const auto read = parse_checkpoint_facts(encode(facts), facts.model.config);
  REQUIRE(read);
  REQUIRE(*read == facts);
}

TEST_CASE("facts of another form are refused and nothing crashes", "[reshard]") {
  const std::string end = R"(],"aliases":[],"metadata":{}})";
  const std::string start = R"({"tensors":[)";
  REQUIRE(parse_checkpoint_facts(start + end, {}));
  const std::vector<std::string> bent = {
      "",
      "nonsense",
      "[]",
      "{}",
      R"({"tensors":[],"aliases":[]})",
      R"({"tensors":[],"metadata":{}})",
      R"({"tensors":{},"aliases":[],"metadata":{}})",
      R"({"tensors":[],"aliases":[["a"]],"metadata":{}})",
      R"({"tensors":[],"aliases":[],"metadata":{"a":1}})",
      start + R"(["a","bf16"])" + end,
      start + R"(["a","bf16",[2],"gadget"])" + end,
      start + R"([1,"bf16",[2]])" + end,
      start + R"(["a","bf17",[2]])" + end,
      start + R"(["a","bf16",[-2]])" + end,
      start + R"(["a","bf16",[2.5]])" + end,
      start + R"(["a","bf16",2])" + end,
      start + R"(["a","bf16",[4294967296,4294967296]])" + end,
      start + R"(["a","bf16",[2]],["a","bf16",[2]])" + end,
  };
  for (const std::string& text : bent) {
    const auto facts = parse_checkpoint_facts(text, {});
    INFO(text);
    REQUIRE_FALSE(facts);
    REQUIRE(contains(facts.error().text, "model facts that weir did not write"));
  }
}

TEST_CASE("shapes of more than four dimensions are folded at their end", "[reshard]") {
  REQUIRE(folded({2, 3}) == Dims{2, 3});
  REQUIRE(folded({}) == Dims{});
  REQUIRE(folded({2, 3, 4, 5, 6, 7}) == Dims{2, 3, 4, 210});
}

}  // namespace weir
