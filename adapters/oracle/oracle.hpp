#pragma once
// The independent reference for layouts: row by row, from the engines' rules, which canonical
// element lies at each local element. It shares no code with `adapters/layouts/`, so that a fault
// there shows as a difference; tests and `weir demo` compare every byte against it.

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/element_type.hpp"
#include "runtime/result.hpp"

namespace weir::oracle {

/// A local row that is padding.
inline constexpr std::int64_t padding = -1;

/// Where one local row comes from. A tensor is seen as rows x columns: dimension 0, and all
/// others folded into one; a vector has one column, a scalar one row and one column.
struct Row {
  std::int64_t tensor = padding;  ///< Index into `Model::tensors`, or `padding`.
  std::int64_t row = 0;           ///< In that canonical tensor.
  std::int64_t column = 0;        ///< Where it begins in that row.
  std::int64_t step = 1;          ///< From one local element to the next: of a transposed one more.

  friend bool operator==(const Row&, const Row&) = default;
};

/// One local tensor, its last dimension its columns and all others folded into its rows: element
/// (r, c) is canonical element (rows[r].row, rows[r].column + (first_column + c) * rows[r].step) of
/// tensor rows[r].tensor, or zero where that is padding.
struct LocalTensor {
  std::string name;
  ElementType type = ElementType::bf16;  ///< Of the local elements: the layout's `dtype` applied.
  std::vector<std::int64_t> shape;
  std::vector<Row> rows;
  std::int64_t first_column = 0;
  std::int64_t columns = 1;
  bool less_one = false;  ///< Each element is the canonical one less 1.
};

/// All local tensors of one rank, in the engine's order. Written for clarity, not for speed.
/// Errors (`invalid`): a layout, option or family that it has no rules for, a model that does not
/// fit the layout, a canonical tensor that is missing or has another shape than the rules say.
Result<std::vector<LocalTensor>> rank_of(const Model& model, const LayoutSpec& spec,
                                         std::uint32_t rank);

}  // namespace weir::oracle
