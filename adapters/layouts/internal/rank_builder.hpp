#pragma once
// The few cuts that engines' layouts are made of, so that an engine's file reads like its rule.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/layouts/internal/tensor_index.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/decoder_names.hpp"
#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// `count` indices from `first` on: rows, columns, heads or layers. May be empty.
struct IndexRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  [[nodiscard]] constexpr std::int64_t end() const noexcept { return first + count; }
};

/// The `index`th of `parts` equal parts of [0, total). `parts` divides `total`.
IndexRange equal_part(std::int64_t total, std::int64_t parts, std::int64_t index);

/// `total` rounded up to a multiple of `multiple`.
constexpr std::int64_t rounded_up(std::int64_t total, std::int64_t multiple) noexcept {
  return (total + multiple - 1) / multiple * multiple;
}

/// A run of rows (dimension 0) of a canonical tensor.
struct RowRun {
  std::uint32_t tensor = 0;  ///< Index into `Model::tensors`.
  IndexRange rows;
};

/// A run of columns (dimension 1) of a canonical tensor of two dimensions.
struct ColumnRun {
  std::uint32_t tensor = 0;  ///< Index into `Model::tensors`.
  IndexRange columns;
};

/// A box of a canonical tensor, and where in a local one its first element and, by its strides, all
/// others lie (elements).
struct LocalBox {
  Box box;
  std::int64_t offset = 0;
  Dims stride;
};

/// Rows of a projection of attention, wherever the family keeps them. `kind` is "weight" or "bias".
RowRun run_of(const TensorIndex& index, const std::string& layer, Projection projection,
              std::string_view kind, IndexRange rows);

/// Collects one rank's local tensors, in the order of the calls. Names of canonical tensors must
/// be in the model, and ranges within the tensors. Element types are the model's, save that
/// `dtype` replaces f32 and bf16 of parameters. The index must outlive the builder.
class RankBuilder {
 public:
  RankBuilder(const TensorIndex& index, std::optional<ElementType> dtype);

  [[nodiscard]] const TensorIndex& index() const noexcept { return index_; }
  /// The index of the canonical tensor with this name, and the tensor.
  [[nodiscard]] std::uint32_t of(std::string_view name) const { return index_.of(name); }
  [[nodiscard]] const Tensor& tensor(std::string_view name) const;

  /// All of a tensor, of any number of dimensions.
  void whole(std::string local_name, std::string_view tensor);
  /// Columns (dimension 1) of a tensor of two dimensions.
  void columns(std::string local_name, std::uint32_t tensor, IndexRange columns);
  void columns(std::string local_name, std::string_view tensor, IndexRange columns) {
    this->columns(std::move(local_name), of(tensor), columns);
  }
  /// Rows of one or more tensors of equal width, one run after another. An empty run places
  /// nothing; the first gives width and type.
  void stack(std::string local_name, const std::vector<RowRun>& runs);
  /// The same with a further dimension in front: `count` equal parts of the runs' rows.
  void stack_parts(std::string local_name, std::int64_t count, const std::vector<RowRun>& runs);
  /// Equally many columns of tensors with equally many rows, one run behind another: the local
  /// tensor is [run, row, column].
  void stack_columns(std::string local_name, const std::vector<ColumnRun>& runs);
  /// Boxes of one tensor in a local tensor of that shape, where no other cut says it: transposed
  /// experts. Boxes that continue each other in dimension 0 become one piece; none is padding all
  /// over.
  void boxes(std::string local_name, std::string_view tensor, std::vector<std::int64_t> shape,
             const std::vector<LocalBox>& boxes);
  /// Rows of a tensor which counts as lengthened with rows of zeros.
  void padded_rows(std::string local_name, std::string_view tensor, IndexRange rows);

  /// The local tensor that was added last is kept in f32 where it would be bf16, unless it is a
  /// parameter and the layout's `dtype` says otherwise.
  void keep_last_in_f32();
  /// The local tensor that was added last holds the canonical elements less one.
  void less_one_last();
  /// Takes everything out of the local tensor that was added last: of its first dimension there is
  /// nothing on this rank.
  void empty_last();

  /// Declares what the engine computes from local tensor `from`.
  void derived(std::string name, std::string from);

  /// What was collected. Errors (`invalid`): tensors of different types were stacked together.
  Result<RankLayout> finish() &&;

 private:
  /// A new local tensor of that type and shape, without pieces. Valid until the next one.
  LocalTensor& start(std::string local_name, const Tensor& like);
  [[nodiscard]] ElementType local_type(const Tensor& tensor) const;
  /// Remembers that the part does not have the type of the local tensor that it is to be part of.
  void check_type(const LocalTensor& local, const Tensor& first, const Tensor& part);

  const TensorIndex& index_;
  const Model& model_;
  std::optional<ElementType> dtype_;
  RankLayout layout_;
  std::optional<Error> error_;  ///< The first.
};

}  // namespace weir
