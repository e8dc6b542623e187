#pragma once
// A layout that a user describes in a file, as it is written there.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/layouts/internal/engines.hpp"
#include "runtime/result.hpp"

namespace weir {

/// A text of the file, and where it is, for messages.
struct DescribedText {
  std::string text;
  std::uint32_t line = 0;
};

/// `for = ["layer", "num_hidden_layers"]`: the name counts from `first` on.
struct DescribedLoop {
  std::string name = {};
  DescribedText first = {};
  DescribedText count = {};
};

/// Names in the order of the file, each of which may use those before it.
using DescribedValues = std::vector<std::pair<std::string, DescribedText>>;

/// Rows or columns of a canonical tensor; or several runs that take turns, one after another in
/// each turn of the loops.
struct DescribedRun {
  DescribedText of = {};
  DescribedText first = {};
  DescribedText count = {};
  std::vector<DescribedLoop> loops = {};
  DescribedValues values = {};
  DescribedText condition = {};  ///< Empty: always.
  std::vector<DescribedRun> turns =
      {};  ///< Where there are any, nothing else but loops, values, if.
};

/// How a local tensor is made of canonical ones, as `RankBuilder` cuts.
enum class DescribedCut : std::uint8_t { whole, rows, padded_rows, columns, stacked_columns };

struct DescribedTensor {
  DescribedText name = {};
  std::vector<DescribedLoop> loops = {};
  DescribedValues values = {};
  DescribedText condition = {};  ///< Empty: always.
  DescribedCut cut = DescribedCut::whole;
  std::vector<DescribedRun> runs = {};  ///< One for all cuts but rows and stacked columns.
  DescribedText parts = {};             ///< Of rows: a dimension in front. Empty: none.
};

/// What must hold of options, rank and model, and what is said where it does not.
struct DescribedRequirement {
  DescribedText condition;
  std::string otherwise;
};

struct Description {
  std::string path;
  std::vector<std::string> families;
  std::vector<std::pair<std::string, std::int64_t>> options;
  DescribedText ranks;
  DescribedValues values;
  std::vector<DescribedRequirement> requirements;
  std::vector<DescribedTensor> tensors;
};

/// Files larger than this are refused: some hundred times what describes a large engine.
inline constexpr std::size_t description_bytes_max = std::size_t{1} << 20;

/// Reads the text of a description; `path` is for messages. Errors (`invalid`): no TOML, a key that
/// is unknown, missing, or of another type. They begin with path and line and say what to write.
Result<Description> parse_description(std::string_view text, const std::string& path);

/// An engine that is described in that file. Errors: also those of reading a file.
Result<std::shared_ptr<const Engine>> described_engine(const std::string& path);

/// What `Engine::size` and `Engine::lay_out` are for other engines. Errors (`invalid`) name the
/// file and the line, and what does not fit.
Result<LayoutSize> described_size(const Description& description, const LayoutSpec& spec);
Result<RankLayout> described_rank(const Description& description, const TensorIndex& index,
                                  const LayoutSpec& spec, std::uint32_t rank);

}  // namespace weir
