#pragma once
// The vocabulary in which the rules are written down: lists of rows, and a writer that turns them
// into the local tensors of one rank.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/oracle/oracle.hpp"

namespace weir::oracle::internal {

using Rows = std::vector<Row>;

/// Part `index` of `count` equal, contiguous parts; `count` divides the number of rows.
Rows part_of(const Rows& rows, std::int64_t index, std::int64_t count);
/// Rows [first, first + count).
Rows slice_of(const Rows& rows, std::int64_t first, std::int64_t count);
/// The lists one after another.
Rows stacked(std::initializer_list<Rows> lists);
Rows stacked(const std::vector<Rows>& lists);

/// Which of the options that are lists of numbers a layout has.
struct AllowedLists {
  bool layers = false;
  bool physical = false;
};

/// Collects the local tensors of one rank. The first thing that goes wrong is kept and returned by
/// `finish`, so that the rules read as plain lists; what is written after it does not matter.
class RankWriter {
 public:
  /// Borrows both for its life.
  RankWriter(const Model& model, const LayoutSpec& spec);

  /// States a rule that must hold, and what to change where it does not.
  /// Returns `condition`, so that what would divide by zero after it can be skipped.
  bool require(bool condition, const std::string& otherwise);
  /// The value of an option that is at least 1, which is also its default.
  std::int64_t option(std::string_view name, std::int64_t otherwise = 1);
  /// The same of an option whose least value, and default, is 0.
  std::int64_t count(std::string_view name);
  /// Whether an option that is one of `words` is the second of them; by default it is the first.
  bool second(std::string_view name, std::string_view first, std::string_view second);
  /// That the layout has these options and words only, and lists only where they are allowed.
  void allow(std::initializer_list<std::string_view> options, AllowedLists lists = {});

  /// All rows of canonical tensor `name`, which must be [rows, columns].
  Rows matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// All rows of canonical tensor `name`, which must be [rows].
  Rows vector(const std::string& name, std::int64_t rows);

  /// All rows of canonical tensor `name`, which must be [rows, 1, width].
  Rows kernel(const std::string& name, std::int64_t rows, std::int64_t width);
  /// All rows of canonical tensor `name`, which must have that shape.
  Rows rows_of(const std::string& name, const Dims& shape);

  /// A local tensor [rows, columns], from column `first_column` of its rows on.
  void put_matrix(std::string name, Rows rows, std::int64_t columns, std::int64_t first_column = 0);
  /// A local tensor [parts, rows / parts, columns].
  void put_parts(std::string name, const Rows& rows, std::int64_t parts, std::int64_t columns,
                 std::int64_t first_column = 0);
  /// A local tensor [parts, rows / parts], whose type is that of canonical tensor `like` where all
  /// of it is padding.
  void put_vectors(std::string name, const Rows& rows, std::int64_t parts, const std::string& like);
  /// A local tensor [rows, 1, width].
  void put_kernel(std::string name, Rows rows, std::int64_t width);
  /// A local tensor [parts, each, columns] of which there are no parts here; its type is that of
  /// canonical tensor `like`.
  void put_no_parts(std::string name, std::int64_t each, std::int64_t columns,
                    const std::string& like);
  /// The tensor that was put last is kept in f32 if it would be bf16, unless it is a parameter and
  /// `dtype` is given.
  void keep_in_f32();
  /// The tensor that was put last is kept less one.
  void keep_less_one() { locals_.back().less_one = true; }
  /// A local tensor [rows].
  void put_vector(std::string name, Rows rows);
  /// A local tensor [count, columns]: rows [first, first + count) of canonical tensor `table`
  /// [rows, columns], which goes on with padding after its last row.
  struct Table {
    std::string name;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
  };
  void put_padded(std::string name, const Table& table, std::int64_t first, std::int64_t count);
  /// A local tensor whose rows have the trailing dimensions of canonical tensor `tensor`.
  void put_like(std::size_t tensor, Rows rows);

  Result<std::vector<LocalTensor>> finish();

 private:
  void put(LocalTensor local);
  [[nodiscard]] ElementType local_type(std::int64_t tensor) const;

  const Model& model_;
  const LayoutSpec& spec_;
  std::map<std::string_view, std::size_t> by_name_;
  std::vector<LocalTensor> locals_;
  std::optional<Error> error_;
};

/// Each writes what one rank keeps in one layout.
void write_hf(const Model& model, std::uint32_t rank, RankWriter& writer);
void write_fsdp2(const Model& model, std::uint32_t rank, RankWriter& writer);
void write_megatron(const Model& model, const LayoutSpec& spec, std::uint32_t rank,
                    RankWriter& writer);
void write_vllm(const Model& model, const LayoutSpec& spec, std::uint32_t rank, RankWriter& writer);
void write_sglang(const Model& model, const LayoutSpec& spec, std::uint32_t rank,
                  RankWriter& writer);

/// Rows that a table of `rows` rows has when padded up to a multiple.
std::int64_t padded_up(std::int64_t rows, std::int64_t multiple);

}  // namespace weir::oracle::internal
