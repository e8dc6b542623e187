#include "adapters/cli/program.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string_view>

#include "adapters/cli/verb.hpp"

namespace weir::cli {
namespace {

constexpr std::array verbs = {
    Verb{"demo", "move a real checkpoint between processes and prove every byte", declare_demo},
    Verb{"demo-shard", "", declare_demo_shard},
    Verb{"async-shard", "", declare_async_shard},
    Verb{"reshard", "rewrite a checkpoint from one engine's layout into another's",
         declare_reshard},
    Verb{"plan", "say what would move from a training layout to a rollout layout", declare_plan},
    Verb{"soak", "simulate exchanges with failing members, seed by seed", declare_soak},
    Verb{"doctor", "say what this host offers for moving weights", declare_doctor},
    Verb{"inspect", "list what a file or folder of tensors holds", declare_inspect},
};

constexpr int status_trouble = 1;
constexpr int status_bad_request = 2;

int status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid:
    case ErrorCode::not_found:
    case ErrorCode::refused:
      return status_bad_request;
    case ErrorCode::unavailable:
    case ErrorCode::timeout:
    case ErrorCode::io:
      return status_trouble;
  }
  return status_trouble;
}

/// Names and paths come from outside and may hold anything; a complaint stays one line.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

int complain(Console& console, int status, std::string_view text) {
  console.err << "weir: " << one_line(std::string(text)) << std::endl;
  return status;
}

std::string verb_names() {
  std::string names;
  for (const Verb& verb : verbs) {
    if (*verb.summary == '\0') continue;
    if (!names.empty()) names += ", ";
    names += verb.name;
  }
  return names;
}

void print_help(Console& console) {
  console.out << "Moves a model's weights from the shards that train it to those that generate.\n\n"
                 "Usage: weir VERB ARGUMENTS...\n\nVerbs:\n";
  for (const Verb& verb : verbs) {
    if (*verb.summary == '\0') continue;
    std::string name = verb.name;
    name.resize(10, ' ');
    console.out << "  " << name << verb.summary << "\n";
  }
  console.out << "\n`weir VERB --help` says more about one; `weir --version` which weir this is.\n"
                 "A layout is written NAME:OPTION=VALUE,...: hf, fsdp2:dp=8, megatron:tp=4,pp=2,\n"
                 "vllm:tp=8. Exit status: 0 done, 1 trouble of the machine, 2 a bad request.\n";
}

int run_verb(const Verb& verb, std::vector<std::string> arguments, Console& console) {
  CLI::App app(verb.summary, std::string("weir ") + verb.name);
  const Action action = verb.declare(app);
  try {
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    console.out << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    return complain(
        console, status_bad_request,
        std::string(error.what()) + " (`weir " + verb.name + " --help` lists the arguments)");
  }
  const Result<void> result = action(console);
  return result ? 0 : complain(console, status_of(result.error().code), result.error().text);
}

int dispatch(const std::vector<std::string>& arguments, Console& console) {
  if (arguments.empty()) {
    return complain(console, status_bad_request,
                    "say what to do: " + verb_names() + " (`weir --help` says more)");
  }
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    print_help(console);
    return 0;
  }
  if (first == "--version") {
    console.out << "weir " << WEIR_VERSION << "\n";
    return 0;
  }
  for (const Verb& verb : verbs) {
    if (first != verb.name) continue;
    return run_verb(verb, {arguments.begin() + 1, arguments.end()}, console);
  }
  return complain(console, status_bad_request,
                  "no verb '" + first + "'; there are " + verb_names());
}

}  // namespace

int run_program(const std::vector<std::string>& arguments, Console& console) noexcept {
  int status = status_trouble;
  try {
    status = dispatch(arguments, console);
  } catch (const std::exception& error) {
    return complain(console, status_trouble, error.what());
  } catch (...) {
    return complain(console, status_trouble, "an error without a name");
  }
  console.out.flush();
  if (status == 0 && !console.out) {
    return complain(console, status_trouble, "cannot write to standard output; is its disk full?");
  }
  return status;
}

}  // namespace weir::cli
