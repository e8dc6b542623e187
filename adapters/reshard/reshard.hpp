#pragma once
// Offline resharding: a checkpoint in one engine's layout becomes a folder in another's, through
// the same manifests, plan and copies that move weights between running engines.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "runtime/digest.hpp"
#include "runtime/result.hpp"
#include "runtime/workers.hpp"

namespace weir {

struct ReshardRequest {
  std::filesystem::path input;     ///< A checkpoint, or a folder of rank files.
  std::optional<LayoutSpec> from;  ///< May be left out where the input says it.
  LayoutSpec to;
  std::filesystem::path output;  ///< A folder that does not exist yet, or an empty one.
  bool replace = false;          ///< An earlier output of weir may lie there, and is replaced.
  bool verify = false;           ///< Read the output back and compare it with the oracle.
  /// Target tensors are filled in batches of about so many bytes, and let go of after each.
  std::uint64_t batch_bytes = std::uint64_t{64} << 20;
};

/// Hears how a run goes, and may end it. Called from the thread that runs it.
class ReshardObserver {
 public:
  virtual ~ReshardObserver() = default;
  ReshardObserver(const ReshardObserver&) = delete;
  ReshardObserver& operator=(const ReshardObserver&) = delete;

  /// A stage ("reshard", "verify") of so many bytes begins.
  virtual void begin(std::string_view stage, std::uint64_t bytes) = 0;
  virtual void advance(std::uint64_t bytes) = 0;
  virtual void end() = 0;
  /// Asked between two batches; true ends the run.
  [[nodiscard]] virtual bool interrupted() = 0;

 protected:
  ReshardObserver() = default;
};

struct ReshardReport {
  LayoutSpec from;
  std::size_t source_ranks = 0;
  std::size_t target_ranks = 0;
  std::size_t tensors = 0;  ///< Canonical ones.
  std::size_t copies = 0;
  std::uint64_t bytes_written = 0;    ///< Data of the output files, padding included.
  std::uint64_t bytes_moved = 0;      ///< Of these, those that copies wrote.
  std::uint64_t bytes_verified = 0;   ///< All of `bytes_written`, or none without `verify`.
  std::vector<std::string> left_out;  ///< Names in the input that are no tensors of the model.
  std::vector<std::string> unused;    ///< Source tensors that the target has no place for.
  Digest plan;
};

/// Runs it. The output appears whole and durable, or not at all. Files: for `hf`,
/// `model.safetensors`, otherwise one per rank (`rank_file.hpp`); `config.json` is copied along.
///
/// Memory: input and output are mapped files. Of their pages no more stay resident than those of
/// one batch, which is `batch_bytes` or one target tensor, and of the source tensors that
/// it reads. Private memory grows with the number of tensors and ranks, not with their bytes;
/// `verify` takes the bytes of one canonical tensor, and 16 bytes a row of every local tensor,
/// besides.
///
/// Errors: those of `ReshardSource::open`, `lay_out` and `make_plan`; `refused` (the output is not
/// empty, is the input, or does not fit the disk; layouts with several replicas); `unavailable`
/// when interrupted; `io`, also where `verify` finds a byte that differs (names file and tensor).
Result<ReshardReport> reshard(const ReshardRequest& request, Workers& workers,
                              ReshardObserver& observer);

}  // namespace weir
