#include "adapters/reshard/reshard_source.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "adapters/files/file_system.hpp"
#include "adapters/model/checkpoint_model.hpp"
#include "adapters/reshard/file_manifest.hpp"
#include "adapters/reshard/internal/same_layout.hpp"
#include "adapters/reshard/rank_file.hpp"

namespace weir {
namespace {

using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

/// The numbers of the rank files in a folder, sorted; none for a file or any other folder.
Result<std::vector<RankNumber>> rank_files_in(const std::filesystem::path& folder) {
  std::vector<RankNumber> numbers;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return numbers;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto number = parse_rank_file_name(entry->path().filename().string());
    if (number) numbers.push_back(*number);
  }
  if (error) return system_failure("list", folder, error.value());
  std::sort(numbers.begin(), numbers.end(), [](const RankNumber& a, const RankNumber& b) {
    return std::pair(a.ranks, a.rank) < std::pair(b.ranks, b.rank);
  });
  return numbers;
}

/// Opens every rank's file. Errors: sets of two sizes in one folder, a missing rank.
Result<Files> open_rank_files(const std::filesystem::path& folder,
                              const std::vector<RankNumber>& numbers) {
  const std::uint32_t ranks = numbers.front().ranks;
  if (numbers.back().ranks != ranks) {
    return failure(ErrorCode::invalid, folder.string() + " holds " +
                                           rank_file_name(numbers.front()) + " and " +
                                           rank_file_name(numbers.back()) +
                                           ", which belong to two sets; remove one of them");
  }
  Files files;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const RankNumber number{.rank = rank, .ranks = ranks};
    if (rank >= numbers.size() || numbers[rank] != number) {
      return failure(ErrorCode::not_found, folder.string() + " lacks " + rank_file_name(number) +
                                               "; the files of all ranks must be there");
    }
    auto file = SafetensorsFile::open(folder / rank_file_name(number));
    if (!file) return failure(file);
    files.push_back(std::move(*file));
  }
  return files;
}

/// What all files of a folder state of themselves, or nothing where none says anything.
Result<std::optional<RankStatement>> common_statement(const Files& files) {
  std::optional<RankStatement> common;
  for (std::uint32_t rank = 0; rank < files.size(); ++rank) {
    const SafetensorsFile& file = *files[rank];
    auto statement = statement_in(file);
    if (!statement) return failure(statement);
    if (rank == 0) common = *statement;
    const bool agrees =
        statement->has_value() == common.has_value() &&
        (!common ||
         ((*statement)->layout == common->layout && (*statement)->facts == common->facts &&
          (*statement)->number ==
              RankNumber{.rank = rank, .ranks = static_cast<std::uint32_t>(files.size())}));
    if (!agrees) {
      return failure(ErrorCode::invalid, file.path().string() +
                                             " does not belong with the other files of its "
                                             "folder: its metadata names another layout, model "
                                             "or rank; put the files of one run back together");
    }
  }
  return common;
}

/// The facts of rank files that say nothing of themselves.
Result<CheckpointFacts> facts_of_config(const std::filesystem::path& folder) {
  const auto config = read_model_config(folder);
  if (!config) return failure(config);
  auto model = model_of(config->value_or(ModelConfig{}));
  if (!model) {
    return failure(ErrorCode::invalid, folder.string() +
                                           ": its files do not say which model they hold, and its "
                                           "config.json does not either: " +
                                           model.error().text);
  }
  return CheckpointFacts{.model = *std::move(model), .full_shapes = {}, .metadata = {}};
}

/// That what was opened as a checkpoint is one: no rank's file under another name, and no other
/// layout asked for.
Result<void> check_plain(const SafetensorsFile& file, const std::filesystem::path& path,
                         const std::optional<LayoutSpec>& from) {
  const auto statement = statement_in(file);
  if (!statement) return failure(statement);
  if (*statement) {
    const RankNumber number = (*statement)->number;
    return failure(ErrorCode::invalid,
                   file.path().string() + " is rank " + std::to_string(number.rank) + " of " +
                       std::to_string(number.ranks) + " in the layout " +
                       weir::text_of((*statement)->layout) +
                       "; give the folder that holds all ranks under their own names");
  }
  if (from && from->name != "hf") {
    return failure(ErrorCode::invalid,
                   path.string() + " holds a checkpoint (hf) and no files named " +
                       rank_file_name({.rank = 0, .ranks = 1}) + "; leave --from out");
  }
  return {};
}

std::string text_of_shape(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const std::int64_t extent : shape) {
    if (!text.empty()) text += "x";
    text += std::to_string(extent);
  }
  return text;
}

std::string text_of(const FileTensor& tensor) {
  return std::string(name_of(tensor.type)) + " " + text_of_shape(tensor.shape);
}

}  // namespace

Result<std::unique_ptr<ReshardSource>> ReshardSource::open(const std::filesystem::path& path,
                                                           const std::optional<LayoutSpec>& from) {
  const auto numbers = rank_files_in(path);
  if (!numbers) return failure(numbers);
  auto source = numbers->empty() ? open_checkpoint(path, from) : open_ranks(path, *numbers, from);
  if (!source) return source;
  ReshardSource& opened = **source;
  if (auto fits = opened.lay_out_ranks(); !fits) return failure(fits);
  if (from && !same_layout(opened.facts_.model, *from, opened.layout_)) {
    return failure(ErrorCode::invalid, path.string() + " holds the layout " +
                                           weir::text_of(opened.layout_) + ", not " +
                                           weir::text_of(*from) + "; leave --from out");
  }
  for (std::uint32_t rank = 0; rank < opened.ranks_.size(); ++rank) {
    if (auto bound = opened.bind(rank); !bound) return failure(bound);
  }
  return source;
}

Result<std::unique_ptr<ReshardSource>> ReshardSource::open_checkpoint(
    const std::filesystem::path& path, const std::optional<LayoutSpec>& from) {
  std::unique_ptr<ReshardSource> source(new ReshardSource);
  std::error_code error;
  source->path_ = path;
  source->folder_ = std::filesystem::is_directory(path, error) ? path : folder_of(path);
  source->layout_.name = "hf";
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return failure(checkpoint);
  source->checkpoint_ = *std::move(checkpoint);
  for (const auto& file : source->checkpoint_->files()) {
    if (auto plain = check_plain(*file, path, from); !plain) return failure(plain);
    // Several files of one checkpoint say the same; where they do not, the first one counts.
    source->facts_.metadata.insert(file->metadata().begin(), file->metadata().end());
  }
  const auto config = read_model_config(source->folder_);
  if (!config) return failure(config);
  auto model = open_model(*source->checkpoint_, *config);
  if (!model) return failure(model.error().code, path.string() + ": " + model.error().text);
  source->facts_.model = *std::move(model);
  for (const Checkpoint::Entry& entry : source->checkpoint_->entries()) {
    if (entry.tensor.shape.size() <= static_cast<std::size_t>(rank_max)) continue;
    source->facts_.full_shapes.emplace(entry.tensor.name, entry.tensor.shape);
  }
  return source;
}

Result<std::unique_ptr<ReshardSource>> ReshardSource::open_ranks(
    const std::filesystem::path& folder, const std::vector<RankNumber>& numbers,
    const std::optional<LayoutSpec>& from) {
  std::unique_ptr<ReshardSource> source(new ReshardSource);
  source->path_ = folder;
  source->folder_ = folder;
  auto files = open_rank_files(folder, numbers);
  if (!files) return failure(files);
  source->files_ = *std::move(files);
  auto statement = common_statement(source->files_);
  if (!statement) return failure(statement);
  if (!*statement && !from) {
    return failure(ErrorCode::invalid, folder.string() +
                                           ": its files do not say their layout; "
                                           "say it with --from");
  }
  source->layout_ = *statement ? (*statement)->layout : *from;
  if (!*statement) {
    auto facts = facts_of_config(folder);
    if (!facts) return failure(facts);
    source->facts_ = *std::move(facts);
    return source;
  }
  const auto config = read_model_config(folder);
  if (!config) return failure(config);
  auto facts = parse_checkpoint_facts((*statement)->facts, config->value_or(ModelConfig{}));
  if (!facts) {
    return failure(facts.error().code,
                   source->files_.front()->path().string() + " " + facts.error().text);
  }
  source->facts_ = *std::move(facts);
  return source;
}

Result<void> ReshardSource::lay_out_ranks() {
  const auto size = size_of(layout_);
  if (!size) return failure(size);
  const std::size_t files = checkpoint_ ? 1 : files_.size();
  if (size->ranks != files) {
    return failure(ErrorCode::invalid, folder_.string() + " holds " + std::to_string(files) +
                                           " ranks, but " + weir::text_of(layout_) + " has " +
                                           std::to_string(size->ranks) +
                                           "; which layout were they written in?");
  }
  const auto layouts = Layout::of(facts_.model, layout_);
  if (!layouts) return failure(layouts);
  for (std::uint32_t rank = 0; rank < size->ranks; ++rank) {
    auto layout = layouts->rank(rank);
    if (!layout) return failure(layout);
    ranks_.push_back(*std::move(layout));
  }
  return {};
}

Result<void> ReshardSource::bind(std::uint32_t rank) {
  const RankLayout& layout = ranks_[rank];
  std::vector<MappedTensor> tensors;
  for (const FileTensor& wanted : file_tensors(layout, facts_)) {
    auto found = find(rank, wanted);
    if (!found) return failure(found);
    tensors.push_back(*found);
  }
  if (!checkpoint_ && tensors.size() != files_[rank]->tensors().size()) {
    return failure(
        ErrorCode::invalid,
        files_[rank]->path().string() + " holds " + std::to_string(files_[rank]->tensors().size()) +
            " tensors, but " + weir::text_of(layout_) + " keeps " + std::to_string(tensors.size()) +
            " on rank " + std::to_string(rank) + "; is that the layout it was written in?");
  }
  tensors_.push_back(std::move(tensors));
  FileManifest described =
      file_manifest(facts_.model, layout, {.side = Side::trainer, .replica = 0, .rank = rank},
                    static_cast<std::uint32_t>(ranks_.size()));
  manifests_.push_back(std::move(described.manifest));
  tensor_of_region_.push_back(std::move(described.tensor_of_region));
  return {};
}

Result<MappedTensor> ReshardSource::find(std::uint32_t rank, const FileTensor& wanted) const {
  MappedTensor found;
  if (checkpoint_) {
    const Checkpoint::Entry* entry = checkpoint_->find(wanted.name);
    if (entry) found = {checkpoint_->files()[entry->file].get(), entry->index};
  } else {
    const auto& tensors = files_[rank]->tensors();
    const auto place = std::lower_bound(
        tensors.begin(), tensors.end(), wanted.name,
        [](const FileTensor& tensor, const std::string& name) { return tensor.name < name; });
    if (place != tensors.end() && place->name == wanted.name) {
      found = {files_[rank].get(), static_cast<std::size_t>(place - tensors.begin())};
    }
  }
  const std::string file = found.file ? found.file->path().string() : this->file(rank).string();
  const std::string rule = weir::text_of(layout_) + " keeps on rank " + std::to_string(rank) +
                           "; is that the layout it was written in?";
  if (!found.file) {
    return failure(ErrorCode::invalid, file + " lacks tensor " + wanted.name + ", which " + rule);
  }
  const FileTensor& tensor = found.file->tensors()[found.index];
  if (tensor != wanted) {
    return failure(ErrorCode::invalid, file + ": tensor " + wanted.name + " is " + text_of(tensor) +
                                           ", not the " + text_of(wanted) + " that " + rule);
  }
  return found;
}

const std::filesystem::path& ReshardSource::file(std::uint32_t rank) const noexcept {
  if (!checkpoint_) return files_[rank]->path();
  return checkpoint_->files().size() == 1 ? checkpoint_->files().front()->path() : path_;
}

std::vector<std::string> ReshardSource::left_out() const {
  std::vector<std::string> names;
  if (!checkpoint_) return names;
  const std::vector<Tensor>& tensors = facts_.model.tensors;
  for (const Checkpoint::Entry& entry : checkpoint_->entries()) {
    const std::string& name = entry.tensor.name;
    const auto place = std::lower_bound(
        tensors.begin(), tensors.end(), name,
        [](const Tensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
    if (place == tensors.end() || place->name != name) names.push_back(name);
  }
  return names;
}

}  // namespace weir
