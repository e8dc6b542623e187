#include "adapters/oracle/internal/rank_writer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weir::oracle::internal {

Rows slice_of(const Rows& rows, std::int64_t first, std::int64_t count) {
  Rows slice;
  slice.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = first; i < first + count; ++i) {
    if (i < std::ssize(rows)) slice.push_back(rows[static_cast<std::size_t>(i)]);
  }
  return slice;
}

Rows part_of(const Rows& rows, std::int64_t index, std::int64_t count) {
  const std::int64_t each = std::ssize(rows) / count;
  return slice_of(rows, index * each, each);
}

Rows stacked(std::initializer_list<Rows> lists) {
  Rows all;
  for (const Rows& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Rows stacked(const std::vector<Rows>& lists) {
  Rows all;
  for (const Rows& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::int64_t padded_up(std::int64_t rows, std::int64_t multiple) {
  std::int64_t padded = rows / multiple * multiple;
  if (padded < rows) padded += multiple;
  return padded;
}

RankWriter::RankWriter(const Model& model, const LayoutSpec& spec) : model_(model), spec_(spec) {
  for (std::size_t i = 0; i < model.tensors.size(); ++i) by_name_.emplace(model.tensors[i].name, i);
}

bool RankWriter::require(bool condition, const std::string& otherwise) {
  if (!condition && !error_) {
    error_ = Error{ErrorCode::invalid, text_of(spec_) + ": " + otherwise};
  }
  return condition;
}

std::int64_t RankWriter::option(std::string_view name, std::int64_t otherwise) {
  // Far above any real cluster, and small enough that no product of options overflows.
  constexpr std::int64_t option_max = 1'000'000;
  const auto found = spec_.options.find(std::string(name));
  if (found == spec_.options.end()) return otherwise;
  const bool sane = found->second >= 1 && found->second <= option_max;
  require(sane, std::string(name) + " must be 1 to " + std::to_string(option_max));
  return sane ? found->second : otherwise;
}

std::int64_t RankWriter::count(std::string_view name) {
  const auto found = spec_.options.find(std::string(name));
  if (found == spec_.options.end()) return 0;
  const bool sane = found->second >= 0 && found->second <= 1'000'000;
  require(sane, std::string(name) + " must be 0 to 1000000");
  return sane ? found->second : 0;
}

bool RankWriter::second(std::string_view name, std::string_view first, std::string_view second) {
  const auto found = spec_.choices.find(std::string(name));
  if (found == spec_.choices.end()) return false;
  require(found->second == first || found->second == second,
          std::string(name) + " must be " + std::string(first) + " or " + std::string(second));
  return found->second == second;
}

void RankWriter::allow(std::initializer_list<std::string_view> options, AllowedLists lists) {
  const auto check = [&](const std::string& name) {
    require(std::find(options.begin(), options.end(), name) != options.end(),
            "the layout has no option '" + name + "'; leave it out");
  };
  for (const auto& [name, value] : spec_.options) check(name);
  for (const auto& [name, word] : spec_.choices) check(name);
  require(lists.layers || spec_.layers.empty(), "the layout has no option 'layers'; leave it out");
  require(lists.physical || spec_.physical.empty(),
          "the layout has no option 'physical'; leave it out");
  require(!spec_.dtype || spec_.dtype == ElementType::f32 || spec_.dtype == ElementType::bf16,
          "dtype must be f32 or bf16");
}

Rows RankWriter::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return rows_of(name, Dims{rows, columns});
}

Rows RankWriter::vector(const std::string& name, std::int64_t rows) {
  return rows_of(name, Dims{rows});
}

Rows RankWriter::kernel(const std::string& name, std::int64_t rows, std::int64_t width) {
  return rows_of(name, Dims{rows, 1, width});
}

Rows RankWriter::rows_of(const std::string& name, const Dims& shape) {
  Rows rows;
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    require(false, "the model has no tensor " + name + ", which its config.json calls for");
    return rows;
  }
  const Tensor& tensor = model_.tensors[found->second];
  if (tensor.shape != shape) {
    require(false, "tensor " + name + " is " + text_of(tensor.shape) + " and should be " +
                       text_of(shape) + " by the model's config.json");
    return rows;
  }
  rows.reserve(static_cast<std::size_t>(shape[0]));
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    rows.push_back({static_cast<std::int64_t>(found->second), row});
  }
  return rows;
}

void RankWriter::put_matrix(std::string name, Rows rows, std::int64_t columns,
                            std::int64_t first_column) {
  LocalTensor local;
  local.name = std::move(name);
  local.shape = {std::ssize(rows), columns};
  local.rows = std::move(rows);
  local.first_column = first_column;
  local.columns = columns;
  put(std::move(local));
}

void RankWriter::put_parts(std::string name, const Rows& rows, std::int64_t parts,
                           std::int64_t columns, std::int64_t first_column) {
  LocalTensor local;
  local.name = std::move(name);
  local.shape = {parts, parts == 0 ? 0 : std::ssize(rows) / parts, columns};
  local.rows = rows;
  local.first_column = first_column;
  local.columns = columns;
  put(std::move(local));
}

void RankWriter::put_vectors(std::string name, const Rows& rows, std::int64_t parts,
                             const std::string& like) {
  LocalTensor local;
  local.name = std::move(name);
  local.shape = {parts, parts == 0 ? 0 : std::ssize(rows) / parts};
  local.rows = rows;
  if (const auto found = by_name_.find(like); found != by_name_.end()) {
    local.type = local_type(static_cast<std::int64_t>(found->second));
  }
  put(std::move(local));
}

void RankWriter::put_kernel(std::string name, Rows rows, std::int64_t width) {
  LocalTensor local;
  local.name = std::move(name);
  local.shape = {std::ssize(rows), 1, width};
  local.columns = width;
  local.rows = std::move(rows);
  put(std::move(local));
}

void RankWriter::put_no_parts(std::string name, std::int64_t each, std::int64_t columns,
                              const std::string& like) {
  LocalTensor local;
  local.name = std::move(name);
  local.shape = {0, each, columns};
  local.columns = columns;
  if (const auto found = by_name_.find(like); found != by_name_.end()) {
    local.type = local_type(static_cast<std::int64_t>(found->second));
  }
  put(std::move(local));
}

void RankWriter::keep_in_f32() {
  LocalTensor& local = locals_.back();
  const std::int64_t first = local.rows.empty() ? padding : local.rows.front().tensor;
  const bool buffer = first != padding &&
                      model_.tensors[static_cast<std::size_t>(first)].kind == TensorKind::buffer;
  if ((buffer || !spec_.dtype) && local.type == ElementType::bf16) local.type = ElementType::f32;
}

void RankWriter::put_vector(std::string name, Rows rows) {
  LocalTensor local;
  local.name = std::move(name);
  local.shape = {std::ssize(rows)};
  local.rows = std::move(rows);
  put(std::move(local));
}

void RankWriter::put_padded(std::string name, const Table& table, std::int64_t first,
                            std::int64_t count) {
  const Rows real = matrix(table.name, table.rows, table.columns);
  if (real.empty()) return;
  Rows rows;
  for (std::int64_t row = first; row < first + count; ++row) {
    rows.push_back(row < std::ssize(real) ? real[static_cast<std::size_t>(row)] : Row{});
  }
  LocalTensor local;
  local.name = std::move(name);
  local.type = local_type(real.front().tensor);  // Also where this rank has padding only.
  local.shape = {count, table.columns};
  local.rows = std::move(rows);
  local.columns = table.columns;
  put(std::move(local));
}

void RankWriter::put_like(std::size_t tensor, Rows rows) {
  LocalTensor local;
  local.name = model_.tensors[tensor].name;
  local.type = local_type(static_cast<std::int64_t>(tensor));  // Also where there are no rows.
  local.shape = stored_shape(model_.config, model_.tensors[tensor]);
  if (!local.shape.empty()) local.shape[0] = std::ssize(rows);
  for (std::size_t dim = 1; dim < local.shape.size(); ++dim) local.columns *= local.shape[dim];
  local.rows = std::move(rows);
  put(std::move(local));
}

void RankWriter::put(LocalTensor local) {
  bool typed = false;
  for (const Row& row : local.rows) {
    if (row.tensor == padding) continue;
    const ElementType type = local_type(row.tensor);
    if (typed && type != local.type) {
      require(false, "the tensors that " + local.name + " joins have different element types");
    }
    local.type = type;
    typed = true;
  }
  locals_.push_back(std::move(local));
}

ElementType RankWriter::local_type(std::int64_t tensor) const {
  const Tensor& own = model_.tensors[static_cast<std::size_t>(tensor)];
  const ElementType type = own.type;
  const bool replaceable =
      own.kind == TensorKind::parameter && (type == ElementType::f32 || type == ElementType::bf16);
  return replaceable ? spec_.dtype.value_or(type) : type;
}

Result<std::vector<LocalTensor>> RankWriter::finish() {
  if (error_) return tl::unexpected<Error>(*error_);
  return std::move(locals_);
}

}  // namespace weir::oracle::internal
