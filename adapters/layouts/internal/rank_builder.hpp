#pragma once
// The few cuts that engines' layouts are made of, so that an engine's file reads like its rule.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/layouts/layout.hpp"
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
  std::string tensor;  ///< Its canonical name.
  IndexRange rows;
};

/// Collects one rank's local tensors, in the order of the calls. Names of canonical tensors must
/// be in the model, and ranges within the tensors. Element types are the model's, save that
/// `dtype` replaces f32 and bf16. The model must outlive the builder.
class RankBuilder {
 public:
  RankBuilder(const Model& model, std::optional<ElementType> dtype);

  /// The canonical tensor with this name.
  [[nodiscard]] const Tensor& tensor(std::string_view name) const;

  /// All of a tensor, of any number of dimensions.
  void whole(std::string local_name, std::string_view tensor);
  /// Columns (dimension 1) of a tensor of two dimensions.
  void columns(std::string local_name, std::string_view tensor, IndexRange columns);
  /// Rows of one or more tensors of equal width, one run after another. An empty run places
  /// nothing; the first gives width and type.
  void stack(std::string local_name, const std::vector<RowRun>& runs);
  /// Rows of a tensor which counts as lengthened with rows of zeros.
  void padded_rows(std::string local_name, std::string_view tensor, IndexRange rows);

  /// What was collected. Errors (`invalid`): tensors of different types were stacked together.
  Result<RankLayout> finish() &&;

 private:
  /// A new local tensor of that type and shape, without pieces. Valid until the next one.
  LocalTensor& start(std::string local_name, const Tensor& like);
  [[nodiscard]] std::uint32_t index_of(std::string_view name) const;
  [[nodiscard]] ElementType local_type(ElementType type) const;

  const Model& model_;
  std::optional<ElementType> dtype_;
  RankLayout layout_;
  std::optional<Error> error_;  ///< The first.
};

}  // namespace weir
