#include "adapters/oracle/reference.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "adapters/oracle/internal/narrowing.hpp"
#include "adapters/oracle/oracle.hpp"
#include "adapters/oracle/seeded_version.hpp"

namespace weir::oracle {
namespace {

/// Elements are made block by block, so that what is made is still in the cache when it is used.
constexpr std::int64_t block_elements = 8192;
/// An element has at most eight bytes.
using Block = std::array<std::byte, 8 * block_elements>;

/// One worker's memory.
struct Scratch {
  Block expected;
  Block made;
  Block passed;
};

/// About how many bytes of a local tensor a worker takes at a time.
constexpr std::int64_t task_bytes = 1 << 20;

/// Rows [first_row, last_row) of one local tensor.
struct Task {
  std::size_t local = 0;
  std::int64_t first_row = 0;
  std::int64_t last_row = 0;
};

/// Consecutive local elements that are consecutive elements of one canonical tensor, or padding.
struct Run {
  std::int64_t tensor = padding;
  std::int64_t first = 0;  ///< Flat index in the canonical tensor.
  std::int64_t local_first = 0;
  std::int64_t count = 0;
};

/// A rank whose places and canonical bytes have been checked.
struct Rank {
  const RankMemory& memory;
  std::vector<LocalTensor> locals;
  std::vector<std::uint64_t> offsets;  ///< Of each local tensor.
  std::vector<std::span<const std::byte>> canonical;
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> columns;  ///< Of each canonical tensor.
};

std::uint64_t bytes_of(const LocalTensor& local) {
  return static_cast<std::uint64_t>(std::ssize(local.rows) * local.columns) * size_of(local.type);
}

std::string text_of(const RankMemory& memory) {
  return "rank " + std::to_string(memory.rank) + " of " + weir::text_of(memory.spec);
}

Result<void> place_locals(Rank& rank, std::uint64_t region_bytes) {
  const std::string who = text_of(rank.memory) + ": ";
  std::map<std::string, std::uint64_t> offsets;
  for (const LocalPlace& place : rank.memory.places) {
    if (!offsets.emplace(place.name, place.offset).second) {
      return failure(ErrorCode::invalid,
                     who + "local tensor " + place.name + " has two places; give each once");
    }
  }
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (const LocalTensor& local : rank.locals) {
    const auto found = offsets.find(local.name);
    if (found == offsets.end()) {
      return failure(ErrorCode::invalid,
                     who + "local tensor " + local.name + " has no place; give it one");
    }
    const std::uint64_t bytes = bytes_of(local);
    if (found->second > region_bytes || bytes > region_bytes - found->second) {
      return failure(ErrorCode::invalid,
                     who + "local tensor " + local.name + ", " + std::to_string(bytes) +
                         " bytes at offset " + std::to_string(found->second) +
                         ", ends outside its region of " + std::to_string(region_bytes) + " bytes");
    }
    if (bytes > 0) order.emplace_back(found->second, rank.offsets.size());
    rank.offsets.push_back(found->second);
    offsets.erase(found);
  }
  if (!offsets.empty()) {
    return failure(ErrorCode::invalid, who + "it keeps no local tensor " + offsets.begin()->first +
                                           "; leave its place out");
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = 1; i < order.size(); ++i) {
    const LocalTensor& before = rank.locals[order[i - 1].second];
    if (order[i].first - order[i - 1].first < bytes_of(before)) {
      return failure(ErrorCode::invalid, who + "local tensors " + before.name + " and " +
                                             rank.locals[order[i].second].name +
                                             " overlap; place them apart");
    }
  }
  return {};
}

Result<void> find_canonical(Rank& rank) {
  const std::vector<Tensor>& tensors = rank.memory.model.tensors;
  std::vector<bool> needed(tensors.size(), false);
  for (const LocalTensor& local : rank.locals) {
    for (const Row& row : local.rows) {
      if (row.tensor != padding) needed[static_cast<std::size_t>(row.tensor)] = true;
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const std::int64_t elements = element_count(tensor.shape);
    const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * size_of(tensor.type);
    rank.canonical.emplace_back();
    rank.seeds.push_back(tensor_seed(tensor.name));
    rank.columns.push_back(
        tensor.shape.rank() == 0 || tensor.shape[0] == 0 ? 1 : elements / tensor.shape[0]);
    if (!needed[i]) continue;
    rank.canonical.back() = rank.memory.canonical(i);
    if (rank.canonical.back().size() != bytes) {
      return failure(ErrorCode::invalid, text_of(rank.memory) + ": tensor " + tensor.name +
                                             " has " + std::to_string(bytes) + " bytes but " +
                                             std::to_string(rank.canonical.back().size()) +
                                             " were given for it");
    }
  }
  return {};
}

Result<Rank> prepare(const RankMemory& memory, std::uint64_t region_bytes) {
  Result<std::vector<LocalTensor>> locals = rank_of(memory.model, memory.spec, memory.rank);
  if (!locals) return failure(locals);
  for (const LocalTensor& local : *locals) {
    if (!local.less_one) continue;
    return failure(ErrorCode::invalid, text_of(memory) + ": local tensor " + local.name +
                                           " is kept less one, which the reference can't fill yet");
  }
  Rank rank{memory, *std::move(locals), {}, {}, {}, {}};
  if (const Result<void> placed = place_locals(rank, region_bytes); !placed) return failure(placed);
  if (const Result<void> found = find_canonical(rank); !found) return failure(found);
  return rank;
}

std::vector<Task> tasks_of(const Rank& rank) {
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < rank.locals.size(); ++i) {
    const LocalTensor& local = rank.locals[i];
    const std::int64_t row_bytes = local.columns * static_cast<std::int64_t>(size_of(local.type));
    if (row_bytes == 0) continue;
    const std::int64_t step = std::max<std::int64_t>(1, task_bytes / row_bytes);
    for (std::int64_t row = 0; row < std::ssize(local.rows); row += step) {
      tasks.push_back({i, row, std::min(row + step, std::ssize(local.rows))});
    }
  }
  return tasks;
}

/// The longest run that starts with row `row` and ends before `last_row`: further rows join where
/// they go on in the canonical tensor just where the row before them ended.
Run run_at(const Rank& rank, const LocalTensor& local, std::int64_t row, std::int64_t last_row) {
  const Row& start = local.rows[static_cast<std::size_t>(row)];
  Run run{start.tensor, 0, row * local.columns, local.columns};
  const bool padded = start.tensor == padding;
  const std::int64_t stride = padded ? 0 : rank.columns[static_cast<std::size_t>(start.tensor)];
  if (!padded) run.first = start.row * stride + start.column + local.first_column * start.step;
  if (!padded && (stride != local.columns || start.step != 1)) return run;
  for (std::int64_t next = row + 1; next < last_row; ++next) {
    const Row& more = local.rows[static_cast<std::size_t>(next)];
    if (more.tensor != start.tensor) break;
    if (!padded && more.row != start.row + (next - row)) break;
    run.count += local.columns;
  }
  return run;
}

/// Writes what `run`, of at most a block, should hold in `type` to `out`.
void make(const Rank& rank, std::uint64_t version, const Run& run, ElementType type,
          Scratch& scratch, std::span<std::byte> out) {
  if (run.tensor == padding) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return;
  }
  const auto tensor = static_cast<std::size_t>(run.tensor);
  const ElementType own = rank.memory.model.tensors[tensor].type;
  const auto bytes = [&run](ElementType of) {
    return static_cast<std::size_t>(run.count) * size_of(of);
  };
  const std::span<const std::byte> base = rank.canonical[tensor].subspan(
      static_cast<std::size_t>(run.first) * size_of(own), bytes(own));
  const VersionRun versioned{own, version, rank.seeds[tensor], run.first};

  // A `dtype` is about parameters: buffers, such as routers' biases, stay what they are.
  const bool replaced = (own == ElementType::f32 || own == ElementType::bf16) &&
                        rank.memory.model.tensors[tensor].kind == TensorKind::parameter;
  const ElementType via = replaced ? rank.memory.passed_through.value_or(own) : own;
  if (own == via && own == type) {
    make_version(versioned, base, out);
    return;
  }
  const std::span<std::byte> made = std::span(scratch.made).first(bytes(own));
  make_version(versioned, base, made);
  if (own == via || via == type) {
    internal::convert(own, type, made, out);
    return;
  }
  const std::span<std::byte> passed = std::span(scratch.passed).first(bytes(via));
  internal::convert(own, via, made, passed);
  internal::convert(via, type, passed, out);
}

/// Calls `use(run)` for every block of the task, in order, until it returns false.
template <class Use>
void for_blocks(const Rank& rank, const Task& task, const Use& use) {
  const LocalTensor& local = rank.locals[task.local];
  std::int64_t row = task.first_row;
  while (row < task.last_row) {
    const Run run = run_at(rank, local, row, task.last_row);
    const Row& start = local.rows[static_cast<std::size_t>(row)];
    if (start.tensor != padding && start.step != 1) {  // Element by element.
      for (std::int64_t c = 0; c < local.columns; ++c) {
        if (!use(Run{run.tensor, run.first + c * start.step, run.local_first + c, 1})) return;
      }
      ++row;
      continue;
    }
    for (std::int64_t done = 0; done < run.count; done += block_elements) {
      Run block = run;
      block.first += done;
      block.local_first += done;
      block.count = std::min(block_elements, run.count - done);
      if (!use(block)) return;
    }
    row += run.count / local.columns;
  }
}

/// Runs `body(task index, scratch)` for all tasks, on as many workers as there are, in about that
/// order: one that is past `stop` is left out.
template <class Body>
void for_tasks(std::size_t count, const std::atomic<std::size_t>& stop, Workers& workers,
               const Body& body) {
  std::atomic<std::size_t> next = 0;
  workers.for_each(std::min<std::size_t>(workers.thread_count(), count), [&](std::size_t) {
    const auto scratch = std::make_unique<Scratch>();
    for (std::size_t task = next++; task < count; task = next++) {
      if (task <= stop) body(task, *scratch);
    }
  });
}

std::string text_of(ElementType type, std::span<const std::byte> element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element.data(), element.size());
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "0x%0*llx", static_cast<int>(2 * element.size()),
                static_cast<unsigned long long>(bits));
  std::string result = text.data();
  if (type == ElementType::bf16) bits <<= 16;
  if (type == ElementType::bf16 || type == ElementType::f32) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    std::snprintf(text.data(), text.size(), " (%g)", static_cast<double>(value));
    result += text.data();
  }
  return result;
}

/// "name[3, 5]" for a flat index of a canonical tensor.
std::string canonical_text(const Tensor& tensor, std::int64_t element) {
  std::string index;
  for (int dim = tensor.shape.rank() - 1; dim >= 0; --dim) {
    index = std::to_string(element % tensor.shape[dim]) + (index.empty() ? "" : ", ") + index;
    element /= tensor.shape[dim];
  }
  return tensor.name + "[" + index + "]";
}

Error difference(const Rank& rank, const LocalTensor& local, const Run& run, std::uint64_t version,
                 std::span<const std::byte> expected, std::span<const std::byte> found) {
  const std::size_t size = size_of(local.type);
  const auto at = static_cast<std::size_t>(
      std::mismatch(expected.begin(), expected.end(), found.begin()).first - expected.begin());
  const auto element = static_cast<std::int64_t>(at / size);
  const std::size_t start = at / size * size;
  const std::int64_t local_element = run.local_first + element;
  const std::string belongs =
      run.tensor == padding
          ? "padding"
          : canonical_text(rank.memory.model.tensors[static_cast<std::size_t>(run.tensor)],
                           run.first + element);
  return {ErrorCode::invalid,
          text_of(rank.memory) + ", version " + std::to_string(version) + ": local tensor " +
              local.name + " row " + std::to_string(local_element / local.columns) + " column " +
              std::to_string(local_element % local.columns) + " should be " + belongs + " = " +
              text_of(local.type, expected.subspan(start, size)) + " but is " +
              text_of(local.type, found.subspan(start, size))};
}

}  // namespace

Result<void> fill_rank(const RankMemory& memory, std::uint64_t version, std::span<std::byte> region,
                       Workers& workers) {
  const Result<Rank> rank = prepare(memory, region.size());
  if (!rank) return failure(rank);
  const std::vector<Task> tasks = tasks_of(*rank);
  const std::atomic<std::size_t> no_stop = tasks.size();
  for_tasks(tasks.size(), no_stop, workers, [&](std::size_t index, Scratch& scratch) {
    const Task& task = tasks[index];
    const ElementType type = rank->locals[task.local].type;
    for_blocks(*rank, task, [&](const Run& run) {
      const std::size_t size = size_of(type);
      make(*rank, version, run, type, scratch,
           region.subspan(
               rank->offsets[task.local] + static_cast<std::size_t>(run.local_first) * size,
               static_cast<std::size_t>(run.count) * size));
      return true;
    });
  });
  return {};
}

Result<std::uint64_t> compare_rank(const RankMemory& memory, std::uint64_t version,
                                   std::span<const std::byte> region, Workers& workers) {
  const Result<Rank> rank = prepare(memory, region.size());
  if (!rank) return failure(rank);
  const std::vector<Task> tasks = tasks_of(*rank);
  // Each task has its own place for a difference, and the first task with one stops later ones.
  std::vector<std::optional<Error>> differences(tasks.size());
  std::atomic<std::size_t> first_different = tasks.size();
  for_tasks(tasks.size(), first_different, workers, [&](std::size_t index, Scratch& scratch) {
    const Task& task = tasks[index];
    const LocalTensor& local = rank->locals[task.local];
    for_blocks(*rank, task, [&](const Run& run) {
      const std::size_t size = size_of(local.type);
      const auto bytes = static_cast<std::size_t>(run.count) * size;
      const std::span<std::byte> expected = std::span(scratch.expected).first(bytes);
      make(*rank, version, run, local.type, scratch, expected);
      const std::span<const std::byte> found = region.subspan(
          rank->offsets[task.local] + static_cast<std::size_t>(run.local_first) * size, bytes);
      if (std::memcmp(expected.data(), found.data(), bytes) == 0) return true;
      differences[index] = difference(*rank, local, run, version, expected, found);
      std::size_t first = first_different;
      while (index < first && !first_different.compare_exchange_weak(first, index)) {
      }
      return false;
    });
  });
  for (std::optional<Error>& error : differences) {
    if (error) return tl::unexpected<Error>(*std::move(error));
  }
  std::uint64_t compared = 0;
  for (const LocalTensor& local : rank->locals) compared += bytes_of(local);
  return compared;
}

}  // namespace weir::oracle
