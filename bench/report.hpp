#pragma once
// What a benchmark prints: the same figures as a table for a person or as JSON for a program.

#include <array>
#include <string>
#include <vector>

namespace weir {

/// One measured figure. A figure without a yardstick leaves `compared_with` empty.
struct Figure {
  std::string name = {};           ///< What was measured, such as "fetch, resharded".
  double value = 0;                ///< In `unit`; finite.
  std::string unit = {};           ///< Such as "GB/s", where GB is 10^9 bytes.
  std::string compared_with = {};  ///< What was measured in the same run, such as "memcpy".
  double ratio = 0;  ///< Value over the yardstick's; used only beside `compared_with`.
};

/// Collects the figures of one benchmark program and prints them once. For one thread.
///
///     Report report(argc, argv);
///     report.add({.name = "plan", .value = seconds, .unit = "s"});
///     return report.print();
class Report {
 public:
  /// Knows one argument, `--json`. For any other it writes one line to the standard error and ends
  /// the program with status 2, so make the report before the work.
  Report(int argc, char** argv);

  void add(Figure figure);
  /// Whether `--json` was given: then nothing else may be printed.
  [[nodiscard]] bool json() const noexcept { return json_; }

  /// To the standard output: one JSON object a line with name, value, unit, compared_with and
  /// ratio (null where there is no yardstick), or a table and the machine's load at the beginning
  /// and at the end of the run. Returns the program's exit status: 0, or 1 when the output could
  /// not be written or there is no figure.
  [[nodiscard]] int print() const;

 private:
  void print_json() const;
  void print_table() const;

  std::string program_;
  bool json_ = false;
  std::array<double, 3> load_at_start_;
  std::vector<Figure> figures_;
};

}  // namespace weir
