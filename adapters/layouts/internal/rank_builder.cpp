#include "adapters/layouts/internal/rank_builder.hpp"

#include <algorithm>
#include <utility>

#include "runtime/assert.hpp"

namespace weir {
namespace {

/// Those rows of a tensor of that shape, whole in all other dimensions.
Box box_of_rows(const Dims& shape, IndexRange rows) {
  Box box = Box::whole(shape);
  box.start[0] = rows.first;
  box.extent[0] = rows.count;
  WEIR_ASSERT(fits(box, shape));
  return box;
}

/// Adds the piece that lies behind all others of its local tensor; or lengthens the last of them,
/// where the rows go on in the canonical tensor as well.
void append(std::vector<LocalPiece>& pieces, const LocalPiece& next) {
  if (!pieces.empty()) {
    Box& last = pieces.back().box;
    if (pieces.back().tensor == next.tensor &&
        last.start[0] + last.extent[0] == next.box.start[0]) {
      last.extent[0] += next.box.extent[0];
      return;
    }
  }
  pieces.push_back(next);
}

}  // namespace

IndexRange equal_part(std::int64_t total, std::int64_t parts, std::int64_t index) {
  WEIR_ASSERT(parts > 0 && total % parts == 0 && index >= 0 && index < parts);
  return {.first = total / parts * index, .count = total / parts};
}

RowRun run_of(const TensorIndex& index, const std::string& layer, Projection projection,
              std::string_view kind, IndexRange rows) {
  const ProjectionRows whole = projection_rows(index.model().config, layer, projection, kind);
  return {.tensor = index.of(whole.tensor),
          .rows = {.first = whole.first + rows.first, .count = rows.count}};
}

RankBuilder::RankBuilder(const TensorIndex& index, std::optional<ElementType> dtype)
    : index_(index), model_(index.model()), dtype_(dtype) {}

const Tensor& RankBuilder::tensor(std::string_view name) const {
  return model_.tensors[index_.of(name)];
}

ElementType RankBuilder::local_type(const Tensor& tensor) const {
  const bool replaceable = tensor.kind == TensorKind::parameter &&
                           (tensor.type == ElementType::f32 || tensor.type == ElementType::bf16);
  return dtype_ && replaceable ? *dtype_ : tensor.type;
}

void RankBuilder::check_type(const LocalTensor& local, const Tensor& first, const Tensor& part) {
  if (local_type(part) == local.type || error_) return;
  error_ = Error{ErrorCode::invalid, local.name + " would fuse " + first.name + " of type " +
                                         std::string(name_of(first.type)) + " with " + part.name +
                                         " of type " + std::string(name_of(part.type)) +
                                         ": keep both in one type in the "
                                         "checkpoint or, where both are f32 or bf16, "
                                         "add dtype=bf16 or dtype=f32 to the layout"};
}

LocalTensor& RankBuilder::start(std::string local_name, const Tensor& like) {
  LocalTensor& local = layout_.tensors.emplace_back();
  local.name = std::move(local_name);
  local.type = local_type(like);
  local.shape = stored_shape(model_.config, like);
  return local;
}

void RankBuilder::whole(std::string local_name, std::string_view tensor) {
  const std::uint32_t index = index_.of(tensor);
  const Tensor& whole = model_.tensors[index];
  LocalTensor& local = start(std::move(local_name), whole);
  if (element_count(whole.shape) > 0) {
    local.pieces.push_back(
        {.tensor = index, .box = Box::whole(whole.shape), .stride = dense_strides(whole.shape, 1)});
  }
}

void RankBuilder::columns(std::string local_name, std::uint32_t tensor, IndexRange columns) {
  const Tensor& whole = model_.tensors[tensor];
  WEIR_ASSERT(whole.shape.rank() == 2);
  const Box box{.start = {0, columns.first}, .extent = {whole.shape[0], columns.count}};
  WEIR_ASSERT(fits(box, whole.shape) && element_count(box.extent) > 0);
  LocalTensor& local = start(std::move(local_name), whole);
  local.shape[1] = columns.count;
  local.pieces.push_back({.tensor = tensor, .box = box, .stride = dense_strides(box.extent, 1)});
}

void RankBuilder::stack(std::string local_name, const std::vector<RowRun>& runs) {
  WEIR_ASSERT(!runs.empty());
  const Tensor& first = model_.tensors[runs.front().tensor];
  LocalTensor& local = start(std::move(local_name), first);
  local.pieces.reserve(runs.size());
  std::int64_t row = 0;
  for (const RowRun& run : runs) {
    const Tensor& part = model_.tensors[run.tensor];
    WEIR_ASSERT(
        std::ranges::equal(part.shape.values().subspan(1), first.shape.values().subspan(1)));
    check_type(local, first, part);
    const Box box = box_of_rows(part.shape, run.rows);
    const Dims stride = dense_strides(part.shape, 1);
    if (element_count(box.extent) > 0) {
      append(local.pieces,
             {.tensor = run.tensor, .box = box, .offset = row * stride[0], .stride = stride});
    }
    row += run.rows.count;
  }
  local.shape[0] = row;
}

void RankBuilder::stack_parts(std::string local_name, std::int64_t count,
                              const std::vector<RowRun>& runs) {
  stack(std::move(local_name), runs);
  std::vector<std::int64_t>& shape = layout_.tensors.back().shape;
  WEIR_ASSERT(count > 0 && shape[0] % count == 0);
  shape[0] /= count;
  shape.insert(shape.begin(), count);
}

void RankBuilder::stack_columns(std::string local_name, const std::vector<ColumnRun>& runs) {
  WEIR_ASSERT(!runs.empty());
  const Tensor& first = model_.tensors[runs.front().tensor];
  const std::int64_t rows = first.shape[0];
  const std::int64_t columns = runs.front().columns.count;
  LocalTensor& local = start(std::move(local_name), first);
  local.shape = {std::ssize(runs), rows, columns};
  local.pieces.reserve(runs.size());
  for (const ColumnRun& run : runs) {
    const Tensor& part = model_.tensors[run.tensor];
    const Box box{.start = {0, run.columns.first}, .extent = {rows, columns}};
    WEIR_ASSERT(run.columns.count == columns && part.shape.rank() == 2 && part.shape[0] == rows);
    WEIR_ASSERT(fits(box, part.shape) && element_count(box.extent) > 0);
    check_type(local, first, part);
    local.pieces.push_back({.tensor = run.tensor,
                            .box = box,
                            .offset = std::ssize(local.pieces) * rows * columns,
                            .stride = dense_strides(box.extent, 1)});
  }
}

void RankBuilder::boxes(std::string local_name, std::string_view tensor,
                        std::vector<std::int64_t> shape, const std::vector<LocalBox>& boxes) {
  const std::uint32_t index = index_.of(tensor);
  const Tensor& whole = model_.tensors[index];
  LocalTensor& local = start(std::move(local_name), whole);
  local.shape = std::move(shape);
  for (const LocalBox& next : boxes) {
    WEIR_ASSERT(fits(next.box, whole.shape) && element_count(next.box.extent) > 0);
    if (!local.pieces.empty()) {
      LocalPiece& last = local.pieces.back();
      const std::int64_t count = last.box.extent[0];
      Box behind = last.box;
      behind.start[0] += count;
      behind.extent[0] = next.box.extent[0];
      if (next.box == behind && next.stride == last.stride &&
          next.offset == last.offset + count * last.stride[0]) {
        last.box.extent[0] += next.box.extent[0];
        continue;
      }
    }
    local.pieces.push_back(
        {.tensor = index, .box = next.box, .offset = next.offset, .stride = next.stride});
  }
}

void RankBuilder::keep_last_in_f32() {
  LocalTensor& local = layout_.tensors.back();
  const bool buffer = !local.pieces.empty() &&
                      model_.tensors[local.pieces.front().tensor].kind == TensorKind::buffer;
  if ((buffer || !dtype_) && local.type == ElementType::bf16) local.type = ElementType::f32;
}

void RankBuilder::less_one_last() {
  layout_.tensors.back().less_one = true;
}

void RankBuilder::empty_last() {
  LocalTensor& local = layout_.tensors.back();
  local.shape[0] = 0;
  local.pieces.clear();
}

void RankBuilder::derived(std::string name, std::string from) {
  layout_.derived.push_back({std::move(name), std::move(from)});
}

void RankBuilder::padded_rows(std::string local_name, std::string_view tensor, IndexRange rows) {
  const std::int64_t real_rows = this->tensor(tensor).shape[0];
  const std::int64_t first = std::min(rows.first, real_rows);
  const std::int64_t end = std::min(rows.end(), real_rows);
  stack(std::move(local_name),
        {{.tensor = of(tensor), .rows = {.first = first, .count = end - first}}});
  layout_.tensors.back().shape[0] = rows.count;
}

Result<RankLayout> RankBuilder::finish() && {
  if (error_) return tl::unexpected<Error>(*std::move(error_));
  return std::move(layout_);
}

}  // namespace weir
