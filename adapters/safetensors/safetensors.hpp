#pragma once
// Safetensors files: read in place through a mapping, every rule of the format checked; and written
// so that a file is either whole or not there.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/element_type.hpp"
#include "runtime/result.hpp"

namespace weir {

/// One tensor of a file, as its header states it. Dense, row-major, little-endian.
struct FileTensor {
  std::string name;
  ElementType type = ElementType::bf16;
  std::vector<std::int64_t> shape;  ///< Any number of dimensions; extents may be zero.

  friend bool operator==(const FileTensor&, const FileTensor&) = default;
};

/// Bytes of the tensor's data.
std::uint64_t bytes_of(const FileTensor& tensor) noexcept;

/// The `__metadata__` of a file: text to text.
using FileMetadata = std::map<std::string, std::string>;

/// One mapped file. Bytes stay valid for the life of the object. Immutable, so free-threaded.
/// The file must not be cut short by others meanwhile: the kernel answers a read beyond its new end
/// with SIGBUS. Replacing it by a rename, as `SafetensorsWriter` does, is harmless.
class SafetensorsFile {
 public:
  /// Errors: `not_found`, `io`, and `invalid` with the file, the tensor and the rule it breaks:
  /// shorter than its header says, header over 100 MB, not UTF-8, not JSON, duplicate names,
  /// unknown type, negative or overflowing shape, offsets out of range, overlapping, with holes,
  /// or that disagree with the shape. A symbolic link is followed for reading, never replaced.
  static Result<std::unique_ptr<SafetensorsFile>> open(const std::filesystem::path& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Sorted by name.
  [[nodiscard]] const std::vector<FileTensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const FileMetadata& metadata() const noexcept { return metadata_; }
  /// The data of `tensors()[index]`, read-only memory.
  [[nodiscard]] std::span<const std::byte> data(std::size_t index) const noexcept;
  /// Tells the kernel that these pages of tensor `index` will not be read again soon.
  void release(std::size_t index) const noexcept;

 private:
  SafetensorsFile() = default;

  std::filesystem::path path_;
  std::vector<FileTensor> tensors_;
  std::vector<std::uint64_t> offsets_;  ///< From the start of the mapping.
  FileMetadata metadata_;
  std::span<const std::byte> mapping_;
};

/// A checkpoint: one file, or a folder with `model.safetensors`, or with
/// `model.safetensors.index.json` and the files that it names, or with other *.safetensors files
/// that together hold each name once. Immutable.
class Checkpoint {
 public:
  struct Entry {
    FileTensor tensor;
    std::size_t file = 0;   ///< Index into `files()`.
    std::size_t index = 0;  ///< Index into that file's `tensors()`.
  };

  /// Errors: as for a file, and `invalid` for an index that is not strict JSON, names a file
  /// outside the folder, or disagrees in either direction with what its files hold, and for a
  /// tensor in two files; `not_found` for a folder without any.
  static Result<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& path);

  [[nodiscard]] const std::vector<std::unique_ptr<SafetensorsFile>>& files() const noexcept {
    return files_;
  }
  /// Sorted by name.
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// Nothing for an unknown name.
  [[nodiscard]] const Entry* find(std::string_view name) const noexcept;
  [[nodiscard]] std::span<const std::byte> data(const Entry& entry) const noexcept;

 private:
  Checkpoint() = default;

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Entry> entries_;
};

/// Writes one file under a temporary name beside its place; `commit` makes it durable (fsync of
/// file and folder) and renames it. Destroyed before that, it leaves nothing. Single-threaded,
/// save that disjoint parts of `data` may be filled by several threads.
class SafetensorsWriter {
 public:
  /// Lays the tensors out by falling element size, so that each is aligned to its elements, and
  /// within one size in the given order; the data begins at a multiple of 64 bytes. All disk
  /// space is reserved now. Errors: `invalid` (a name that is empty, reserved, twice or not UTF-8;
  /// a shape that is negative or overflows; too many tensors for a header), `refused` (not enough
  /// free space: says how much; `path` is a symbolic link or no file), `not_found` without the
  /// folder, `io`. An existing file is replaced by `commit`.
  static Result<std::unique_ptr<SafetensorsWriter>> create(const std::filesystem::path& path,
                                                           const std::vector<FileTensor>& tensors,
                                                           const FileMetadata& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The data of the tensor with that index, mapped, zero until written.
  [[nodiscard]] std::span<std::byte> data(std::size_t index) const noexcept;
  /// Hands the tensor's pages to the kernel for writing and lets go of their memory; the bytes
  /// stay readable. This is what bounds the memory of a long write.
  void flush(std::size_t index) const noexcept;
  /// Call it once. The writer is done after it, whatever it returns. Errors: `io`, `refused` when
  /// the disk is full or `path` has become a symbolic link; the old file, if any, then stays.
  Result<void> commit();

 private:
  SafetensorsWriter() = default;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<std::uint64_t> offsets_;  ///< By tensor, from the start of the mapping.
  std::vector<std::uint64_t> sizes_;    ///< By tensor, in bytes.
  std::span<std::byte> mapping_;        ///< Empty after `commit`.
  int descriptor_ = -1;
};

}  // namespace weir
