#include "adapters/cli/program.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <sstream>

namespace weir::cli {

// Goal: the manners of the program: help on request, and for a bad request one line and status 2.
// Method: run it as a function and look at its streams.

namespace {

struct Run {
  int status = 0;
  std::string out;
  std::string err;
};

Run run(const std::vector<std::string>& arguments) {
  const SystemClock clock;
  std::ostringstream out;
  std::ostringstream err;
  Console console{.out = out, .err = err, .clock = clock};
  const int status = run_program(arguments, console);
  return {status, out.str(), err.str()};
}

bool is_one_line(const std::string& text) {
  return !text.empty() && std::count(text.begin(), text.end(), '\n') == 1 && text.back() == '\n';
}

}  // namespace

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

}  // namespace weir::cli
