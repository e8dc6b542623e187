#pragma once
// Output folders that are either whole or not there, whatever interrupts their making.

#include <filesystem>
#include <memory>

#include "adapters/files/file_system.hpp"
#include "runtime/result.hpp"

namespace weir {

/// A folder filled under the name ".NAME.partial" beside its place, and renamed by `commit`.
/// Destroyed before that, it is removed with all that it holds; what a killed process left behind
/// is removed by the next one that makes the same folder. Single-threaded, though several threads
/// may write files under `path()`.
class AtomicFolder {
 public:
  /// Errors: `refused` where `target` exists already, or another process is making it now;
  /// `not_found` where its parent folder does not exist; `io`.
  static Result<std::unique_ptr<AtomicFolder>> create(const std::filesystem::path& target);
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
  Descriptor lock_;    ///< An exclusive flock on the partial folder: it ends with the process.
  bool ours_ = false;  ///< Locked and not yet renamed: the destructor removes it.
};

}  // namespace weir
