#include "adapters/cli/program.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/adapters/cli/run_weir.hpp"

namespace weir::cli {

// Goal: the manners of the program: help on request, and for a bad request one line and status 2.
// Method: run it as a function and as a process, and look at its streams.

TEST_CASE("help and version are answers, not errors", "[cli]") {
  for (const char* flag : {"--help", "-h", "help", "--version"}) {
    const Run result = run({flag});
    INFO(flag);
    REQUIRE(result.status == 0);
    REQUIRE(result.err.empty());
    REQUIRE_FALSE(result.out.empty());
  }
}

TEST_CASE("a run without a verb or with an unknown one is refused in one line", "[cli]") {
  const std::vector<std::vector<std::string>> requests = {{}, {"frob"}, {"--frob"}, {"fr\nob"}};
  for (const auto& arguments : requests) {
    const Run result = run(arguments);
    REQUIRE(result.status == 2);
    REQUIRE(result.out.empty());
    REQUIRE(is_one_line(result.err));
  }
  REQUIRE(run({"frob"}).err.find("no verb 'frob'") != std::string::npos);
}

TEST_CASE("every verb explains itself", "[cli]") {
  for (const char* verb : {"reshard", "plan", "inspect"}) {
    const Run result = run({verb, "--help"});
    REQUIRE(result.status == 0);
    REQUIRE(result.err.empty());
    REQUIRE(contains(result.out, std::string("weir ") + verb));
  }
  REQUIRE(contains(run({"reshard", "--help"}).out, "--verify"));
}

TEST_CASE("the doctor says how RDMA and locked memory stand, on any host", "[cli]") {
  const Run result = run({"doctor"});
  REQUIRE(result.status == 0);
  for (const char* heading : {"RDMA devices\n  ", "Locked memory ", "What two members use\n  "}) {
    REQUIRE(contains(result.out, heading));
  }
}

TEST_CASE("bad arguments are refused in one line that names them", "[cli]") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> requests = {
      {{"reshard"}, "DIR is required"},
      {{"reshard", "in", "--to", "hf"}, "--out is required"},
      {{"reshard", "in", "--out", "out"}, "--to is required"},
      {{"reshard", "in", "--to", "hf", "--out", "out", "--frob"}, "--frob"},
      {{"reshard", "in", "--to", "hf", "--out", "out", "--threads", "many"}, "--threads"},
      {{"plan", "qwen3-0.6b", "--train", "hf"}, "--rollout is required"},
      {{"plan", "qwen3-0.6b", "--train", "hf", "--rollout", "hf", "--replicas", "0"}, "replicas"},
      {{"inspect"}, "PATH is required"},
      {{"inspect", "a", "b"}, "b"},
  };
  for (const auto& [arguments, part] : requests) {
    const Run result = run(arguments);
    INFO(part << " in " << result.err);
    REQUIRE(result.status == 2);
    REQUIRE(result.out.empty());
    REQUIRE(is_one_line(result.err));
    REQUIRE(contains(result.err, part));
    REQUIRE(contains(result.err, "--help"));
  }
}

TEST_CASE("the real program keeps the same manners", "[cli]") {
  const Run version = run_process({.arguments = {"--version"}});
  REQUIRE(version.status == 0);
  REQUIRE(version.out.starts_with("weir "));
  const Run unknown = run_process({.arguments = {"frob"}});
  REQUIRE(unknown.status == 2);
  REQUIRE(is_one_line(unknown.err));
  const Run none = run_process({});
  REQUIRE(none.status == 2);
  REQUIRE(is_one_line(none.err));
}

TEST_CASE("output that can't be written is trouble, not success", "[cli]") {
  const Run full = run_process({.arguments = {"--help"}, .after = ">/dev/full"});
  REQUIRE(full.status == 1);
  REQUIRE(is_one_line(full.err));
  REQUIRE(contains(full.err, "standard output"));
}

}  // namespace weir::cli
