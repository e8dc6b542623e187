#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "adapters/oracle/internal/narrowing.hpp"
#include "adapters/oracle/oracle.hpp"
#include "adapters/reshard/internal/interruption.hpp"
#include "adapters/reshard/internal/verify.hpp"

namespace weir {
namespace {

/// Rows are shared among threads in slices of about this size.
constexpr std::uint64_t slice_bytes = std::uint64_t{1} << 20;

/// One local tensor of one rank: the oracle's rows, and the tensor in its file.
struct Held {
  oracle::LocalTensor rows;
  MappedTensor tensor;

  [[nodiscard]] std::uint64_t row_bytes() const {
    return static_cast<std::uint64_t>(rows.columns) * size_of(rows.type);
  }
  [[nodiscard]] std::span<const std::byte> row(std::size_t index) const {
    return tensor.data().subspan(index * row_bytes(), row_bytes());
  }
};

/// All local tensors of one side, and which of them hold rows of each canonical tensor.
struct HeldSide {
  std::vector<Held> tensors;
  std::vector<std::vector<std::size_t>> by_canonical;
};

using TensorsByName = std::map<std::string_view, MappedTensor>;

tl::unexpected<Error> fault(const Held& held, const std::string& what) {
  return failure(ErrorCode::io,
                 held.tensor.file->path().string() + ": tensor " + held.rows.name + " " + what);
}

/// Puts the oracle's local tensors and those of the files together, by name.
Result<void> add_rank(std::vector<oracle::LocalTensor> locals, const TensorsByName& tensors,
                      HeldSide& side) {
  for (oracle::LocalTensor& local : locals) {
    const auto found = tensors.find(local.name);
    if (found == tensors.end() || locals.size() != tensors.size()) {
      return failure(ErrorCode::io, "the oracle knows other tensors than " +
                                        tensors.begin()->second.file->path().string() +
                                        " has, such as " + local.name);
    }
    Held held{.rows = std::move(local), .tensor = found->second};
    if (held.tensor.data().size() != held.rows.rows.size() * held.row_bytes()) {
      return fault(held, "has another size than the oracle says");
    }
    std::int64_t last = oracle::padding;
    for (const oracle::Row& row : held.rows.rows) {
      if (row.tensor == oracle::padding || row.tensor == last) continue;
      last = row.tensor;
      auto& holders = side.by_canonical[static_cast<std::size_t>(last)];
      if (holders.empty() || holders.back() != side.tensors.size()) {
        holders.push_back(side.tensors.size());
      }
    }
    side.tensors.push_back(std::move(held));
  }
  return {};
}

Result<HeldSide> source_side(const ReshardSource& source) {
  const Model& model = source.facts().model;
  HeldSide side{.tensors = {}, .by_canonical = {model.tensors.size(), std::vector<std::size_t>()}};
  for (std::uint32_t rank = 0; rank < source.ranks().size(); ++rank) {
    auto locals = oracle::rank_of(model, source.layout(), rank);
    if (!locals) return failure(locals);
    TensorsByName tensors;
    for (const MappedTensor& tensor : source.tensors(rank)) {
      tensors.emplace(tensor.file->tensors()[tensor.index].name, tensor);
    }
    if (auto added = add_rank(*std::move(locals), tensors, side); !added) return failure(added);
  }
  return side;
}

Result<HeldSide> target_side(const Model& model, const LayoutSpec& to,
                             const std::vector<std::unique_ptr<SafetensorsFile>>& files) {
  HeldSide side{.tensors = {}, .by_canonical = {model.tensors.size(), std::vector<std::size_t>()}};
  for (std::uint32_t rank = 0; rank < files.size(); ++rank) {
    auto locals = oracle::rank_of(model, to, rank);
    if (!locals) return failure(locals);
    TensorsByName tensors;
    for (std::size_t index = 0; index < files[rank]->tensors().size(); ++index) {
      const MappedTensor tensor{.file = files[rank].get(), .index = index};
      tensors.emplace(files[rank]->tensors()[index].name, tensor);
    }
    if (auto added = add_rank(*std::move(locals), tensors, side); !added) return failure(added);
  }
  return side;
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// A canonical tensor put together from the source.
struct Canonical {
  std::size_t tensor = 0;
  ElementType type = ElementType::bf16;
  std::uint64_t row_bytes = 0;
  std::vector<std::byte> bytes;

  /// Where what one local row holds starts.
  [[nodiscard]] std::uint64_t offset_of(const Held& held, const oracle::Row& row) const {
    return static_cast<std::uint64_t>(row.row) * row_bytes +
           static_cast<std::uint64_t>(row.column + held.rows.first_column * row.step) *
               size_of(type);
  }
  /// What one local row should hold, in this tensor's type. `gathered` is where it is put together
  /// if it lies scattered here.
  [[nodiscard]] std::span<const std::byte> part(const Held& held, const oracle::Row& row,
                                                std::vector<std::byte>& gathered) const {
    const std::uint64_t offset = offset_of(held, row);
    const auto columns = static_cast<std::uint64_t>(held.rows.columns);
    const std::size_t size = size_of(type);
    if (row.step == 1) return std::span(bytes).subspan(offset, columns * size);
    gathered.resize(columns * size);
    const std::uint64_t step = static_cast<std::uint64_t>(row.step) * size;
    for (std::uint64_t c = 0; c < columns; ++c) {
      std::memcpy(gathered.data() + c * size, bytes.data() + offset + c * step, size);
    }
    return gathered;
  }
  /// Takes over what one local row holds, which is not empty.
  void set_part(const Held& held, const oracle::Row& row, std::span<const std::byte> from) {
    const std::uint64_t offset = offset_of(held, row);
    const std::size_t run = row.step == 1 ? from.size() : size_of(type);
    const std::uint64_t step = static_cast<std::uint64_t>(row.step) * size_of(type);
    for (std::uint64_t at = 0, c = 0; at < from.size(); at += run, ++c) {
      std::memcpy(bytes.data() + offset + c * step, from.data() + at, run);
    }
  }
};

/// Calls `body(held, index, row)` for every row of `tensor` among `side`'s local tensors.
template <class Body>
void for_each_row(const HeldSide& side, std::size_t tensor, const Body& body) {
  for (const std::size_t holder : side.by_canonical[tensor]) {
    const Held& held = side.tensors[holder];
    for (std::size_t index = 0; index < held.rows.rows.size(); ++index) {
      const oracle::Row& row = held.rows.rows[index];
      if (row.tensor == static_cast<std::int64_t>(tensor)) body(held, index, row);
    }
  }
}

Result<Canonical> assemble(const Tensor& tensor, std::size_t index, const HeldSide& source) {
  Canonical whole;
  whole.tensor = index;
  const auto& holders = source.by_canonical[index];
  if (holders.empty()) return whole;
  whole.type = source.tensors[holders.front()].rows.type;
  const std::uint64_t rows =
      tensor.shape.rank() == 0 ? 1 : static_cast<std::uint64_t>(tensor.shape[0]);
  whole.bytes.resize(static_cast<std::uint64_t>(element_count(tensor.shape)) * size_of(whole.type));
  whole.row_bytes = whole.bytes.size() / rows;
  std::uint64_t bytes = 0;
  for_each_row(source, index, [&](const Held& held, std::size_t at, const oracle::Row& row) {
    const auto from = held.row(at);
    if (from.empty()) return;
    whole.set_part(held, row, from);
    bytes += from.size();
  });
  if (bytes == whole.bytes.size()) return whole;
  // There are replicated parts: the plan may have taken any, so they must be equal.
  const Held* differing = nullptr;
  std::vector<std::byte> gathered;
  for_each_row(source, index, [&](const Held& held, std::size_t at, const oracle::Row& row) {
    if (!equal(held.row(at), whole.part(held, row, gathered))) differing = &held;
  });
  if (differing == nullptr) return whole;
  return fault(*differing, "differs from another rank's copy of " + tensor.name +
                               ": the input contradicts itself");
}

/// A run of local rows to compare.
struct Slice {
  const Held* held = nullptr;
  std::size_t first = 0;
  std::size_t end = 0;
};

std::vector<Slice> slices_of(const Held& held) {
  std::vector<Slice> slices;
  const std::size_t rows = held.rows.rows.size();
  const std::size_t step =
      std::max<std::size_t>(1, slice_bytes / std::max<std::uint64_t>(1, held.row_bytes()));
  for (std::size_t first = 0; first < rows; first += step) {
    slices.push_back({.held = &held, .first = first, .end = std::min(rows, first + step)});
  }
  return slices;
}

struct SliceResult {
  std::uint64_t bytes = 0;             ///< Compared.
  std::optional<std::size_t> differs;  ///< The first local row that is wrong.
};

/// Compares the rows of a slice that belong to `whole`.
SliceResult compare(const Slice& slice, const Canonical& whole) {
  SliceResult result;
  const Held& held = *slice.held;
  std::vector<std::byte> gathered;
  std::vector<std::byte> converted(held.rows.type == whole.type ? 0 : held.row_bytes());
  for (std::size_t index = slice.first; index < slice.end; ++index) {
    const oracle::Row& row = held.rows.rows[index];
    if (row.tensor != static_cast<std::int64_t>(whole.tensor)) continue;
    std::span<const std::byte> wanted = whole.part(held, row, gathered);
    if (held.rows.type != whole.type) {
      oracle::internal::convert(whole.type, held.rows.type, wanted, converted);
      wanted = converted;
    }
    if (!equal(held.row(index), wanted)) {
      result.differs = index;
      return result;
    }
    result.bytes += wanted.size();
  }
  return result;
}

/// The same for rows that are padding, which is zero.
SliceResult compare_padding(const Slice& slice) {
  SliceResult result;
  const Held& held = *slice.held;
  for (std::size_t index = slice.first; index < slice.end; ++index) {
    if (held.rows.rows[index].tensor != oracle::padding) continue;
    const auto row = held.row(index);
    if (std::any_of(row.begin(), row.end(), [](std::byte byte) { return byte != std::byte{0}; })) {
      result.differs = index;
      return result;
    }
    result.bytes += row.size();
  }
  return result;
}

/// Compares slices on the workers and adds up. Error: the first difference in order.
template <class Compare>
Result<std::uint64_t> compare_slices(const std::vector<Slice>& slices, Workers& workers,
                                     const Compare& compare_one) {
  std::vector<SliceResult> results(slices.size());
  workers.for_each(slices.size(),
                   [&](std::size_t index) { results[index] = compare_one(slices[index]); });
  std::uint64_t bytes = 0;
  for (std::size_t index = 0; index < slices.size(); ++index) {
    bytes += results[index].bytes;
    if (!results[index].differs) continue;
    return fault(*slices[index].held, "differs from the reference in row " +
                                          std::to_string(*results[index].differs) +
                                          ": these bytes are wrong");
  }
  return bytes;
}

}  // namespace

Result<std::uint64_t> verify_resharding(const ReshardSource& source, const LayoutSpec& to,
                                        const std::vector<std::unique_ptr<SafetensorsFile>>& files,
                                        Workers& workers, ReshardObserver& observer) {
  const Model& model = source.facts().model;
  auto sources = source_side(source);
  if (!sources) return failure(sources);
  auto targets = target_side(model, to, files);
  if (!targets) return failure(targets);

  std::uint64_t total = 0;
  const auto count = [&](const Result<std::uint64_t>& compared) -> Result<void> {
    if (!compared) return failure(compared);
    total += *compared;
    observer.advance(*compared);
    if (observer.interrupted()) return interruption();
    return {};
  };
  for (std::size_t index = 0; index < model.tensors.size(); ++index) {
    auto whole = assemble(model.tensors[index], index, *sources);
    if (!whole) return failure(whole);
    std::vector<Slice> slices;
    for (const std::size_t holder : targets->by_canonical[index]) {
      const auto more = slices_of(targets->tensors[holder]);
      slices.insert(slices.end(), more.begin(), more.end());
    }
    const auto compared =
        compare_slices(slices, workers, [&](const Slice& slice) { return compare(slice, *whole); });
    if (auto counted = count(compared); !counted) return failure(counted);
    for (const HeldSide* side : {&*sources, &*targets}) {
      for (const std::size_t holder : side->by_canonical[index]) {
        side->tensors[holder].tensor.release();
      }
    }
  }
  for (const Held& held : targets->tensors) {
    if (auto counted = count(compare_slices(slices_of(held), workers, compare_padding)); !counted) {
      return failure(counted);
    }
  }
  return total;
}

}  // namespace weir
