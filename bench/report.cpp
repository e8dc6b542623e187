#include "bench/report.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

namespace weir {
namespace {

// The mean number of runnable processes over the last 1, 5 and 15 minutes; zeros where unknown.
std::array<double, 3> machine_load() {
  std::array<double, 3> load{};
  if (getloadavg(load.data(), static_cast<int>(load.size())) < 0) load.fill(0);
  return load;
}

std::string text_of(double value) {
  std::array<char, 32> text{};
  // Four significant digits are more than a shared machine repeats.
  std::snprintf(text.data(), text.size(), value >= 1000 ? "%.0f" : "%.4g", value);
  return text.data();
}

std::string yardstick_of(const Figure& figure) {
  if (figure.compared_with.empty()) return "";
  std::array<char, 32> ratio{};
  std::snprintf(ratio.data(), ratio.size(), "%.3f", figure.ratio);
  return std::string(ratio.data()) + " of " + figure.compared_with;
}

}  // namespace

Report::Report(int argc, char** argv)
    : program_(argc > 0 ? argv[0] : "bench"), load_at_start_(machine_load()) {
  program_.erase(0, program_.find_last_of('/') + 1);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") {
      json_ = true;
    } else {
      std::fprintf(stderr, "%s: unknown argument %s: leave it out, or give --json\n",
                   program_.c_str(), argv[i]);
      std::exit(2);
    }
  }
}

void Report::add(Figure figure) {
  figures_.push_back(std::move(figure));
}

int Report::print() const {
  if (figures_.empty()) {
    std::fprintf(stderr, "%s: measured nothing\n", program_.c_str());
    return 1;
  }
  json_ ? print_json() : print_table();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : 1;
}

void Report::print_json() const {
  for (const Figure& figure : figures_) {
    nlohmann::ordered_json line;
    line["name"] = figure.name;
    line["value"] = figure.value;
    line["unit"] = figure.unit;
    line["compared_with"] = nullptr;
    line["ratio"] = nullptr;
    if (!figure.compared_with.empty()) {
      line["compared_with"] = figure.compared_with;
      line["ratio"] = figure.ratio;
    }
    std::printf("%s\n", line.dump().c_str());
  }
}

void Report::print_table() const {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  std::size_t unit_width = 0;
  for (const Figure& figure : figures_) {
    name_width = std::max(name_width, figure.name.size());
    value_width = std::max(value_width, text_of(figure.value).size());
    unit_width = std::max(unit_width, figure.unit.size());
  }
  std::printf("%s\n", program_.c_str());
  for (const Figure& figure : figures_) {
    std::string line = "  " + figure.name;
    line.append(2 + name_width - figure.name.size(), ' ');
    const std::string value = text_of(figure.value);
    line.append(value_width - value.size(), ' ').append(value).append(" ").append(figure.unit);
    line.append(2 + unit_width - figure.unit.size(), ' ').append(yardstick_of(figure));
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
  const std::array<double, 3> load = machine_load();
  std::printf("  load %.2f at the start, %.2f at the end (1 min), %.2f (15 min), on %u cores\n",
              load_at_start_[0], load[0], load[2], std::thread::hardware_concurrency());
}

}  // namespace weir
