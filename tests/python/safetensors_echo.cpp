// Reads a safetensors file or checkpoint folder and, if a second path is given, writes all its
// tensors to one file there. Prints one line per tensor: name, type, shape and digest,
// tab-separated and JSON-quoted, then one line per metadata entry. Driven by
// safetensors_interop_test.py.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "adapters/safetensors/safetensors.hpp"
#include "runtime/digest.hpp"

namespace weir {
namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.text.c_str());
  return 2;
}

void print(const Checkpoint& checkpoint) {
  for (const Checkpoint::Entry& entry : checkpoint.entries()) {
    const nlohmann::json line = {{"name", entry.tensor.name},
                                 {"type", name_of(entry.tensor.type)},
                                 {"shape", entry.tensor.shape},
                                 {"digest", text_of(digest_of(checkpoint.data(entry)))}};
    std::printf("%s\n", line.dump().c_str());
  }
  const nlohmann::json metadata = checkpoint.files().front()->metadata();
  std::printf("%s\n", nlohmann::json{{"metadata", metadata}}.dump().c_str());
}

Result<void> write(const Checkpoint& checkpoint, const char* path) {
  std::vector<FileTensor> tensors;
  for (const Checkpoint::Entry& entry : checkpoint.entries()) tensors.push_back(entry.tensor);
  const auto writer =
      SafetensorsWriter::create(path, tensors, checkpoint.files().front()->metadata());
  if (!writer) return failure(writer);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const auto data = checkpoint.data(checkpoint.entries()[index]);
    std::copy(data.begin(), data.end(), (*writer)->data(index).begin());
    (*writer)->flush(index);
  }
  return (*writer)->commit();
}

int run(const char* source, const char* target) {
  const auto checkpoint = Checkpoint::open(source);
  if (!checkpoint) return fail(checkpoint.error());
  print(**checkpoint);
  if (target == nullptr) return 0;
  const Result<void> written = write(**checkpoint, target);
  return written ? 0 : fail(written.error());
}

}  // namespace
}  // namespace weir

int main(int count, char** arguments) {
  if (count != 2 && count != 3) {
    std::fprintf(stderr, "usage: safetensors_echo SOURCE [TARGET]\n");
    return 2;
  }
  return weir::run(arguments[1], count == 3 ? arguments[2] : nullptr);
}
