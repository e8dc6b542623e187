#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "adapters/model/known_models.hpp"
#include "adapters/model/seeded_checkpoint.hpp"
#include "runtime/workers.hpp"
#include "tests/adapters/cli/run_weir.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir::cli {

// Goal: whichever member dies at whatever moment, the rest goes on, it takes part again, and nobody
// ever serves what it must not. Method: asynchronous demos whose ways, paces and kills a seed
// decides; each process checks what it serves, and a demo in which something hangs ends with an
// error. WEIR_KILL_RUNS is how many, WEIR_KILL_SEED the first seed.

namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets it here.
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Large enough for kills to fall into the middle of fetches: about 8 MB.
std::string model_in(const QuickFolder& folder) {
  auto config = named_config("tiny-qwen3");
  REQUIRE(config);
  config->hidden_size = 512;
  config->vocab_size = 6'000;
  Workers workers(0);
  const std::string model = (folder / "model").string();
  REQUIRE(write_seeded_checkpoint(
      model, *config, 1, [](std::uint64_t, std::uint64_t) {}, workers));
  return model;
}

std::vector<std::string> arguments_for(Random& random, const std::string& model) {
  std::vector<std::string> arguments = {"demo", "--model=" + model, "--async", "--versions=6"};
  const auto add = [&arguments](const std::string& argument) { arguments.push_back(argument); };
  add(one_of<std::string>(
      random, {"--train=megatron:tp=2", "--train=fsdp2:dp=2", "--train=megatron:tp=1,dp=2"}));
  add(one_of<std::string>(random, {"--rollout=vllm:tp=2", "--rollout=vllm:tp=1"}));
  add(one_of<std::string>(random, {"--replicas=1", "--replicas=2", "--replicas=3"}));
  add(one_of<std::string>(random, {"--publish=pinned", "--publish=snapshot", "--publish=convert"}));
  add(one_of<std::string>(
      random, {"--placement=in-place", "--placement=second-buffer", "--placement=staging"}));
  add(one_of<std::string>(random, {"--follow=finish", "--follow=jump"}));
  add(one_of<std::string>(random, {"--step-ms=20", "--step-ms=30", "--step-ms=100"}));
  add(one_of<std::string>(random, {"--decode-ms=1", "--decode-ms=10"}));
  add(one_of<std::string>(random, {"--restart-ms=0", "--restart-ms=50", "--restart-ms=300"}));
  const std::int64_t kills = random.between(1, 3);
  for (std::int64_t kill = 0; kill < kills; ++kill) {
    add("--kill=" + one_of<std::string>(random, {"rollout", "trainer"}) + "@" +
        std::to_string(random.between(1, 5)) + "+" + std::to_string(random.between(0, 150)));
  }
  return arguments;
}

}  // namespace

TEST_CASE("whoever is killed at whatever moment, the rest goes on and serves what is right",
          "[cli][async][kill]") {
  const QuickFolder folder;
  const std::string model = model_in(folder);
  const std::uint64_t first = number_from("WEIR_KILL_SEED", 1);
  const std::uint64_t runs = number_from("WEIR_KILL_RUNS", 6);
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    Random random(seed);
    const std::vector<std::string> arguments = arguments_for(random, model);
    std::string line;
    for (const std::string& argument : arguments) line += " " + argument;
    const Run run = run_process({.arguments = arguments});
    INFO("seed " << seed << ":" << line << "\n" << run.out << run.err);
    REQUIRE(run.status == 0);
    REQUIRE(contains(run.out, "Everything that was served agreed"));
  }
}

TEST_CASE("a trainer that is back at once is not read as if it were the one that died",
          "[cli][async][kill]") {
  const QuickFolder folder;
  const Run run =
      run_process({.arguments = {"demo", "--model=" + model_in(folder), "--async", "--versions=5",
                                 "--train=fsdp2:dp=3", "--rollout=hf", "--publish=pinned",
                                 "--placement=in-place", "--step-ms=50", "--restart-ms=0",
                                 "--kill=trainer@2+5", "--kill=trainer@3", "--kill=trainer@4+10"}});
  INFO(run.out << run.err);
  REQUIRE(run.status == 0);
  REQUIRE(contains(run.out, "Everything that was served agreed"));
}

}  // namespace weir::cli
