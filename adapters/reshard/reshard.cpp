#include "adapters/reshard/reshard.hpp"

#include <sys/statvfs.h>

#include <cerrno>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "adapters/files/atomic_folder.hpp"
#include "adapters/files/file_system.hpp"
#include "adapters/files/strict_json.hpp"
#include "adapters/reshard/file_manifest.hpp"
#include "adapters/reshard/internal/interruption.hpp"
#include "adapters/reshard/internal/verify.hpp"
#include "adapters/reshard/rank_file.hpp"
#include "adapters/reshard/reshard_source.hpp"
#include "runtime/assert.hpp"
#include "runtime/planner.hpp"
#include "runtime/strided_copy.hpp"

namespace weir {
namespace {

/// Work is shared among threads in parts of this size: small enough to be even, large enough that
/// handing them out costs nothing.
constexpr std::uint64_t part_bytes = std::uint64_t{4} << 20;

constexpr const char* plain_name = "model.safetensors";
constexpr const char* config_name = "config.json";

/// The layout that is plain Hugging Face files.
bool is_plain(const LayoutSpec& spec) {
  return spec.name == "hf";
}

/// Files hold one replica: the others would be the same bytes again.
Result<std::uint32_t> ranks_of(const LayoutSpec& spec) {
  const auto size = size_of(spec);
  if (!size) return failure(size);
  if (size->replicas > 1) {
    return failure(ErrorCode::refused, text_of(spec) + " asks for " +
                                           std::to_string(size->replicas) +
                                           " equal replicas, but files hold one: leave " +
                                           (spec.name == "fsdp2" ? "hsdp" : "dp") + " out");
  }
  return size->ranks;
}

/// Whether weir writes files of that name.
bool is_ours(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name == plain_name || name == config_name || parse_rank_file_name(name).has_value();
}

/// What may become of what lies at the output's place. A folder is replaced only where it is empty
/// or holds nothing but what weir writes, so that no mistyped name costs a person's files.
Result<ExistingFolder> existing_at(const ReshardRequest& request) {
  std::error_code error;
  if (!std::filesystem::is_directory(request.output, error)) return ExistingFolder::refuse;
  std::filesystem::directory_iterator entry(request.output, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    if (!request.replace) {
      return failure(ErrorCode::refused, request.output.string() +
                                             " is not empty; name another folder, or replace it "
                                             "with --force");
    }
    if (!entry->is_regular_file(error) || !is_ours(entry->path())) {
      return failure(ErrorCode::refused, entry->path().string() +
                                             " was not written by weir, so its folder is not "
                                             "replaced; name another folder");
    }
  }
  if (error) return system_failure("list", request.output, error.value());
  return ExistingFolder::replace;
}

/// One target rank: what its file holds, and which regions of the plan those tensors are.
struct TargetRank {
  std::vector<FileTensor> tensors;
  std::vector<std::size_t> tensor_of_region;
};

/// A run of copies that is worked off together.
struct Batch {
  std::span<const Copy> copies;
  std::uint64_t bytes = 0;
};

/// The next batch of `copies`: those of whole target regions, up to about `bytes_max`.
Batch next_batch(std::span<const Copy> copies, std::uint64_t bytes_max) {
  Batch batch;
  std::size_t count = 0;
  while (count < copies.size()) {
    const std::uint32_t region = copies[count].target_region;
    std::uint64_t bytes = 0;
    std::size_t end = count;
    for (; end < copies.size() && copies[end].target_region == region; ++end) {
      bytes += target_bytes(copies[end]);
    }
    if (count > 0 && batch.bytes + bytes > bytes_max) break;
    batch.bytes += bytes;
    count = end;
  }
  batch.copies = copies.first(count);
  return batch;
}

/// One run of `reshard`, from the opened input to the whole output.
class Resharding {
 public:
  Resharding(const ReshardRequest& request, const ReshardSource& source, Workers& workers,
             ReshardObserver& observer)
      : request_(request), source_(source), workers_(workers), observer_(observer) {}

  Result<ReshardReport> run(std::uint32_t target_ranks);

 private:
  Result<void> make_plan_for(std::uint32_t ranks);
  Result<void> check_space() const;
  Result<void> write_ranks(const std::filesystem::path& folder);
  Result<void> write_rank(std::uint32_t rank, const std::filesystem::path& folder);
  Result<void> copy_batch(const Batch& batch, const SafetensorsWriter& writer,
                          const TargetRank& target);
  Result<void> copy_config(const std::filesystem::path& folder) const;
  Result<std::uint64_t> verify(const std::filesystem::path& folder);
  [[nodiscard]] std::string file_name(std::uint32_t rank) const;
  [[nodiscard]] FileMetadata file_metadata(std::uint32_t rank) const;

  const ReshardRequest& request_;
  const ReshardSource& source_;
  Workers& workers_;
  ReshardObserver& observer_;
  std::vector<TargetRank> targets_;
  std::string facts_;  ///< Encoded once; every rank's metadata holds it.
  Plan plan_;
  ReshardReport report_;
};

Result<ReshardReport> Resharding::run(std::uint32_t target_ranks) {
  report_.from = source_.layout();
  report_.source_ranks = source_.ranks().size();
  report_.target_ranks = target_ranks;
  report_.left_out = source_.left_out();
  report_.tensors = source_.facts().model.tensors.size();
  if (auto planned = make_plan_for(target_ranks); !planned) return failure(planned);

  const auto existing = existing_at(request_);
  if (!existing) return failure(existing);
  auto folder = AtomicFolder::create(request_.output, *existing);
  if (!folder) return failure(folder);
  if (auto space = check_space(); !space) return failure(space);
  if (auto written = write_ranks((*folder)->path()); !written) return failure(written);
  if (auto copied = copy_config((*folder)->path()); !copied) return failure(copied);
  if (request_.verify) {
    const auto verified = verify((*folder)->path());
    if (!verified) return failure(verified);
    report_.bytes_verified = *verified;
  }
  if (observer_.interrupted()) return interruption();
  if (auto committed = (*folder)->commit(); !committed) return failure(committed);
  return report_;
}

Result<void> Resharding::make_plan_for(std::uint32_t ranks) {
  const CheckpointFacts& facts = source_.facts();
  std::vector<Manifest> manifests = source_.manifests();
  const auto layouts = Layout::of(facts.model, request_.to);
  if (!layouts) return failure(layouts);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto layout = layouts->rank(rank);
    if (!layout) return failure(layout);
    FileManifest described = file_manifest(
        facts.model, *layout, {.side = Side::rollout, .replica = 0, .rank = rank}, ranks);
    manifests.push_back(std::move(described.manifest));
    targets_.push_back({.tensors = file_tensors(*layout, facts),
                        .tensor_of_region = std::move(described.tensor_of_region)});
  }
  auto plan = make_plan(manifests);
  if (!plan) return failure(plan);
  plan_ = *std::move(plan);
  report_.plan = plan_.digest;
  report_.unused = plan_.unused;
  for (const PlanPart& part : plan_.parts) {
    report_.copies += part.copies.size();
    for (const Copy& copy : part.copies) report_.bytes_moved += target_bytes(copy);
  }
  for (const TargetRank& target : targets_) {
    for (const FileTensor& tensor : target.tensors) report_.bytes_written += bytes_of(tensor);
  }
  return {};
}

/// Each writer checks for its own file; a run that can't end is better not begun.
Result<void> Resharding::check_space() const {
  const std::filesystem::path parent = folder_of(request_.output);
  struct statvfs status {};
  if (statvfs(parent.c_str(), &status) != 0) return system_failure("examine", parent, errno);
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  if (report_.bytes_written <= free) return {};
  return failure(ErrorCode::refused, "not enough space in " + parent.string() + ": " +
                                         std::to_string(report_.bytes_written) + " bytes needed, " +
                                         std::to_string(free) +
                                         " free; make room or choose another folder");
}

std::string Resharding::file_name(std::uint32_t rank) const {
  if (is_plain(request_.to)) return plain_name;
  return rank_file_name({.rank = rank, .ranks = static_cast<std::uint32_t>(targets_.size())});
}

FileMetadata Resharding::file_metadata(std::uint32_t rank) const {
  if (is_plain(request_.to)) return source_.facts().metadata;
  return metadata_of(
      {.layout = request_.to,
       .number = {.rank = rank, .ranks = static_cast<std::uint32_t>(targets_.size())},
       .facts = facts_});
}

Result<void> Resharding::write_ranks(const std::filesystem::path& folder) {
  facts_ = encode(source_.facts());
  observer_.begin("reshard", report_.bytes_moved);
  for (std::uint32_t rank = 0; rank < targets_.size(); ++rank) {
    if (auto written = write_rank(rank, folder); !written) return written;
  }
  observer_.end();
  return {};
}

Result<void> Resharding::write_rank(std::uint32_t rank, const std::filesystem::path& folder) {
  const TargetRank& target = targets_[rank];
  auto writer =
      SafetensorsWriter::create(folder / file_name(rank), target.tensors, file_metadata(rank));
  if (!writer) return failure(writer);
  WEIR_ASSERT(plan_.parts[rank].target.rank == rank);
  std::span<const Copy> copies = plan_.parts[rank].copies;
  while (!copies.empty()) {
    if (observer_.interrupted()) return interruption();
    const Batch batch = next_batch(copies, request_.batch_bytes);
    if (auto copied = copy_batch(batch, **writer, target); !copied) return copied;
    observer_.advance(batch.bytes);
    copies = copies.subspan(batch.copies.size());
  }
  return (*writer)->commit();
}

Result<void> Resharding::copy_batch(const Batch& batch, const SafetensorsWriter& writer,
                                    const TargetRank& target) {
  const auto source_of = [this](const Copy& copy) {
    return source_.region(plan_.sources[copy.source].shard.rank, copy.source_region).data();
  };
  const auto target_of = [&](const Copy& copy) {
    return writer.data(target.tensor_of_region[copy.target_region]);
  };
  std::vector<Copy> parts;
  for (const Copy& copy : batch.copies) {
    auto bounds = check_bounds(copy, source_of(copy).size(), target_of(copy).size());
    if (!bounds) return bounds;
    for (const Copy& part : split(copy, part_bytes)) parts.push_back(part);
  }
  workers_.for_each(parts.size(), [&](std::size_t index) {
    copy_strided(parts[index], source_of(parts[index]), target_of(parts[index]));
  });

  std::set<std::pair<std::uint32_t, std::uint32_t>> read;
  std::set<std::uint32_t> filled;
  for (const Copy& copy : batch.copies) {
    read.emplace(plan_.sources[copy.source].shard.rank, copy.source_region);
    filled.insert(copy.target_region);
  }
  for (const std::uint32_t region : filled) writer.flush(target.tensor_of_region[region]);
  for (const auto& [rank, region] : read) source_.region(rank, region).release();
  return {};
}

Result<void> Resharding::copy_config(const std::filesystem::path& folder) const {
  const auto text = read_text_file(source_.folder() / config_name, json_file_bytes_max);
  if (text) return write_text_file(folder / config_name, *text);
  // A model that no engine's rules know may come without one.
  if (text.error().code == ErrorCode::not_found) return {};
  return failure(text);
}

Result<std::uint64_t> Resharding::verify(const std::filesystem::path& folder) {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (std::uint32_t rank = 0; rank < targets_.size(); ++rank) {
    auto file = SafetensorsFile::open(folder / file_name(rank));
    if (!file) return failure(file);
    files.push_back(std::move(*file));
  }
  observer_.begin("verify", report_.bytes_written);
  auto compared = verify_resharding(source_, request_.to, files, workers_, observer_);
  if (!compared) return compared;
  WEIR_ASSERT(*compared == report_.bytes_written);
  observer_.end();
  return compared;
}

}  // namespace

Result<ReshardReport> reshard(const ReshardRequest& request, Workers& workers,
                              ReshardObserver& observer) {
  if (request.from) {
    if (auto ranks = ranks_of(*request.from); !ranks) return failure(ranks);
  }
  const auto target_ranks = ranks_of(request.to);
  if (!target_ranks) return failure(target_ranks);
  std::error_code ignored;
  if (std::filesystem::equivalent(request.input, request.output, ignored)) {
    return failure(ErrorCode::refused,
                   request.output.string() + " is the input; choose another folder for --out");
  }
  const auto source = ReshardSource::open(request.input, request.from);
  if (!source) return failure(source);
  return Resharding(request, **source, workers, observer).run(*target_ranks);
}

}  // namespace weir
