#include "adapters/cli/async_demo.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/adapters/cli/run_weir.hpp"

namespace weir::cli {

// Goal: trainers and rollouts go on at their own pace, in every way that versions can be published
// and fetched, whoever is killed; and requests that make no sense are refused. Method: the program
// itself with its tiny checkpoint, whose processes check all that they serve.

namespace {

Run run_async(std::vector<std::string> arguments) {
  static const QuickFolder cache;
  arguments.insert(arguments.begin(),
                   {"demo", "--small", "--async", "--step-ms=50", "--decode-ms=5",
                    "--restart-ms=100", "--train=megatron:tp=2", "--rollout=vllm:tp=2"});
  return run_process({.before = "XDG_CACHE_HOME='" + (cache / "").string() + "'",
                      .arguments = std::move(arguments)});
}

bool all_agreed(const Run& run) {
  return run.status == 0 &&
         contains(run.out, "Everything that was served agreed with the independent reference.");
}

}  // namespace

TEST_CASE("versions flow from every way of publishing to every placement", "[cli][async]") {
  for (const char* way : {"pinned", "snapshot", "convert"}) {
    for (const char* placement : {"in-place", "second-buffer", "staging"}) {
      const Run run = run_async({"--versions=4", std::string("--publish=") + way,
                                 std::string("--placement=") + placement});
      INFO(way << " " << placement << ": " << run.out << run.err);
      REQUIRE(all_agreed(run));
    }
  }
}

TEST_CASE("an asynchronous demo of a given time publishes until it is over", "[cli][async]") {
  const Run run = run_async({"--seconds=1", "--follow=jump", "--private-memory"});
  INFO(run.out << run.err);
  REQUIRE(all_agreed(run));
  REQUIRE(contains(run.out, "decode steps by published minus served version:"));
}

TEST_CASE("a rollout that is killed takes part again, and its replica goes on", "[cli][async]") {
  const Run run = run_async({"--versions=6", "--kill=rollout.1.0@3"});
  INFO(run.out << run.err);
  REQUIRE(all_agreed(run));
  REQUIRE(contains(run.out, "rollout 1.0 was killed when version"));
  REQUIRE(contains(run.out, "its replica was out for"));
}

TEST_CASE("a trainer that is killed publishes again with its peers", "[cli][async]") {
  for (const char* way : {"--publish=pinned", "--publish=snapshot"}) {
    const Run run = run_async({"--versions=6", "--kill=trainer.0.1@2", way});
    INFO(run.out << run.err);
    REQUIRE(all_agreed(run));
    REQUIRE(contains(run.out, "trainer 0.1 was killed when version"));
    REQUIRE(contains(run.out, "published again after"));
  }
}

TEST_CASE("kills that make no sense are refused in one line", "[cli][async]") {
  run_async({"--versions=1"});  // Makes the checkpoint, which is said on standard error.
  for (const char* kill : {"nobody@3", "rollout", "rollout@", "rollout@0", "rollout@x",
                           "rollout.1@2", "rollout.9.0@2", "trainer@2+", "trainer.0.0.0@2"}) {
    const Run run = run_async({std::string("--kill=") + kill});
    INFO(kill << ": " << run.err);
    REQUIRE(run.status == 2);
    REQUIRE(is_one_line(run.err));
    REQUIRE(contains(run.err, "--kill"));
  }
}

TEST_CASE("options of the asynchronous demo are refused without it", "[cli][async]") {
  for (const char* option : {"--seconds=3", "--kill=rollout@1", "--publish=pinned"}) {
    const Run refused = run({"demo", "--small", option});
    INFO(option << ": " << refused.err);
    REQUIRE(refused.status == 2);
    REQUIRE(contains(refused.err, "--async"));
  }
}

}  // namespace weir::cli
