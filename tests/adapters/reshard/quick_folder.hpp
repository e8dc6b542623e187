#pragma once
// A scratch folder in memory, and a look at what is in it.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/adapters/files/scratch_folder.hpp"

namespace weir {

/// A scratch folder on /dev/shm where there is one: a test's many small fsyncs cost nothing there.
class QuickFolder : public ScratchFolder {
 public:
  QuickFolder()
      : ScratchFolder(std::filesystem::is_directory("/dev/shm")
                          ? std::filesystem::path("/dev/shm")
                          : std::filesystem::temp_directory_path()) {}
};

/// Names of everything in a folder, hidden files too, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weir
