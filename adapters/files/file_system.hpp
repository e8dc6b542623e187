#pragma once
// What every reader and writer of files here needs from the system: descriptors that close
// themselves, errors that name the path, and text files read and written whole.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/result.hpp"

namespace weir {

/// An open file descriptor; closed with the object.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// "cannot DOING PATH: reason", where `number` is an errno. The code is `not_found` for what does
/// not exist, `refused` for a full disk or quota, and `io` for everything else.
tl::unexpected<Error> system_failure(std::string_view doing, const std::filesystem::path& path,
                                     int number);

/// Opens a regular file for reading, symbolic links followed; never blocks on a pipe or device.
/// Errors: `not_found`, `io`, and `invalid` for what is no regular file.
Result<Descriptor> open_for_reading(const std::filesystem::path& path);

/// The whole content of a file. Errors: as above, and `refused` for more than `bytes_max` bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t bytes_max);

/// Writes a new file and waits until it is on disk. Errors: `io`, also where the file exists;
/// `not_found` without the folder; `refused` on a full disk.
Result<void> write_text_file(const std::filesystem::path& path, std::string_view text);

/// Waits until the folder's entries (new names, renames) are on disk. Errors: `not_found`, `io`.
Result<void> sync_folder(const std::filesystem::path& folder);

/// The folder that holds `path`; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// A name out of a file, for a message: in quotes, control characters escaped, and cut where long,
/// so that a hostile name can neither break the line nor flood the terminal.
std::string quoted_name(std::string_view name);

}  // namespace weir
