#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "adapters/files/file_system.hpp"
#include "adapters/files/strict_json.hpp"
#include "adapters/safetensors/safetensors.hpp"

namespace weir {
namespace {

using WeightMap = std::map<std::string, std::string>;
using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* single_name = "model.safetensors";

/// Whether a file name out of an index stays within the index's folder.
bool stays_inside(const std::filesystem::path& name) {
  return !name.empty() && name.is_relative() &&
         std::none_of(name.begin(), name.end(), [](const auto& part) { return part == ".."; });
}

Result<WeightMap> read_index(const std::filesystem::path& path) {
  const Result<nlohmann::json> json = read_strict_json(path);
  if (!json) return failure(json);
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (map == json->end() || !map->is_object()) {
    return failure(ErrorCode::invalid, path.string() + " has no object \"weight_map\"");
  }
  WeightMap weights;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return failure(ErrorCode::invalid,
                     path.string() + " names no file for tensor " + quoted_name(tensor));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (!stays_inside(name)) {
      return failure(ErrorCode::invalid, path.string() + " names the file " + quoted_name(name) +
                                             ", which is not inside its folder");
    }
    weights.emplace(tensor, name);
  }
  return weights;
}

Result<Files> open_all(const std::vector<std::filesystem::path>& paths) {
  Files files;
  for (const std::filesystem::path& path : paths) {
    auto file = SafetensorsFile::open(path);
    if (!file) return failure(file);
    files.push_back(std::move(*file));
  }
  return files;
}

/// That the files hold exactly the tensors which the index promises, each where it says.
Result<void> check_against(const WeightMap& weights, const std::filesystem::path& folder,
                           const Files& files) {
  std::set<std::string_view> found;
  for (const auto& file : files) {
    for (const FileTensor& tensor : file->tensors()) {
      const auto named = weights.find(tensor.name);
      if (named == weights.end() || folder / named->second != file->path()) {
        return failure(ErrorCode::invalid, file->path().string() + " holds tensor " +
                                               quoted_name(tensor.name) + ", which " + index_name +
                                               " does not say");
      }
      found.insert(named->first);
    }
  }
  for (const auto& [tensor, file] : weights) {
    if (found.contains(tensor)) continue;
    return failure(ErrorCode::invalid, (folder / file).string() + " lacks tensor " +
                                           quoted_name(tensor) + ", which " + index_name +
                                           " says it holds");
  }
  return {};
}

Result<Files> open_indexed(const std::filesystem::path& folder) {
  const Result<WeightMap> weights = read_index(folder / index_name);
  if (!weights) return failure(weights);
  std::set<std::filesystem::path> paths;
  for (const auto& [tensor, file] : *weights) paths.insert(folder / file);
  Result<Files> files = open_all({paths.begin(), paths.end()});
  if (!files) return files;
  if (auto agrees = check_against(*weights, folder, *files); !agrees) return failure(agrees);
  return files;
}

Result<Files> open_loose(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") paths.push_back(entry->path());
  }
  if (error) return system_failure("list", folder, error.value());
  if (paths.empty()) {
    return failure(ErrorCode::not_found, folder.string() + " holds no *.safetensors file");
  }
  std::sort(paths.begin(), paths.end());
  return open_all(paths);
}

Result<Files> open_files(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return open_all({path});
  if (std::filesystem::exists(path / index_name, error)) return open_indexed(path);
  if (std::filesystem::exists(path / single_name, error)) return open_all({path / single_name});
  return open_loose(path);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& path) {
  Result<Files> files = open_files(path);
  if (!files) return failure(files);
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->files_ = std::move(*files);
  auto& entries = checkpoint->entries_;
  for (std::size_t file = 0; file < checkpoint->files_.size(); ++file) {
    const auto& tensors = checkpoint->files_[file]->tensors();
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      entries.push_back({tensors[index], file, index});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.tensor.name < b.tensor.name; });
  const auto twice = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.tensor.name == b.tensor.name; });
  if (twice != entries.end()) {
    return failure(ErrorCode::invalid,
                   "tensor " + quoted_name(twice->tensor.name) + " is both in " +
                       checkpoint->files_[twice->file]->path().string() + " and in " +
                       checkpoint->files_[std::next(twice)->file]->path().string() +
                       ": open one of the files");
  }
  return checkpoint;
}

const Checkpoint::Entry* Checkpoint::find(std::string_view name) const noexcept {
  const auto entry = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Entry& e, std::string_view wanted) { return e.tensor.name < wanted; });
  return entry != entries_.end() && entry->tensor.name == name ? &*entry : nullptr;
}

std::span<const std::byte> Checkpoint::data(const Entry& entry) const noexcept {
  return files_[entry.file]->data(entry.index);
}

}  // namespace weir
