#pragma once
// Output folders that are either whole or not there, whatever interrupts their making.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "adapters/files/file_system.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What becomes of a folder that lies at the target already.
enum class ExistingFolder : std::uint8_t { refuse, replace };

/// A folder filled under the name ".NAME.partial" beside its place, and renamed by `commit`.
/// Destroyed before that, it is removed with all that it holds; what a killed process left behind
/// is removed by the next one that makes the same folder. Single-threaded, though several threads
/// may write files under `path()`.
class AtomicFolder {
 public:
  /// Errors: `refused` where `target` exists already, or another process is making it now;
  /// `not_found` where its parent folder does not exist; `io`.
  /// With `replace`, a folder (and nothing else) may lie at `target`: `commit` takes its place in
  /// one step and then removes it.
  static Result<std::unique_ptr<AtomicFolder>> create(
      const std::filesystem::path& target, ExistingFolder existing = ExistingFolder::refuse);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write until `commit`.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return partial_; }
  /// Puts the folder in its place. Each file within must have been made durable by its writer.
  /// Errors: `refused` where the target came into being meanwhile; `io`.
  Result<void> commit();

 private:
  AtomicFolder() = default;

  std::filesystem::path target_;
  std::filesystem::path partial_;
  ExistingFolder existing_ = ExistingFolder::refuse;
  Descriptor lock_;    ///< An exclusive flock on the partial folder: it ends with the process.
  bool ours_ = false;  ///< Locked and not yet renamed: the destructor removes it.
};

}  // namespace weir
