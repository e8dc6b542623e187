#include "adapters/layouts/internal/expression.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: expressions of description files mean what arithmetic says, and nothing that is wrong in
// one goes unsaid. Method: values worked by hand, and every kind of fault.

namespace weir {

namespace {

std::int64_t value(const std::string& text) {
  const Model model = model_with(llama_config(4, 2));
  const TensorIndex index(model);
  Scope scope{.values = {{"a", 7}, {"two", 2}}, .model = &index};
  const auto result = evaluate(text, scope);
  INFO((result ? "" : result.error().text));
  REQUIRE(result.has_value());
  return *result;
}

std::string fault(const std::string& text, bool with_model = true) {
  const Model model = model_with(llama_config(4, 2));
  const TensorIndex index(model);
  Scope scope{.values = {{"a", 7}, {"two", 2}}, .model = with_model ? &index : nullptr};
  const auto result = evaluate(text, scope);
  REQUIRE_FALSE(result.has_value());
  REQUIRE(result.error().code == ErrorCode::invalid);
  return result.error().text;
}

}  // namespace

TEST_CASE("expressions are arithmetic of whole numbers", "[layouts]") {
  REQUIRE(value("1 + 2 * 3 - 4") == 3);
  REQUIRE(value("(1 + 2) * 3") == 9);
  REQUIRE(value("a / two * two + a % two") == 7);
  REQUIRE(value("-a + 8") == 1);
  REQUIRE(value("2 - -3") == 5);
  REQUIRE(value("a >= 7") == 1);
  REQUIRE(value("(a < 7) + (a != two) * 10") == 10);
  REQUIRE(value("min(a, two) + max(a, two) + up(a, two)") == 17);
  REQUIRE(value("up(0, 64)") == 0);
}

TEST_CASE("expressions ask what a model has", "[layouts]") {
  REQUIRE(value("dim('lm_head.weight', 0)") == 64);
  REQUIRE(value("dim('model.layers.{two - 2}.self_attn.q_proj.weight', 0)") == 4);
  REQUIRE(value("has('lm_head.weight') + has('lm_head.bias')") == 1);
  REQUIRE(value("count('model.layers.{}.input_layernorm.weight')") == 1);
  REQUIRE(value("count('nothing.{}')") == 0);
}

TEST_CASE("what is wrong with an expression is said", "[layouts]") {
  REQUIRE(fault("1 +") == "expected a number, a name or a parenthesis at the end of \"1 +\"");
  REQUIRE(fault("1 2") == "expected an operator at '2' of \"1 2\"");
  REQUIRE(fault("(1") == "expected ) at the end of \"(1\"");
  REQUIRE(fault("b + 1") == "\"b\" means nothing here; known are a, two");
  REQUIRE(fault("1 / 0") ==
          "\"1 / 0\" divides 1 by 0, where only what is not negative is divided, by at least 1");
  REQUIRE(fault("-1 % 2") ==
          "\"-1 % 2\" divides -1 by 2, where only what is not negative is divided, by at least 1");
  REQUIRE(fault("9223372036854775807 + 1") == "\"9223372036854775807 + 1\" does not fit 64 bits");
  REQUIRE(fault("9223372036854775808").starts_with("expected a number of 64 bits"));
  REQUIRE(fault("9223372036854775807 * a").ends_with("does not fit 64 bits"));
  REQUIRE(fault(std::string(40, '(') + "1" + std::string(40, ')')).ends_with("nested too deep"));
  REQUIRE(fault("dim('nothing', 0)") == "dim(): the model has no tensor nothing");
  REQUIRE(fault("dim('lm_head.weight', 2)") ==
          "dim(): lm_head.weight is 64x2 and has no dimension 2");
  REQUIRE(fault("has('{a')") == "\"{a\" has a brace without its other one");
  REQUIRE(fault("has('a") == "expected a text and its closing quote at 'a' of \"has('a\"");
  REQUIRE(fault("count('a')") == "count() needs a text with {} in it");
  REQUIRE(fault("has('a')", false) == "has() asks for a model's tensors, where none is known yet");
}

TEST_CASE("there is an end to what is evaluated", "[layouts]") {
  Scope scope{.values = {}, .budget = 50};
  REQUIRE(evaluate("1 + 1", scope).has_value());
  REQUIRE(evaluate("1 + 1", scope).has_value());
  REQUIRE(evaluate("1", scope).error().text == "the description has too much to evaluate");
}

}  // namespace weir
