#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "adapters/reshard/rank_file.hpp"
#include "tests/adapters/cli/run_weir.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir::cli {

// Goal: `weir plan` and `weir inspect` tell the truth about a model, from a name, a config alone or
// files. Method: a model whose bytes are summed by hand.

namespace {

/// Tied, without biases. Elements: embedding 128*16; per layer two norms of 16, q 32*16, k and v
/// 8*16 each, q and k norms of 4, o 16*32, gate, up and down 24*16 each; final norm 16.
ModelConfig small_config() {
  ModelConfig config{.family = "qwen3",
                     .hidden_size = 16,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 8,
                     .num_key_value_heads = 2,
                     .head_dim = 4,
                     .intermediate_size = 24,
                     .vocab_size = 128,
                     .tie_word_embeddings = true};
  config.qk_norm = true;
  return config;
}
constexpr std::int64_t layer_elements =
    2 * 16 + 32 * 16 + 2 * 8 * 16 + 2 * 4 + 16 * 32 + 3 * 24 * 16;
constexpr std::int64_t model_elements = 128 * 16 + 2 * layer_elements + 16;

struct Scene {
  Scene() {
    std::filesystem::create_directory(folder / "config-only");
    write_bytes(folder / "config-only" / "config.json", config_json_of(small_config()));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder / name).string(); }
  QuickFolder folder;
};

nlohmann::json plan_json(const std::string& model, const std::string& train,
                         const std::string& rollout, const std::string& replicas) {
  const Run result = run(
      {"plan", model, "--train", train, "--rollout", rollout, "--replicas", replicas, "--json"});
  INFO(result.err);
  REQUIRE(result.status == 0);
  REQUIRE(is_one_line(result.out));
  return nlohmann::json::parse(result.out);
}

}  // namespace

TEST_CASE("a plan from a config alone counts the bytes of both sides", "[cli]") {
  const Scene scene;
  // fsdp2 over 2 and over 4: all rows are even, so that every target is a quarter of the model.
  const auto json = plan_json(scene.path("config-only"), "fsdp2:dp=2", "fsdp2:dp=4", "3");
  constexpr std::int64_t bytes = 2 * model_elements;
  REQUIRE(json["tensors"] == 2 + 2 * 11);
  REQUIRE(json["model_bytes"] == bytes);
  REQUIRE(json["bytes"] == 3 * bytes);
  REQUIRE(json["sources"]["shards"].size() == 2);
  REQUIRE(json["targets"]["shards"].size() == 12);
  for (const auto& target : json["targets"]["shards"]) REQUIRE(target["bytes"] == bytes / 4);
  for (const auto& source : json["sources"]["shards"]) REQUIRE(source["bytes"] == 3 * bytes / 2);
  REQUIRE(json["targets"]["largest_over_mean"] == 1.0);
  REQUIRE(json["unused"].empty());
  REQUIRE(json["digest"].get<std::string>().size() == 32);
  REQUIRE(json["seconds"].get<double>() > 0);
}

TEST_CASE("replicas of the trainer share the work", "[cli]") {
  const Scene scene;
  const auto json = plan_json(scene.path("config-only"), "megatron:tp=2,dp=2", "fsdp2:dp=2", "1");
  REQUIRE(json["sources"]["shards"].size() == 4);
  for (const auto& source : json["sources"]["shards"]) REQUIRE(source["bytes"] > 0);
}

TEST_CASE("weights are quantized where fewer bytes travel, unless the trainers cut blocks",
          "[cli]") {
  const Scene scene;
  const std::string model = scene.path("config-only");
  // Each of a layer's seven projections is less than a block: codes of a byte and one scale.
  constexpr std::int64_t projections = 2 * (32 * 16 + 2 * 8 * 16 + 16 * 32 + 3 * 24 * 16);
  const auto whole = plan_json(model, "hf", "hf:quant=fp8_block", "1");
  REQUIRE(whole["converted_at_source"] == 14);
  REQUIRE(whole["converted_at_target"] == 0);
  REQUIRE(whole["bytes"] == 2 * model_elements - projections + 14 * 4);
  const auto cut = plan_json(model, "megatron:tp=2", "hf:quant=fp8_block", "1");
  REQUIRE(cut["converted_at_source"] == 0);
  REQUIRE(cut["converted_at_target"] == 14);
  REQUIRE(cut["bytes"] == 2 * model_elements);
  const Run told = run({"plan", model, "--train", "hf", "--rollout", "vllm:quant=int8_channel"});
  REQUIRE(contains(told.out, "convert   14 tensors at the source, 0 at the target\n"));
}

TEST_CASE("the table shows every shard of a small plan and the ends of a large one", "[cli]") {
  const Scene scene;
  const Run small =
      run({"plan", scene.path("config-only"), "--train", "hf", "--rollout", "vllm:tp=2"});
  REQUIRE(small.status == 0);
  REQUIRE(contains(small.out, "trainer 0.0"));
  REQUIRE(contains(small.out, "rollout 0.1"));
  REQUIRE(contains(small.out, "largest over mean"));
  const std::vector<std::string> large = {
      "plan", scene.path("config-only"), "--train", "hf", "--rollout", "fsdp2:dp=20"};
  const Run cut = run(large);
  REQUIRE(contains(cut.out, "8 more (--all shows them)"));
  std::vector<std::string> all = large;
  all.push_back("--all");
  const Run whole = run(all);
  for (int rank = 0; rank < 20; ++rank) {
    REQUIRE(contains(whole.out, "rollout 0." + std::to_string(rank) + " "));
  }
}

TEST_CASE("a model can be given by name, as a checkpoint or as rank files", "[cli]") {
  const Scene scene;
  const auto named = plan_json("qwen3-0.6b", "megatron:tp=2,pp=2", "vllm:tp=4", "1");
  REQUIRE(named["tensors"] == 2 + 28 * 11);

  Random random(2);
  write_random_checkpoint(scene.folder / "in", small_config(), random);
  const auto files = plan_json(scene.path("in"), "hf", "vllm:tp=2", "1");
  REQUIRE(run({"reshard", scene.path("in"), "--to", "fsdp2:dp=3", "--out", scene.path("ranks")})
              .status == 0);
  const auto ranks = plan_json(scene.path("ranks"), "hf", "vllm:tp=2", "1");
  REQUIRE(files["digest"] == ranks["digest"]);
}

TEST_CASE("a plan that can't be made is refused in one line", "[cli]") {
  const Scene scene;
  std::filesystem::create_directory(scene.folder / "empty");
  const std::string model = scene.path("config-only");
  const std::vector<std::pair<std::vector<std::string>, std::string>> requests = {
      {{"qwen9", "hf", "hf"}, "qwen3-0.6b"},
      {{scene.path("empty"), "hf", "hf"}, "config.json"},
      {{model, "frob", "hf"}, "--train frob"},
      {{model, "hf", "vllm:frob=1"}, "--rollout vllm:frob=1"},
      {{model, "megatron:tp=3", "hf"}, "tp"},
      {{model, "hf", "vllm:tp=16"}, "tp"},
  };
  for (const auto& [request, part] : requests) {
    const Run result = run({"plan", request[0], "--train", request[1], "--rollout", request[2]});
    INFO(result.err);
    REQUIRE(result.status == 2);
    REQUIRE(result.out.empty());
    REQUIRE(is_one_line(result.err));
    REQUIRE(contains(result.err, part));
  }
}

TEST_CASE("inspect lists names, types, shapes, bytes and metadata", "[cli]") {
  const Scene scene;
  Random random(1);
  write_random_file(scene.folder / "x.safetensors",
                    {{.name = "w", .type = ElementType::bf16, .shape = {3, 5}},
                     {.name = "s", .type = ElementType::f32, .shape = {}},
                     {.name = "bad\x1b[2J", .type = ElementType::u8, .shape = {0}}},
                    {{"format", "pt"}}, random);
  const Run table = run({"inspect", scene.path("x.safetensors")});
  REQUIRE(table.status == 0);
  REQUIRE(contains(table.out, "3 tensors, 34 B (f32 4 B, bf16 30 B, u8 0 B)"));
  REQUIRE(contains(table.out, "metadata format = pt"));
  REQUIRE(contains(table.out, "3x5"));
  REQUIRE(contains(table.out, "scalar"));
  REQUIRE_FALSE(contains(table.out, "\x1b"));

  const Run text = run({"inspect", scene.path("x.safetensors"), "--json"});
  REQUIRE(text.status == 0);
  const auto json = nlohmann::json::parse(text.out);
  REQUIRE(json["bytes"] == 34);
  REQUIRE(json["tensors"] == 3);
  REQUIRE(json["files"][0]["metadata"]["format"] == "pt");
  const auto& last = json["files"][0]["tensors"][2];
  REQUIRE(last["name"] == "w");
  REQUIRE(last["type"] == "bf16");
  REQUIRE(last["shape"] == nlohmann::json::array({3, 5}));
  REQUIRE(last["bytes"] == 30);
  REQUIRE_FALSE(json.contains("layout"));
}

TEST_CASE("inspect says the layout of a folder of rank files", "[cli]") {
  const Scene scene;
  Random random(2);
  write_random_checkpoint(scene.folder / "in", small_config(), random);
  const auto make = [&](const std::string& layout, const std::string& out) {
    REQUIRE(run({"reshard", scene.path("in"), "--to", layout, "--out", scene.path(out)}).status ==
            0);
  };
  make("vllm:tp=2", "out");
  const Run table = run({"inspect", scene.path("out")});
  REQUIRE(table.status == 0);
  REQUIRE(contains(table.out, "layout vllm:tp=2, 2 of 2 ranks"));
  REQUIRE(contains(table.out, "total 2 files: "));
  const auto json = nlohmann::json::parse(run({"inspect", scene.path("out"), "--json"}).out);
  REQUIRE(json["layout"]["spec"] == "vllm:tp=2");
  REQUIRE(json["layout"]["present"] == 2);
  REQUIRE(json["files"].size() == 2);

  make("fsdp2:dp=2", "other");
  const std::string second = rank_file_name({.rank = 1, .ranks = 2});
  std::filesystem::copy_file(scene.folder / "other" / second, scene.folder / "out" / second,
                             std::filesystem::copy_options::overwrite_existing);
  const Run mixed = run({"inspect", scene.path("out")});
  REQUIRE(mixed.status == 2);
  REQUIRE(is_one_line(mixed.err));
  REQUIRE(contains(mixed.err, "one file at a time"));
}

TEST_CASE("what can't be inspected is refused in one line", "[cli]") {
  const Scene scene;
  write_bytes(scene.folder / "junk.safetensors", "no safetensors file");
  for (const char* name : {"none", "junk.safetensors", "config-only"}) {
    const Run result = run({"inspect", scene.path(name)});
    INFO(name);
    REQUIRE(result.status == 2);
    REQUIRE(is_one_line(result.err));
    REQUIRE(contains(result.err, name));
  }
}

}  // namespace weir::cli
