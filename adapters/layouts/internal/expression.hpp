#pragma once
// The arithmetic of description files: whole numbers, named values, and what a model has.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "adapters/layouts/internal/tensor_index.hpp"
#include "runtime/result.hpp"

namespace weir {

/// What names mean while something is evaluated.
struct Scope {
  std::map<std::string, std::int64_t, std::less<>> values;
  /// The model whose tensors `dim`, `has` and `count` are about; null where there is none yet. Must
  /// outlive the scope.
  const TensorIndex* model = nullptr;
  /// Work that is left: characters that are looked at, and a few more for each expression. It is
  /// eight times what one rank with all of DeepSeek-V3's experts takes; more is refused.
  std::int64_t budget = std::int64_t{1} << 26;
};

/// The value of an expression: decimal numbers, names, ( ), unary -, * / %, + -, comparisons (1 or
/// 0), and the functions min(a, b), max(a, b), up(a, b) (a rounded up to a multiple of b),
/// dim('tensor', d) (extent of a canonical tensor's dimension), has('tensor') (1 or 0) and
/// count('a.{}.b') (how many of a.0.b, a.1.b, … there are without a gap). Texts in quotes are
/// patterns. Errors (`invalid`) say what was expected and where, which name is unknown (and which
/// are known), and what divides by zero or does not fit 64 bits.
Result<std::int64_t> evaluate(std::string_view text, Scope& scope);

/// The pattern with each {expression} replaced by its value. Errors: also a brace without its
/// other.
Result<std::string> expand(std::string_view pattern, Scope& scope);

/// Whether it can be a name: a lower-case letter or '_', and then digits too; and no function's.
bool is_value_name(std::string_view text) noexcept;

}  // namespace weir
