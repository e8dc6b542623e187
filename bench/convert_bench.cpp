// How near conversions of elements come to memcpy.
//
// Each kernel runs over buffers far beyond the cache, at each level of vector instructions that the
// machine has, in one thread and in one for each core. Speeds count the bytes that are read and
// those that are written. The yardstick is glibc's memcpy in the same chunks and threads, counted
// in the same way. Rounds are interleaved, and the best of each counts: on a busy machine the best
// is what the method can do, the rest is what others did.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/report.hpp"
#include "runtime/convert.hpp"
#include "runtime/quantize.hpp"
#include "runtime/region.hpp"
#include "runtime/workers.hpp"

namespace weir {
namespace {

constexpr int rounds = 5;
/// A chunk is a row of blocks of a matrix that is as wide as DeepSeek-V3's are.
constexpr std::size_t block = 128;
constexpr std::size_t row_elements = 7168;
constexpr std::size_t chunk_elements = block * row_elements;
constexpr std::size_t chunks = 36;
constexpr std::size_t elements = chunks * chunk_elements;
constexpr std::size_t buffer_bytes = 4 * elements;  // 132 MB

/// What is done with one chunk of elements. `target` and `source` are the whole buffers.
using Work = std::function<void(std::byte* target, const std::byte* source, std::size_t first,
                                SimdLevel level)>;

struct Kernel {
  std::string name;
  std::size_t element_bytes = 0;  ///< Read and written.
  Work work;
};

struct Contender {
  std::string name;
  std::size_t element_bytes = 0;
  std::function<void()> work;
  std::size_t yardstick = 0;  ///< Which contender is memcpy in as many threads.
  double best_seconds = 1e9;

  [[nodiscard]] double speed() const {
    return static_cast<double>(element_bytes * elements) / best_seconds / 1e9;
  }
};

std::string named(ElementType type) {
  return std::string(name_of(type));
}

Kernel converting(ElementType source_type, ElementType target_type) {
  const TypePair types{.source = source_type, .target = target_type};
  return {named(source_type) + " to " + named(target_type),
          size_of(source_type) + size_of(target_type),
          [types](std::byte* target, const std::byte* source, std::size_t first, SimdLevel level) {
            convert_run(types, target + first * size_of(types.target),
                        source + first * size_of(types.source), chunk_elements, level);
          }};
}

Kernel absmax_of(ElementType type) {
  return {"absmax of " + named(type), size_of(type),
          [type](std::byte* target, const std::byte* source, std::size_t first, SimdLevel level) {
            const float largest =
                absmax_run(type, source + first * size_of(type), chunk_elements, 0, level);
            std::memcpy(target + first, &largest, sizeof largest);
          }};
}

/// Of whole rows, with a scale that is known.
Kernel quantizing(Scaling scaling, const char* how, ElementType type) {
  return {named(type) + " to " + named(code_type(scaling)) + how, size_of(type) + 1,
          [scaling, type](std::byte* target, const std::byte* source, std::size_t first,
                          SimdLevel level) {
            quantize_run(scaling, 0.01F, target + first, type, source + first * size_of(type),
                         chunk_elements, level);
          }};
}

/// With the scales of blocks. Each element is read twice, row by row, and counted once.
Kernel quantizing_blocks(ElementType type) {
  return {named(type) + " to f8_e4m3, with scales of 128 x 128", size_of(type) + 1,
          [type](std::byte* target, const std::byte* source, std::size_t first, SimdLevel level) {
            std::array<float, row_elements / block> of_block{};
            for (std::size_t i = 0; i < chunk_elements; i += block) {
              float& absmax = of_block[i % row_elements / block];
              absmax = absmax_run(type, source + (first + i) * size_of(type), block, absmax, level);
            }
            for (float& scale : of_block) scale = scale_of(Scaling::f8_block, scale);
            for (std::size_t i = 0; i < chunk_elements; i += block) {
              quantize_run(Scaling::f8_block, of_block[i % row_elements / block],
                           target + first + i, type, source + (first + i) * size_of(type), block,
                           level);
            }
          }};
}

Kernel dequantizing(ElementType code_type, ElementType target_type) {
  const TypePair types{.source = code_type, .target = target_type};
  return {named(code_type) + " to " + named(target_type), 1 + size_of(target_type),
          [types](std::byte* target, const std::byte* source, std::size_t first, SimdLevel level) {
            dequantize_run(types, 0.01F, target + first * size_of(types.target), source + first,
                           chunk_elements, level);
          }};
}

std::vector<Kernel> kernels() {
  using enum ElementType;
  return {converting(f32, bf16),
          converting(bf16, f32),
          converting(f32, f16),
          converting(f16, f32),
          converting(bf16, f16),
          converting(f16, bf16),
          absmax_of(f32),
          absmax_of(bf16),
          quantizing(Scaling::f8_block, ", times 1/scale", f32),
          quantizing(Scaling::f8_block, ", times 1/scale", bf16),
          quantizing(Scaling::f8_channel, ", over scale", bf16),
          quantizing_blocks(bf16),
          quantizing(Scaling::i8_channel, ", over scale", bf16),
          dequantizing(f8_e4m3, f32),
          dequantizing(f8_e4m3, bf16),
          dequantizing(i8, bf16)};
}

std::span<std::byte> buffer(std::unique_ptr<Region>& region) {
  auto made = Region::allocate({.kind = RegionKind::host_private, .bytes = buffer_bytes});
  if (!made) {
    std::fprintf(stderr, "convert_bench: %s\n", made.error().text.c_str());
    std::exit(1);
  }
  region = std::move(*made);
  return region->bytes();
}

/// Numbers that weights could be, whichever type they are read as.
void fill(std::span<std::byte> bytes) {
  std::uint64_t random = 1;
  for (std::size_t at = 0; at < bytes.size(); at += 2) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto bits = static_cast<std::uint16_t>((random >> 48 & 0x87ffU) | 0x3800U);
    std::memcpy(&bytes[at], &bits, sizeof bits);
  }
}

/// memcpy first, then each kernel at each level, by the threads of `workers`.
void add_contenders(std::vector<Contender>& contenders, const std::vector<Kernel>& all,
                    Workers& workers, std::span<std::byte> target,
                    std::span<const std::byte> source) {
  const std::string threads = workers.thread_count() == 1
                                  ? ", 1 thread"
                                  : ", " + std::to_string(workers.thread_count()) + " threads";
  const std::size_t yardstick = contenders.size();
  const auto copy = [&workers, target, source] {
    workers.for_each(chunks, [&](std::size_t chunk) {
      const std::size_t at = 4 * chunk * chunk_elements;
      std::memcpy(&target[at], &source[at], 4 * chunk_elements);
    });
  };
  contenders.push_back({"memcpy" + threads, 8, copy, yardstick});
  for (const Kernel& kernel : all) {
    for (const SimdLevel level : simd_levels) {
      if (level > best_simd_level()) continue;
      const auto work = [&workers, target, source, level, run = kernel.work] {
        workers.for_each(chunks, [&](std::size_t chunk) {
          run(target.data(), source.data(), chunk * chunk_elements, level);
        });
      };
      contenders.push_back({kernel.name + ", " + std::string(name_of(level)) + threads,
                            kernel.element_bytes, work, yardstick});
    }
  }
}

int bench(int argc, char** argv) {
  Report report(argc, argv);
  std::unique_ptr<Region> source_region;
  std::unique_ptr<Region> target_region;
  const std::span<std::byte> source = buffer(source_region);
  const std::span<std::byte> target = buffer(target_region);
  fill(source);
  fill(target);

  Workers one(1);
  Workers all(0);
  std::vector<Contender> contenders;
  add_contenders(contenders, kernels(), one, target, source);
  if (all.thread_count() > 1) add_contenders(contenders, kernels(), all, target, source);
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      const auto start = std::chrono::steady_clock::now();
      contender.work();
      const auto taken = std::chrono::steady_clock::now() - start;
      contender.best_seconds =
          std::min(contender.best_seconds, std::chrono::duration<double>(taken).count());
    }
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Contender& contender = contenders[i];
    const Contender& yardstick = contenders[contender.yardstick];
    const bool is_yardstick = i == contender.yardstick;
    report.add({.name = contender.name,
                .value = contender.speed(),
                .unit = "GB/s",
                .compared_with = is_yardstick ? "" : "memcpy",
                .ratio = contender.speed() / yardstick.speed()});
  }
  return report.print();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::bench(argc, argv);
}
