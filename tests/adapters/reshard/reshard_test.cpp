#include "adapters/reshard/reshard.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "adapters/model/known_models.hpp"
#include "adapters/reshard/rank_file.hpp"
#include "tests/adapters/reshard/quick_folder.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir {

// Goal: a checkpoint goes through any chain of layouts and comes back with equal bytes; a bad
// request is refused with a text that says what to change; a run that fails leaves nothing.
// Method: random small models, written as files; the expected end of a chain is its beginning, and
// each step is compared with the oracle on the way (`verify`).

namespace {

/// Counts bytes, and ends the run at a chosen question.
class TestObserver final : public ReshardObserver {
 public:
  void begin(std::string_view stage, std::uint64_t bytes) override {
    stages += std::string(stage) + " ";
    announced += bytes;
  }
  void advance(std::uint64_t bytes) override { done += bytes; }
  void end() override {}
  bool interrupted() override { return questions++ == interrupt_at; }

  std::string stages;
  std::uint64_t announced = 0;
  std::uint64_t done = 0;
  int questions = 0;
  int interrupt_at = -1;
};

struct Step {
  std::filesystem::path input = {};
  std::string from = {};
  std::string to = {};
  std::filesystem::path output = {};
  bool replace = false;
  bool verify = true;
  std::uint64_t batch_bytes = 4096;
};

Result<ReshardReport> run(const Step& step, TestObserver& observer) {
  Workers workers(2);
  ReshardRequest request{.input = step.input,
                         .from = std::nullopt,
                         .to = parse_layout(step.to).value(),
                         .output = step.output,
                         .replace = step.replace,
                         .verify = step.verify,
                         .batch_bytes = step.batch_bytes};
  if (!step.from.empty()) request.from = parse_layout(step.from).value();
  return reshard(request, workers, observer);
}

Result<ReshardReport> run(const Step& step) {
  TestObserver observer;
  return run(step, observer);
}

/// The text of the error that a step ends with.
std::string error_of(const Step& step) {
  const auto result = run(step);
  REQUIRE_FALSE(result);
  return result.error().text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string random_layout(const ModelConfig& config, Random& random) {
  std::int64_t tp = one_of<std::int64_t>(random, {1, 2, 4, 8});
  switch (random.between(0, 3)) {
    case 0:
      return "fsdp2:dp=" + number(random.between(1, 7)) + (random.chance(1, 2) ? ",dtype=f32" : "");
    case 1:
      return "vllm:tp=" + number(tp);
    case 2:
      return "hf";
    default: {
      // Megatron cuts the rows of its fused projection equally, wherever heads begin.
      const std::int64_t heads = config.num_attention_heads + 2 * config.num_key_value_heads;
      while (heads * config.head_dim % tp != 0) tp /= 2;
      const std::int64_t first = random.between(0, config.num_hidden_layers);
      return "megatron:tp=" + number(tp) + ",pp=2,layers=" + number(first) + "-" +
             number(config.num_hidden_layers - first) +
             ",vocab_multiple=" + number(random.between(1, 9));
    }
  }
}

/// A folder with a checkpoint "in" of a small qwen3 model.
struct Scene {
  explicit Scene(std::uint64_t seed = 1) : random(seed) {
    config = {.family = "qwen3",
              .hidden_size = 16,
              .num_hidden_layers = 4,
              .num_attention_heads = 8,
              .num_key_value_heads = 2,
              .head_dim = 4,
              .intermediate_size = 24,
              .vocab_size = 100,
              .tie_word_embeddings = true};
    config.qk_norm = true;
    write_random_checkpoint(folder / "in", config, random);
  }

  QuickFolder folder;
  Random random;
  ModelConfig config;
};

}  // namespace

TEST_CASE("a checkpoint comes back through any chain of layouts with equal bytes", "[reshard]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 25)));
  Random random(seed);
  const ModelConfig config = random_config(random);
  QuickFolder folder;
  write_random_checkpoint(folder / "0", config, random);
  std::string chain = "seed " + std::to_string(seed) + ": " + config.family;
  int step = 0;
  for (const std::int64_t end = random.between(1, 4); step < end; ++step) {
    const std::string to = random_layout(config, random);
    chain += " -> " + to;
    INFO(chain);
    const auto report =
        run({.input = folder / number(step), .to = to, .output = folder / number(step + 1)});
    if (!report) FAIL(report.error().text);
    REQUIRE(report->bytes_verified == report->bytes_written);
  }
  INFO(chain);
  REQUIRE(run({.input = folder / number(step), .to = "hf", .output = folder / "end"}));
  REQUIRE(tensors_in(folder / "end") == tensors_in(folder / "0"));
  REQUIRE(read_bytes(folder / "end" / "config.json") == read_bytes(folder / "0" / "config.json"));
  const auto file = SafetensorsFile::open(folder / "end" / "model.safetensors");
  REQUIRE((*file)->metadata() == FileMetadata{{"format", "pt"}});
}

TEST_CASE("hf to megatron to vllm to fsdp2 to hf gives the original bytes", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  REQUIRE(run({.input = f / "in", .from = "hf", .to = "megatron:tp=4,pp=2", .output = f / "a"}));
  REQUIRE(names_in(f / "a").size() == 9);
  REQUIRE(run({.input = f / "a", .to = "vllm:tp=4", .output = f / "b"}));
  REQUIRE(run({.input = f / "b", .to = "fsdp2:dp=3", .output = f / "c"}));
  REQUIRE(run({.input = f / "c", .from = "fsdp2:dp=3", .to = "hf", .output = f / "d"}));
  REQUIRE(tensors_in(f / "d") == tensors_in(f / "in"));
  REQUIRE(names_in(f / "d") == std::vector<std::string>{"config.json", "model.safetensors"});
}

TEST_CASE("experts, latent attention and MTP come back from every engine", "[reshard]") {
  QuickFolder f;
  Random random(3);
  ModelConfig config = *named_config("tiny-deepseek-v3");
  config.hidden_size = 16;
  config.vocab_size = 100;
  config.mtp_layers = 1;
  write_random_checkpoint(f / "in", config, random);
  const std::string megatron = "megatron:tp=2,ep=2,etp=1,pp=2,layers=1-2";
  REQUIRE(run({.input = f / "in", .to = megatron, .output = f / "a"}));
  REQUIRE(
      run({.input = f / "a", .to = "vllm:tp=2,dp=2,ep=4,redundant=4,mtp=keep", .output = f / "b"}));
  REQUIRE(run({.input = f / "b",
               .to = "sglang:tp=4,ep=2,dp=2,shared=fused,gate_up=w31,mtp=keep",
               .output = f / "c"}));
  REQUIRE(run({.input = f / "c", .to = "fsdp2:dp=5,experts=packed", .output = f / "d"}));
  REQUIRE(run({.input = f / "d", .to = megatron, .output = f / "e"}));
  REQUIRE(names_in(f / "e") == names_in(f / "a"));
  for (const std::string& name : names_in(f / "a")) {
    REQUIRE(read_bytes(f / "e" / name) == read_bytes(f / "a" / name));
  }
  REQUIRE(run({.input = f / "e", .to = "hf", .output = f / "end"}));
  REQUIRE(tensors_in(f / "end") == tensors_in(f / "in"));
}

TEST_CASE("experts that are turned over on the way come back from every engine", "[reshard]") {
  QuickFolder f;
  Random random(5);
  ModelConfig config = *named_config("gpt-oss-20b");
  config.hidden_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 2;
  config.head_dim = 4;
  config.vocab_size = 100;
  config.experts = {.count = 4, .intermediate_size = 8};
  config.intermediate_size = 8;
  write_random_checkpoint(f / "in", config, random);
  REQUIRE(run({.input = f / "in", .to = "megatron:tp=2,ep=2,etp=1", .output = f / "a"}));
  REQUIRE(run({.input = f / "a", .to = "vllm:tp=4", .output = f / "b"}));
  REQUIRE(run({.input = f / "b", .to = "sglang:tp=2", .output = f / "c"}));
  REQUIRE(run({.input = f / "c", .to = "fsdp2:dp=3", .output = f / "d"}));
  REQUIRE(run({.input = f / "d", .to = "vllm:tp=2,ep=2", .output = f / "e"}));
  REQUIRE(run({.input = f / "e", .to = "hf", .output = f / "end"}));
  REQUIRE(tensors_in(f / "end") == tensors_in(f / "in"));
}

TEST_CASE("layers of MTP that a layout does without are named, and do not come back", "[reshard]") {
  QuickFolder f;
  Random random(4);
  ModelConfig config = *named_config("tiny-deepseek-v3");
  config.hidden_size = 16;
  config.vocab_size = 100;
  config.mtp_layers = 1;
  write_random_checkpoint(f / "in", config, random);
  const auto report = run({.input = f / "in", .to = "vllm:tp=2", .output = f / "a"});
  REQUIRE(report);
  REQUIRE(std::ranges::count_if(report->unused, [](const std::string& name) {
            return name.starts_with("model.layers.3.");
          }) == std::ssize(report->unused));
  REQUIRE(contains(error_of({.input = f / "a", .to = "hf", .output = f / "b"}),
                   "needs 'model.layers.3."));
}

TEST_CASE("the report and the observer count every byte once", "[reshard]") {
  Scene scene;
  TestObserver observer;
  const auto report = run(
      {.input = scene.folder / "in", .to = "vllm:tp=2", .output = scene.folder / "out"}, observer);
  REQUIRE(report);
  REQUIRE(observer.stages == "reshard verify ");
  REQUIRE(observer.done == observer.announced);
  REQUIRE(observer.done == report->bytes_moved + report->bytes_written);
  REQUIRE(report->source_ranks == 1);
  REQUIRE(report->target_ranks == 2);
  REQUIRE(report->unused.empty());
  // Of the vocabulary's 128 padded rows 28 are not moved: 16 columns each, of the file's type.
  const auto embedding = tensors_in(scene.folder / "in").at("model.embed_tokens.weight");
  REQUIRE(report->bytes_written - report->bytes_moved == 28 * 16 * size_of(embedding.type));
}

TEST_CASE("a tensor of more than four dimensions comes back with its own shape", "[reshard]") {
  QuickFolder folder;
  Random random(7);
  const std::vector<FileTensor> tensors = {
      {.name = "conv.weight", .type = ElementType::bf16, .shape = {5, 3, 2, 2, 3}},
      {.name = "empty", .type = ElementType::f32, .shape = {0, 4}},
      {.name = "scale", .type = ElementType::f32, .shape = {}},
      {.name = "steps", .type = ElementType::i64, .shape = {3}}};
  write_random_file(folder / "model.safetensors", tensors, {{"made", "by hand"}}, random);
  REQUIRE(run({.input = folder / "model.safetensors", .to = "fsdp2:dp=2", .output = folder / "a"}));
  const auto rank = SafetensorsFile::open(folder / "a" / rank_file_name({.rank = 1, .ranks = 2}));
  REQUIRE(rank);
  // Two ranks keep 3 and 2 of the 5 rows.
  REQUIRE((*rank)->tensors().front().shape == std::vector<std::int64_t>{2, 3, 2, 2, 3});
  REQUIRE(run({.input = folder / "a", .to = "hf", .output = folder / "b"}));
  REQUIRE(tensors_in(folder / "b") == tensors_in(folder / "model.safetensors"));
  const auto file = SafetensorsFile::open(folder / "b" / "model.safetensors");
  REQUIRE((*file)->metadata() == FileMetadata{{"made", "by hand"}});
}

TEST_CASE("a dtype is written on the way, and the model's own type comes back", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  REQUIRE(run({.input = f / "in", .to = "megatron:tp=2,dtype=f32", .output = f / "a"}));
  const auto rank = SafetensorsFile::open(f / "a" / rank_file_name({.rank = 0, .ranks = 2}));
  REQUIRE(rank);
  for (const FileTensor& tensor : (*rank)->tensors()) REQUIRE(tensor.type == ElementType::f32);
  REQUIRE(run({.input = f / "a", .to = "hf", .output = f / "b"}));
  REQUIRE(tensors_in(f / "b") == tensors_in(f / "in"));
  REQUIRE(run({.input = f / "a", .to = "hf:dtype=bf16", .output = f / "c"}));
  for (const auto& [name, tensor] : tensors_in(f / "c")) REQUIRE(tensor.type == ElementType::bf16);
}

TEST_CASE("rank files that say nothing of themselves need --from and a known model", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  REQUIRE(run({.input = f / "in", .to = "vllm:tp=2,dtype=bf16", .output = f / "a"}));
  // The same files as another tool would have written them: without metadata of ours.
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto path = f / "a" / rank_file_name({.rank = rank, .ranks = 2});
    const auto file = SafetensorsFile::open(path);
    auto writer = SafetensorsWriter::create(path, (*file)->tensors(), {});
    REQUIRE(writer);
    for (std::size_t index = 0; index < (*file)->tensors().size(); ++index) {
      const auto bytes = (*file)->data(index);
      std::copy(bytes.begin(), bytes.end(), (*writer)->data(index).begin());
    }
    REQUIRE((*writer)->commit());
  }
  REQUIRE(contains(error_of({.input = f / "a", .to = "hf", .output = f / "b"}), "--from"));
  REQUIRE(run({.input = f / "a", .from = "vllm:tp=2", .to = "hf", .output = f / "b"}));
  REQUIRE(run({.input = f / "in", .to = "hf:dtype=bf16", .output = f / "c"}));
  REQUIRE(tensors_in(f / "b") == tensors_in(f / "c"));
  std::filesystem::remove(f / "a" / "config.json");
  REQUIRE(contains(error_of({.input = f / "a", .from = "vllm:tp=2", .to = "hf", .output = f / "d"}),
                   "config.json"));
}

TEST_CASE("a tied copy in the input is left out and named", "[reshard]") {
  QuickFolder folder;
  Scene scene;
  auto tensors = tensors_in(scene.folder / "in");
  const TensorContent tied = tensors.at("model.embed_tokens.weight");
  tensors["lm_head.weight"] = tied;
  std::vector<FileTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.type, tensor.shape});
  std::filesystem::create_directory(folder / "in");
  write_bytes(folder / "in" / "config.json", config_json_of(scene.config));
  auto writer = SafetensorsWriter::create(folder / "in" / "model.safetensors", list, {});
  REQUIRE(writer);
  for (std::size_t index = 0; index < list.size(); ++index) {
    const std::string& bytes = tensors.at(list[index].name).bytes;
    std::memcpy((*writer)->data(index).data(), bytes.data(), bytes.size());
  }
  REQUIRE((*writer)->commit());
  const auto report =
      run({.input = folder / "in", .to = "megatron:pp=2", .output = folder / "out"});
  REQUIRE(report);
  REQUIRE(report->left_out == std::vector<std::string>{"lm_head.weight"});
}

TEST_CASE("a layout with replicas is refused, for files hold one", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  for (const auto& [layout, option] : std::map<std::string, std::string>{
           {"megatron:tp=2,dp=2", "leave dp out"}, {"fsdp2:dp=2,hsdp=3", "leave hsdp out"}}) {
    REQUIRE(contains(error_of({.input = f / "in", .to = layout, .output = f / "out"}), option));
    REQUIRE(contains(error_of({.input = f / "in", .from = layout, .to = "hf", .output = f / "out"}),
                     option));
  }
}

TEST_CASE("a source layout that contradicts the files is refused", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  REQUIRE(run({.input = f / "in", .to = "megatron:tp=2,pp=2", .output = f / "a"}));
  REQUIRE(
      contains(error_of({.input = f / "a", .from = "vllm:tp=4", .to = "hf", .output = f / "out"}),
               "holds the layout megatron:pp=2,tp=2, not vllm:tp=4"));
  REQUIRE(contains(error_of({.input = f / "a", .from = "hf", .to = "hf", .output = f / "out"}),
                   "leave --from out"));
  REQUIRE(
      contains(error_of({.input = f / "in", .from = "vllm:tp=2", .to = "hf", .output = f / "out"}),
               "leave --from out"));
  // Another way to write the same layout is no contradiction.
  REQUIRE(run({.input = f / "a",
               .from = "megatron:tp=2,pp=2,vpp=1,layers=2-2",
               .to = "hf",
               .output = f / "out"}));
}

TEST_CASE("a folder that lacks a rank or mixes two runs is refused by name", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  REQUIRE(run({.input = f / "in", .to = "fsdp2:dp=3", .output = f / "a"}));
  REQUIRE(run({.input = f / "in", .to = "fsdp2:dp=3,dtype=f32", .output = f / "b"}));
  const std::string second = rank_file_name({.rank = 1, .ranks = 3});
  const Step step{.input = f / "a", .to = "hf", .output = f / "out"};
  std::filesystem::copy_file(f / "b" / second, f / "a" / second,
                             std::filesystem::copy_options::overwrite_existing);
  REQUIRE(contains(error_of(step), second + " does not belong"));
  std::filesystem::remove(f / "a" / second);
  REQUIRE(contains(error_of(step), "lacks " + second));
  std::filesystem::copy_file(f / "b" / second, f / "a" / rank_file_name({.rank = 0, .ranks = 4}));
  REQUIRE(contains(error_of(step), "two sets"));
  REQUIRE(contains(error_of({.input = f / "b" / second, .to = "hf", .output = f / "out"}),
                   "rank 1 of 3"));
}

TEST_CASE("files that do not fit their layout are refused by tensor and rank", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  REQUIRE(run({.input = f / "in", .to = "vllm:tp=2", .output = f / "a"}));
  const std::string name = rank_file_name({.rank = 1, .ranks = 2});
  const auto path = f / "a" / name;
  auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  const FileMetadata metadata = (*file)->metadata();
  const std::vector<FileTensor> tensors = (*file)->tensors();
  const Step step{.input = f / "a", .to = "hf", .output = f / "out"};

  std::vector<FileTensor> bent = tensors;
  bent.back().shape.front() += 1;
  write_random_file(path, bent, metadata, scene.random);
  REQUIRE(contains(error_of(step), name + ": tensor " + bent.back().name + " is "));
  REQUIRE(contains(error_of(step), "vllm:tp=2 keeps on rank 1"));

  bent = tensors;
  bent.pop_back();
  write_random_file(path, bent, metadata, scene.random);
  REQUIRE(contains(error_of(step), "lacks tensor " + tensors.back().name));

  bent = tensors;
  bent.push_back({.name = "stray", .type = ElementType::u8, .shape = {1}});
  write_random_file(path, bent, metadata, scene.random);
  REQUIRE(contains(error_of(step), "holds " + std::to_string(bent.size()) + " tensors"));
}

TEST_CASE("an output that holds anything is refused, or replaced when told to", "[reshard]") {
  Scene scene;
  const auto& f = scene.folder;
  Step step{.input = f / "in", .to = "fsdp2:dp=3", .output = f / "out"};
  std::filesystem::create_directory(f / "out");
  REQUIRE(run(step));
  REQUIRE(contains(error_of(step), "--force"));

  step.to = "hf";
  step.replace = true;
  REQUIRE(run(step));
  REQUIRE(names_in(f / "out") == std::vector<std::string>{"config.json", "model.safetensors"});

  write_bytes(f / "out" / "thesis.txt", "precious");
  REQUIRE(contains(error_of(step), "thesis.txt was not written by weir"));
  REQUIRE(read_bytes(f / "out" / "thesis.txt") == "precious");

  step.output = f / "in";
  REQUIRE(contains(error_of(step), "is the input"));
  step.output = f / "nowhere" / "out";
  REQUIRE(contains(error_of(step), "nowhere"));
  REQUIRE(names_in(f.path()) == std::vector<std::string>{"in", "out"});
}

TEST_CASE("an interrupted run leaves nothing, at whatever moment", "[reshard]") {
  Scene scene;
  const Step step{.input = scene.folder / "in", .to = "fsdp2:dp=3", .output = scene.folder / "out"};
  TestObserver whole;
  REQUIRE(run(step, whole));
  std::filesystem::remove_all(scene.folder / "out");
  REQUIRE(whole.questions > 50);
  for (int at = 0; at < whole.questions; at += 7) {
    TestObserver observer;
    observer.interrupt_at = at;
    const auto result = run(step, observer);
    REQUIRE_FALSE(result);
    REQUIRE(result.error().code == ErrorCode::unavailable);
    REQUIRE(names_in(scene.folder.path()) == std::vector<std::string>{"in"});
  }
}

TEST_CASE("an output that can't fit the disk is refused before it is begun", "[reshard]") {
  QuickFolder folder;
  // A sparse file of two tensors, each as large as all the space there is, that takes none of it.
  // What maps it must not need more addresses than a sanitizer leaves.
  const auto available =
      static_cast<std::int64_t>(std::filesystem::space(folder.path()).available >> 20) << 20;
  std::string header = "{";
  for (int i = 0; i < 2; ++i) {
    header += (i > 0 ? ",\"t" : "\"t") + number(i) + R"(":{"dtype":"U8","shape":[1024,)" +
              number(available / 1024) + R"(],"data_offsets":[)" + number(i * available) + "," +
              number((i + 1) * available) + "]}";
  }
  header += "}";
  const std::uint64_t length = header.size();
  std::string start(8, '\0');
  std::memcpy(start.data(), &length, 8);
  write_bytes(folder / "huge.safetensors", start + header);
  std::error_code error;
  std::filesystem::resize_file(folder / "huge.safetensors",
                               8 + length + 2 * static_cast<std::uint64_t>(available), error);
  if (error) SKIP("this file system has no sparse files of that size");
  REQUIRE(contains(
      error_of(
          {.input = folder / "huge.safetensors", .to = "fsdp2:dp=2", .output = folder / "out"}),
      "not enough space"));
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"huge.safetensors"});
}

}  // namespace weir
