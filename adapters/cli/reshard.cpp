// `weir reshard`: the offline move from one layout's files to another's.

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "adapters/cli/held_signals.hpp"
#include "adapters/cli/layout_argument.hpp"
#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"
#include "adapters/reshard/reshard.hpp"
#include "runtime/workers.hpp"

namespace weir::cli {
namespace {

struct ReshardArguments {
  std::string input;
  std::string from;
  std::string to;
  std::string output;
  bool force = false;
  bool verify = false;
  bool progress = false;
  unsigned threads = 0;
};

/// Shows each stage as a progress bar, and takes Ctrl-C for an interruption.
class ConsoleObserver final : public ReshardObserver {
 public:
  ConsoleObserver(Console& console, bool redraw, const HeldSignals& signals)
      : console_(console), redraw_(redraw), signals_(signals) {}

  void begin(std::string_view stage, std::uint64_t bytes) override {
    bar_.emplace(
        console_,
        ProgressOptions{.label = std::string(stage), .total_bytes = bytes, .redraw = redraw_});
  }
  void advance(std::uint64_t bytes) override { bar_->add(bytes); }
  void end() override { bar_->finish(); }
  bool interrupted() override { return signals_.pending(); }

 private:
  Console& console_;
  bool redraw_;
  const HeldSignals& signals_;
  std::optional<ProgressBar> bar_;
};

std::string count_text(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void print_report(const ReshardArguments& arguments, const ReshardReport& report,
                  const LayoutSpec& to, std::ostream& out) {
  out << arguments.output << ": " << text_of(to) << ", " << count_text(report.target_ranks, "file")
      << ", " << bytes_text(static_cast<double>(report.bytes_written)) << "\n"
      << "from " << arguments.input << ": " << text_of(report.from) << ", "
      << count_text(report.source_ranks, "rank") << ", " << count_text(report.tensors, "tensor")
      << "\n"
      << "plan " << text_of(report.plan) << ": "
      << (report.copies == 1 ? "1 copy" : std::to_string(report.copies) + " copies") << ", "
      << bytes_text(static_cast<double>(report.bytes_moved)) << "\n";
  for (const std::string& name : report.left_out) {
    out << "left out " << name << ": the model has it elsewhere, or engines compute it\n";
  }
  if (!report.unused.empty()) {
    out << "not written: " << count_text(report.unused.size(), "tensor") << " that " << text_of(to)
        << " has no place for, from " << report.unused.front() << " to " << report.unused.back()
        << "\n";
  }
  if (arguments.verify) {
    out << "verified: all " << bytes_text(static_cast<double>(report.bytes_verified))
        << " agree with the reference\n";
  }
}

Result<void> run(const ReshardArguments& arguments, Console& console) {
  ReshardRequest request{.input = arguments.input,
                         .from = std::nullopt,
                         .to = {},
                         .output = arguments.output,
                         .replace = arguments.force,
                         .verify = arguments.verify,
                         .batch_bytes = ReshardRequest{}.batch_bytes};
  if (!arguments.from.empty()) {
    auto from = layout_argument("--from", arguments.from);
    if (!from) return failure(from);
    request.from = *std::move(from);
  }
  auto to = layout_argument("--to", arguments.to);
  if (!to) return failure(to);
  request.to = *std::move(to);

  // Before the workers, so that they too leave the signals waiting.
  const HeldSignals signals;
  Workers workers(arguments.threads);
  ConsoleObserver observer(console, console.terminal || arguments.progress, signals);
  const auto report = reshard(request, workers, observer);
  if (!report) return failure(report);
  print_report(arguments, *report, request.to, console.out);
  return {};
}

}  // namespace

Action declare_reshard(CLI::App& app) {
  auto arguments = std::make_shared<ReshardArguments>();
  app.add_option("DIR", arguments->input, "checkpoint (file or folder), or folder of rank files")
      ->required();
  app.add_option("--from", arguments->from, "layout of DIR; may be left out where its files say it")
      ->type_name("LAYOUT");
  app.add_option("--to", arguments->to, "layout to write, such as megatron:tp=4,pp=2")
      ->required()
      ->type_name("LAYOUT");
  app.add_option("--out", arguments->output, "folder to make; it appears whole or not at all")
      ->required()
      ->type_name("DIR2");
  app.add_flag("--force", arguments->force, "replace what an earlier run wrote there");
  app.add_flag("--verify", arguments->verify,
               "read the output back and compare every byte with a separate reference");
  app.add_option("--threads", arguments->threads, "threads that copy; 0 is one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--progress", arguments->progress, "draw the bar also where no terminal is");
  return [arguments](Console& console) { return run(*arguments, console); };
}

}  // namespace weir::cli
