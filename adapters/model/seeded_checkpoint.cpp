#include "adapters/model/seeded_checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "adapters/files/atomic_folder.hpp"
#include "adapters/safetensors/safetensors.hpp"

namespace weir {
namespace {

/// One task's share: long enough to keep a worker busy for milliseconds, short enough to split the
/// smallest model among all workers. A multiple of eight bytes.
constexpr std::size_t chunk_bytes = std::size_t{4} << 20;

/// SplitMix64's finalizer (Steele, Lea and Flood, 2014): every input bit moves every output bit.
constexpr std::uint64_t mixed(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

/// Four bf16 values. Of each 16 bits the sign, the seven mantissa bits and the lowest of the eight
/// exponent bits are random; the others make the exponent 120 or 121, a factor of 2^-7 or 2^-6.
constexpr std::uint64_t four_values(std::uint64_t stream, std::uint64_t index) noexcept {
  constexpr std::uint64_t random_bits = 0x80ff80ff80ff80ffU;
  constexpr std::uint64_t exponent_bits = 0x3c003c003c003c00U;
  constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15U;
  return (mixed(stream + index * golden_ratio) & random_bits) | exponent_bits;
}

/// Fills bytes `begin` … of a tensor's data; `begin` is a multiple of eight.
void fill(std::span<std::byte> part, std::uint64_t stream, std::uint64_t begin) noexcept {
  std::uint64_t index = begin / 8;
  std::size_t done = 0;
  for (; done + 8 <= part.size(); done += 8) {
    const std::uint64_t values = four_values(stream, index++);
    std::memcpy(part.data() + done, &values, 8);
  }
  const std::uint64_t values = four_values(stream, index);
  std::memcpy(part.data() + done, &values, part.size() - done);
}

std::uint64_t stream_of(std::uint64_t seed, const std::string& name) {
  Digester digester;
  digester.add(seed);
  digester.add(name);
  return digester.finish().low;
}

/// Adds up what the workers have done and passes it on, one call at a time.
class ProgressSum {
 public:
  ProgressSum(const SeededProgress& progress, std::uint64_t total)
      : progress_(progress), total_(total) {}

  void add(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  const SeededProgress& progress_;
  const std::uint64_t total_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
};

Result<void> write_weights(const std::filesystem::path& path, const Model& model,
                           std::uint64_t seed, const SeededProgress& progress, Workers& workers) {
  std::vector<FileTensor> tensors;
  std::uint64_t total = 0;
  for (const Tensor& tensor : model.tensors) {
    tensors.push_back({tensor.name, tensor.type, stored_shape(model.config, tensor)});
    total += bytes_of(tensors.back());
  }
  // Transformers refuses a file whose metadata does not name a framework.
  auto writer = SafetensorsWriter::create(path, tensors, {{"format", "pt"}});
  if (!writer) return failure(writer);
  ProgressSum sum(progress, total);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const std::span<std::byte> data = (*writer)->data(index);
    const std::uint64_t stream = stream_of(seed, tensors[index].name);
    const std::size_t chunks = (data.size() + chunk_bytes - 1) / chunk_bytes;
    workers.for_each(chunks, [&](std::size_t chunk) {
      const std::size_t begin = chunk * chunk_bytes;
      const auto part = data.subspan(begin, std::min(chunk_bytes, data.size() - begin));
      fill(part, stream, begin);
      sum.add(part.size());
    });
    (*writer)->flush(index);
  }
  return (*writer)->commit();
}

}  // namespace

Result<void> write_seeded_checkpoint(const std::filesystem::path& dir, const ModelConfig& config,
                                     std::uint64_t seed, const SeededProgress& progress,
                                     Workers& workers) {
  if (config.type != ElementType::bf16) {
    return failure(ErrorCode::invalid, "seeded weights are bf16; the config asks for " +
                                           std::string(name_of(config.type)));
  }
  const Result<Model> model = model_of(config);
  if (!model) return failure(model);
  const auto folder = AtomicFolder::create(dir);
  if (!folder) return failure(folder);
  const std::filesystem::path& path = (*folder)->path();
  if (auto written = write_text_file(path / "config.json", config_json_of(config)); !written) {
    return written;
  }
  const std::filesystem::path weights = path / "model.safetensors";
  if (auto written = write_weights(weights, *model, seed, progress, workers); !written) {
    return written;
  }
  return (*folder)->commit();
}

}  // namespace weir
