#include "adapters/layouts/internal/expression.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace weir {
namespace {

/// Parentheses may lie this deep in one another.
constexpr int depth_max = 32;
/// What an expression costs besides its characters.
constexpr std::int64_t expression_cost = 16;
/// `count` gives up here: no model has as many layers or experts.
constexpr std::int64_t count_max = 65536;

constexpr std::array<std::string_view, 6> functions = {"min", "max", "up", "dim", "has", "count"};

constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || c == '_';
}
constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// Goes through a text once, by recursive descent. The first fault is kept, and every value after
/// it means nothing.
class Evaluation {
 public:
  Evaluation(std::string_view text, Scope& scope) : text_(text), scope_(scope) {
    scope_.budget -= static_cast<std::int64_t>(text.size()) + expression_cost;
    if (scope_.budget < 0) fail("the description has too much to evaluate");
  }

  Result<std::int64_t> all() {
    const std::int64_t value = comparison();
    skip();
    if (at_ < text_.size()) fail_at("expected an operator");
    if (fault_) return failure(ErrorCode::invalid, *fault_);
    return value;
  }

 private:
  void fail(std::string text) {
    if (!fault_) fault_ = std::move(text);
    at_ = text_.size();
  }
  void fail_at(const std::string& what) {
    if (fault_) return;
    const std::string rest(text_.substr(at_, 20));
    fail(what + (rest.empty() ? " at the end" : " at '" + rest + "'") + " of \"" +
         std::string(text_.substr(0, 200)) + "\"");
  }

  /// The next character that is no space, or '\0' at the end.
  char skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail_at("expected " + std::string(word));
  }

  std::int64_t comparison() {
    const std::int64_t left = sum();
    // Those of two characters first.
    for (const std::string_view word : {"<=", ">=", "==", "!=", "<", ">"}) {
      if (!take(word)) continue;
      const std::int64_t right = sum();
      if (word == "<=") return left <= right ? 1 : 0;
      if (word == ">=") return left >= right ? 1 : 0;
      if (word == "==") return left == right ? 1 : 0;
      if (word == "!=") return left != right ? 1 : 0;
      return (word == "<" ? left < right : left > right) ? 1 : 0;
    }
    return left;
  }

  std::int64_t sum() {
    std::int64_t value = product();
    while (true) {
      const char next = skip();
      if (next != '+' && next != '-') return value;
      ++at_;
      const std::int64_t other = product();
      const bool overflows = next == '+' ? __builtin_add_overflow(value, other, &value)
                                         : __builtin_sub_overflow(value, other, &value);
      if (overflows) fail("\"" + std::string(text_) + "\" does not fit 64 bits");
    }
  }

  std::int64_t product() {
    std::int64_t value = single();
    while (true) {
      const char next = skip();
      if (next != '*' && next != '/' && next != '%') return value;
      ++at_;
      const std::int64_t other = single();
      if (next == '*') {
        if (__builtin_mul_overflow(value, other, &value)) {
          fail("\"" + std::string(text_) + "\" does not fit 64 bits");
        }
      } else if (other <= 0 || value < 0) {
        fail("\"" + std::string(text_) + "\" divides " + std::to_string(value) + " by " +
             std::to_string(other) + ", where only what is not negative is divided, by at least 1");
      } else {
        value = next == '/' ? value / other : value % other;
      }
    }
  }

  std::int64_t single() {
    if (++depth_ > depth_max) fail("\"" + std::string(text_) + "\" is nested too deep");
    const char next = skip();
    std::int64_t value = 0;
    if (fault_) return 0;
    if (next == '(') {
      ++at_;
      value = comparison();
      expect(")");
    } else if (next == '-') {
      ++at_;
      value = single();
      if (__builtin_sub_overflow(std::int64_t{0}, value, &value)) fail("a number does not fit");
    } else if (is_digit(next)) {
      value = number();
    } else if (is_letter(next)) {
      value = named();
    } else {
      fail_at("expected a number, a name or a parenthesis");
    }
    --depth_;
    return value;
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, trouble] = std::from_chars(text_.data() + at_, end, value);
    if (trouble != std::errc()) fail_at("expected a number of 64 bits");
    if (!fault_) at_ = static_cast<std::size_t>(stop - text_.data());
    return value;
  }

  std::int64_t named() {
    const std::size_t first = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view name = text_.substr(first, at_ - first);
    if (std::ranges::find(functions, name) != functions.end()) return call(name);
    const auto found = scope_.values.find(name);
    if (found != scope_.values.end()) return found->second;
    std::string known;
    for (const auto& [other, value] : scope_.values) known += (known.empty() ? "" : ", ") + other;
    fail("\"" + std::string(name) + "\" means nothing here; known are " + known);
    return 0;
  }

  std::int64_t call(std::string_view function) {
    expect("(");
    if (function == "dim" || function == "has" || function == "count") return ask(function);
    const std::int64_t a = comparison();
    expect(",");
    const std::int64_t b = comparison();
    expect(")");
    if (fault_) return 0;
    if (function == "min") return std::min(a, b);
    if (function == "max") return std::max(a, b);
    std::int64_t up = 0;
    const bool good = a >= 0 && b >= 1 && !__builtin_add_overflow(a, b - 1, &up);
    if (!good) fail("up(" + std::to_string(a) + ", " + std::to_string(b) + ") is no number");
    return good ? up / b * b : 0;
  }

  /// 'pattern'.
  std::string_view quoted() {
    expect("'");
    const std::size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) fail_at("expected a text and its closing quote");
    if (fault_) return {};
    const std::string_view pattern = text_.substr(at_, end - at_);
    at_ = end + 1;
    return pattern;
  }

  std::int64_t ask(std::string_view function) {
    const std::string_view pattern = quoted();
    if (!fault_ && scope_.model == nullptr) {
      fail(std::string(function) + "() asks for a model's tensors, where none is known yet");
    }
    if (fault_) return 0;
    std::int64_t value = 0;
    if (function == "count") {
      value = counted(pattern);
    } else {
      const auto name = expand(pattern, scope_);
      if (!name) fail(name.error().text);
      if (fault_) return 0;
      const auto index = scope_.model->find(*name);
      value = index ? 1 : 0;
      if (function == "dim") value = extent(*name, index);
    }
    expect(")");
    return value;
  }

  std::int64_t counted(std::string_view pattern) {
    const std::size_t hole = pattern.find("{}");
    if (hole == std::string_view::npos) fail("count() needs a text with {} in it");
    if (fault_) return 0;
    const auto before = expand(pattern.substr(0, hole), scope_);
    const auto after = expand(pattern.substr(hole + 2), scope_);
    if (!before || !after) fail((before ? after : before).error().text);
    for (std::int64_t i = 0; !fault_ && i < count_max; ++i) {
      if (!scope_.model->find(*before + std::to_string(i) + *after)) return i;
    }
    return count_max;
  }

  std::int64_t extent(const std::string& name, std::optional<std::uint32_t> index) {
    expect(",");
    const std::int64_t dim = comparison();
    if (!fault_ && !index) fail("dim(): the model has no tensor " + name);
    if (fault_) return 0;
    const Dims& shape = scope_.model->model().tensors[*index].shape;
    if (dim < 0 || dim >= shape.rank()) {
      fail("dim(): " + name + " is " + text_of(shape) + " and has no dimension " +
           std::to_string(dim));
      return 0;
    }
    return shape[static_cast<int>(dim)];
  }

  std::string_view text_;
  Scope& scope_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::optional<std::string> fault_;
};

}  // namespace

Result<std::int64_t> evaluate(std::string_view text, Scope& scope) {
  return Evaluation(text, scope).all();
}

Result<std::string> expand(std::string_view pattern, Scope& scope) {
  std::string text;
  while (true) {
    const std::size_t open = pattern.find_first_of("{}");
    text.append(pattern.substr(0, open));
    if (open == std::string_view::npos) return text;
    const std::size_t close = pattern.find('}', open);
    if (pattern[open] == '}' || close == std::string_view::npos) {
      return failure(ErrorCode::invalid,
                     "\"" + std::string(pattern) + "\" has a brace without its other one");
    }
    const auto value = evaluate(pattern.substr(open + 1, close - open - 1), scope);
    if (!value) return failure(value);
    text += std::to_string(*value);
    pattern.remove_prefix(close + 1);
  }
}

bool is_value_name(std::string_view text) noexcept {
  if (text.empty() || !is_letter(text.front()) || text.size() > 64) return false;
  if (!std::ranges::all_of(text, [](char c) { return is_letter(c) || is_digit(c); })) return false;
  return std::ranges::find(functions, text) == functions.end();
}

}  // namespace weir
