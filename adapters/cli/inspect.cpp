// `weir inspect`: what a file, a checkpoint or a folder of rank files holds.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"
#include "adapters/files/file_system.hpp"
#include "adapters/reshard/rank_file.hpp"
#include "adapters/safetensors/safetensors.hpp"

namespace weir::cli {
namespace {

/// Longer metadata (the model facts of rank files) is cut in the table, never in the JSON.
constexpr std::size_t metadata_columns_max = 60;

struct InspectArguments {
  std::string path;
  bool json = false;
};

struct Totals {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::map<ElementType, std::uint64_t> bytes_by_type;

  void add(const FileTensor& tensor) {
    tensors += 1;
    bytes += bytes_of(tensor);
    bytes_by_type[tensor.type] += bytes_of(tensor);
  }
};

/// The files to look into, sorted. Errors: `not_found`, `io`.
Result<std::vector<std::filesystem::path>> files_at(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return std::vector{path};
  std::vector<std::filesystem::path> files;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
  }
  if (error) return system_failure("list", path, error.value());
  if (files.empty()) {
    return failure(ErrorCode::not_found, path.string() + " holds no *.safetensors files");
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A name or value out of a file: it may hold control characters, which a terminal would obey.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    if (!text.empty()) text += "x";
    text += std::to_string(extent);
  }
  return text.empty() ? "scalar" : text;
}

std::string padded(std::string text, std::size_t columns) {
  if (text.size() < columns) text.append(columns - text.size(), ' ');
  return text;
}

std::string summary_text(const Totals& totals) {
  std::string text = std::to_string(totals.tensors) +
                     (totals.tensors == 1 ? " tensor, " : " tensors, ") +
                     bytes_text(static_cast<double>(totals.bytes));
  const char* separator = " (";
  for (const auto& [type, bytes] : totals.bytes_by_type) {
    text += separator + std::string(name_of(type)) + " " + bytes_text(static_cast<double>(bytes));
    separator = ", ";
  }
  return totals.bytes_by_type.empty() ? text : text + ")";
}

Totals print_file(const SafetensorsFile& file, std::ostream& out) {
  Totals totals;
  std::size_t widest = 0;
  for (const FileTensor& tensor : file.tensors()) {
    totals.add(tensor);
    widest = std::max(widest, tensor.name.size());
  }
  out << file.path().string() << ": " << summary_text(totals) << "\n";
  for (const auto& [key, value] : file.metadata()) {
    std::string shown = printable(value);
    if (shown.size() > metadata_columns_max) {
      shown =
          shown.substr(0, metadata_columns_max) + "… (" + std::to_string(value.size()) + " bytes)";
    }
    out << "  metadata " << printable(key) << " = " << shown << "\n";
  }
  for (const FileTensor& tensor : file.tensors()) {
    out << "  " << padded(printable(tensor.name), widest) << "  "
        << padded(std::string(name_of(tensor.type)), 7) << "  "
        << padded(shape_text(tensor.shape), 14) << "  "
        << bytes_text(static_cast<double>(bytes_of(tensor))) << "\n";
  }
  return totals;
}

nlohmann::json json_of(const SafetensorsFile& file, Totals& totals) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const FileTensor& tensor : file.tensors()) {
    totals.add(tensor);
    tensors.push_back({{"name", tensor.name},
                       {"type", std::string(name_of(tensor.type))},
                       {"shape", tensor.shape},
                       {"bytes", bytes_of(tensor)}});
  }
  return {{"file", file.path().string()},
          {"metadata", file.metadata()},
          {"tensors", std::move(tensors)}};
}

/// What a folder's rank files say, as far as they agree; the text is empty for other files.
struct LayoutSeen {
  std::string layout;
  std::uint32_t ranks = 0;
  std::uint32_t present = 0;

  Result<void> add(const SafetensorsFile& file) {
    const auto statement = statement_in(file);
    if (!statement) return failure(statement);
    if (!*statement) return {};
    const std::string text = text_of((*statement)->layout);
    if (present > 0 && (text != layout || (*statement)->number.ranks != ranks)) {
      return failure(ErrorCode::invalid, file.path().string() + " is of the layout " + text +
                                             ", other files of its folder are of " + layout +
                                             "; look at one file at a time");
    }
    layout = text;
    ranks = (*statement)->number.ranks;
    present += 1;
    return {};
  }
};

Result<void> run(const InspectArguments& arguments, Console& console) {
  const auto paths = files_at(arguments.path);
  if (!paths) return failure(paths);
  Totals totals;
  LayoutSeen seen;
  nlohmann::json files = nlohmann::json::array();
  for (const std::filesystem::path& path : *paths) {
    const auto file = SafetensorsFile::open(path);
    if (!file) return failure(file);
    if (auto added = seen.add(**file); !added) return added;
    if (arguments.json) {
      files.push_back(json_of(**file, totals));
      continue;
    }
    const Totals part = print_file(**file, console.out);
    totals.tensors += part.tensors;
    totals.bytes += part.bytes;
    for (const auto& [type, bytes] : part.bytes_by_type) totals.bytes_by_type[type] += bytes;
  }
  if (arguments.json) {
    nlohmann::json json = {{"path", arguments.path},
                           {"files", std::move(files)},
                           {"tensors", totals.tensors},
                           {"bytes", totals.bytes}};
    if (seen.present > 0)
      json["layout"] = {{"spec", seen.layout}, {"ranks", seen.ranks}, {"present", seen.present}};
    console.out << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return {};
  }
  if (seen.present > 0) {
    console.out << "layout " << seen.layout << ", " << seen.present << " of " << seen.ranks
                << " ranks\n";
  }
  if (paths->size() > 1) {
    console.out << "total " << paths->size() << " files: " << summary_text(totals) << "\n";
  }
  return {};
}

}  // namespace

Action declare_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  app.add_option("PATH", arguments->path, "safetensors file, checkpoint, or folder of rank files")
      ->required();
  app.add_flag("--json", arguments->json, "print one JSON object");
  return [arguments](Console& console) { return run(*arguments, console); };
}

}  // namespace weir::cli
