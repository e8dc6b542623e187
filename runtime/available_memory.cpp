#include "runtime/available_memory.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace weir {
namespace {

std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<std::uint64_t> number_in(std::string_view text) noexcept {
  const std::size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return number;
}

/// The number after `key` at the start of a line.
std::optional<std::uint64_t> line_number(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return number_in(line.substr(key.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

/// The path of this process in the version 2 hierarchy, below the place where that is mounted.
std::string own_group() {
  std::istringstream lines(text_in("/proc/self/cgroup"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> available_of_meminfo(std::string_view meminfo) noexcept {
  const auto kibibytes = line_number(meminfo, "MemAvailable:");
  if (!kibibytes || *kibibytes > (std::numeric_limits<std::uint64_t>::max() >> 10)) {
    return std::nullopt;
  }
  return *kibibytes << 10;
}

std::optional<std::uint64_t> available_of_group(std::string_view max, std::string_view current,
                                                std::string_view stat) noexcept {
  const auto limit = number_in(max);
  const auto used = number_in(current);
  if (!limit || !used) return std::nullopt;
  const std::uint64_t cached = line_number(stat, "inactive_file ").value_or(0) +
                               line_number(stat, "active_file ").value_or(0);
  const std::uint64_t held = *used - std::min(*used, cached);
  return *limit - std::min(*limit, held);
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = available_of_meminfo(text_in("/proc/meminfo"))
                                .value_or(std::numeric_limits<std::uint64_t>::max());
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path group = own_group();
  for (;;) {
    const std::filesystem::path folder = root / group;
    const auto left =
        available_of_group(text_in(folder / "memory.max"), text_in(folder / "memory.current"),
                           text_in(folder / "memory.stat"));
    if (left) available = std::min(available, *left);
    if (group.empty()) return available;
    group = group.parent_path();
  }
}

}  // namespace weir
