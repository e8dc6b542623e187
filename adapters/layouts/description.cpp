#include "adapters/layouts/internal/description.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>

// Some texts that are no TOML break what the library (3.3.0) takes for granted: a fault of the
// text.
namespace weir {
[[noreturn]] static void malformed_toml() {
  throw std::logic_error("a key is malformed");
}
}  // namespace weir
#define TOML_ASSERT(expression) ((expression) ? void() : ::weir::malformed_toml())
#include <toml++/toml.h>

#include "adapters/files/file_system.hpp"
#include "adapters/layouts/internal/expression.hpp"

namespace weir {
namespace {

constexpr std::size_t text_bytes_max = 1024;
/// `rows` may lie this deep in `rows`.
constexpr int turns_depth_max = 4;

std::uint32_t line_of(const toml::node& node) {
  return node.source().begin.line;
}

/// Reads a description value by value. The first fault is kept, so that a whole file can be read
/// without looking up.
class Reader {
 public:
  explicit Reader(const std::string& path) { description_.path = path; }

  Result<Description> all(const toml::table& file) {
    known(file, {"families", "options", "ranks", "let", "require", "tensor"});
    families(file);
    options(file);
    description_.ranks = required(file, "ranks", "an expression: how many ranks hold the model");
    description_.values = values(file);
    requirements(file);
    const toml::array* tensors = array(file, "tensor", "[[tensor]] tables");
    if (tensors == nullptr) fail(0, "has no [[tensor]]: give one for each tensor of a rank");
    for (std::size_t i = 0; tensors != nullptr && i < tensors->size(); ++i) {
      const toml::table* one = tensors->get(i)->as_table();
      if (one == nullptr) fail(line_of(*tensors->get(i)), "tensor should be [[tensor]] tables");
      if (one != nullptr) tensor(*one);
    }
    if (fault_) return failure(ErrorCode::invalid, *fault_);
    return std::move(description_);
  }

 private:
  void fail(std::uint32_t line, const std::string& text) {
    if (fault_) return;
    fault_ = description_.path + (line > 0 ? ", line " + std::to_string(line) + ": " : " ") + text;
  }

  void known(const toml::table& table, std::initializer_list<std::string_view> keys) {
    for (const auto& [key, node] : table) {
      if (std::ranges::find(keys, key.str()) != keys.end()) continue;
      std::vector<std::string> names(keys.begin(), keys.end());
      fail(line_of(node), "unknown key '" + std::string(key.str()).substr(0, 64) + "': use " +
                              alternatives(names));
    }
  }

  /// An expression or a pattern; a number is one, too.
  DescribedText text(const toml::node& node, const std::string& key) {
    DescribedText found{.text = {}, .line = line_of(node)};
    if (const auto* number = node.as_integer()) {
      found.text = std::to_string(number->get());
    } else if (const auto* string = node.as_string()) {
      found.text = string->get();
    }
    const bool plain = std::ranges::all_of(found.text, [](char c) { return c >= ' ' && c <= '~'; });
    if (found.text.empty() || found.text.size() > text_bytes_max || !plain) {
      fail(found.line, key + " should be a number, or a text of 1 to " +
                           std::to_string(text_bytes_max) + " plain characters");
    }
    return found;
  }

  DescribedText optional(const toml::table& table, const char* key) {
    const toml::node* node = table.get(key);
    return node == nullptr ? DescribedText{} : text(*node, key);
  }
  DescribedText required(const toml::table& table, const char* key, const char* what) {
    const toml::node* node = table.get(key);
    if (node != nullptr) return text(*node, key);
    fail(line_of(table), std::string("lacks ") + key + ": give " + what);
    return {};
  }

  const toml::array* array(const toml::table& table, const char* key, const char* what) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return nullptr;
    if (!node->is_array()) fail(line_of(*node), std::string(key) + " should be " + what);
    return node->as_array();
  }

  void families(const toml::table& file) {
    const toml::array* list = array(file, "families", "a list of model_types");
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      description_.families.push_back(text(*list->get(i), "families").text);
    }
  }

  void name(const std::string& name, std::uint32_t line) {
    if (is_value_name(name) && name != "rank" && name != "dtype") return;
    fail(line, "'" + name.substr(0, 64) +
                   "' can't be a name: use lower-case letters, digits and '_', and neither rank, "
                   "dtype nor the name of a function");
  }

  /// The entries of a table in the order in which they stand in the file.
  std::vector<std::pair<std::string, const toml::node*>> in_order(const toml::table& table,
                                                                  const char* key) {
    std::vector<std::pair<std::string, const toml::node*>> entries;
    const toml::node* node = table.get(key);
    if (node == nullptr) return entries;
    const toml::table* values = node->as_table();
    if (values == nullptr) fail(line_of(*node), std::string(key) + " should be a table");
    if (values == nullptr) return entries;
    for (const auto& [name, value] : *values) entries.emplace_back(name.str(), &value);
    std::ranges::stable_sort(entries, [](const auto& a, const auto& b) {
      const toml::source_position& first = a.second->source().begin;
      const toml::source_position& second = b.second->source().begin;
      return std::pair(first.line, first.column) < std::pair(second.line, second.column);
    });
    for (const auto& [entry, value] : entries) name(entry, line_of(*value));
    return entries;
  }

  void options(const toml::table& file) {
    for (const auto& [key, node] : in_order(file, "options")) {
      const auto* number = node->as_integer();
      const bool good = number != nullptr && number->get() >= 1 && number->get() <= option_max;
      if (!good) fail(line_of(*node), key + ": " + number_advice());
      if (good) description_.options.emplace_back(key, number->get());
    }
  }

  DescribedValues values(const toml::table& table) {
    DescribedValues found;
    for (const auto& [key, node] : in_order(table, "let"))
      found.emplace_back(key, text(*node, key));
    return found;
  }

  void requirements(const toml::table& file) {
    const char* const what = "a list of [condition, what to say otherwise]";
    const toml::array* list = array(file, "require", what);
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const toml::array* pair = list->get(i)->as_array();
      if (pair == nullptr || pair->size() != 2) {
        fail(line_of(*list->get(i)), std::string("require should be ") + what);
        return;
      }
      description_.requirements.push_back({.condition = text(*pair->get(0), "require"),
                                           .otherwise = text(*pair->get(1), "require").text});
    }
  }

  /// ["layer", "count"], ["layer", "first", "count"], or a list of such lists.
  std::vector<DescribedLoop> loops(const toml::table& table) {
    const char* const what = "[name, count], [name, first, count] or a list of such lists";
    std::vector<DescribedLoop> found;
    const toml::array* list = array(table, "for", what);
    if (list == nullptr) return found;
    const bool several = !list->empty() && list->get(0)->is_array();
    for (std::size_t i = 0; i < (several ? list->size() : 1); ++i) {
      const toml::array* loop = several ? list->get(i)->as_array() : list;
      if (loop == nullptr || loop->size() < 2 || loop->size() > 3) {
        fail(line_of(*list), std::string("for should be ") + what);
        return found;
      }
      DescribedLoop one{.name = text(*loop->get(0), "for").text,
                        .first = {.text = "0", .line = line_of(*loop)},
                        .count = text(*loop->get(loop->size() - 1), "for")};
      if (loop->size() == 3) one.first = text(*loop->get(1), "for");
      name(one.name, line_of(*loop));
      found.push_back(std::move(one));
    }
    return found;
  }

  /// One run, or a list of them.
  std::vector<DescribedRun> runs(const toml::node& node, const char* cut, int depth) {
    std::vector<DescribedRun> found;
    const toml::array* list = node.as_array();
    if (list == nullptr) found.push_back(run(node, cut, depth));
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      found.push_back(run(*list->get(i), cut, depth));
    }
    return found;
  }

  DescribedRun run(const toml::node& node, const char* cut, int depth) {
    if (depth > turns_depth_max) {
      fail(line_of(node),
           "rows lie in rows more than " + std::to_string(turns_depth_max) + " deep");
      return {};
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      fail(line_of(node), std::string(cut) + " should be {of, first, count}, or a list of these");
      return {};
    }
    if (const toml::node* turns = table->get("rows")) {
      known(*table, {"rows", "for", "let", "if"});
      DescribedRun group{
          .loops = loops(*table), .values = values(*table), .condition = optional(*table, "if")};
      group.turns = runs(*turns, cut, depth + 1);
      return group;
    }
    known(*table, {"of", "first", "count", "for", "let", "if"});
    return {.of = required(*table, "of", "the canonical tensor"),
            .first = table->contains("first") ? optional(*table, "first")
                                              : DescribedText{.text = "0", .line = line_of(node)},
            .count = required(*table, "count", "an expression: how many rows or columns"),
            .loops = loops(*table),
            .values = values(*table),
            .condition = optional(*table, "if")};
  }

  void tensor(const toml::table& table) {
    known(table, {"name", "for", "let", "if", "whole", "rows", "padded_rows", "columns", "parts"});
    DescribedTensor one{.name = required(table, "name", "what the engine calls it"),
                        .loops = loops(table),
                        .values = values(table),
                        .condition = optional(table, "if"),
                        .cut = DescribedCut::whole,
                        .runs = {},
                        .parts = optional(table, "parts")};
    int cuts = 0;
    if (const toml::node* whole = table.get("whole")) {
      one.runs.push_back({.of = text(*whole, "whole")});
      ++cuts;
    }
    const auto add = [&](const char* key, DescribedCut cut) {
      const toml::node* node = table.get(key);
      if (node == nullptr) return;
      ++cuts;
      one.cut = cut;
      one.runs = runs(*node, key, 0);
    };
    add("rows", DescribedCut::rows);
    const toml::node* columns = table.get("columns");
    const bool stacked = columns != nullptr && columns->is_array();
    add("columns", stacked ? DescribedCut::stacked_columns : DescribedCut::columns);
    add("padded_rows", DescribedCut::padded_rows);
    if (cuts != 1) {
      fail(line_of(table), "a tensor has one of whole, rows, padded_rows and columns");
    }
    if (one.cut == DescribedCut::padded_rows && one.runs.size() != 1) {
      fail(line_of(table), "padded_rows should be one {of, first, count}");
    }
    if (!one.parts.text.empty() && one.cut != DescribedCut::rows) {
      fail(one.parts.line, "parts goes with rows: leave it out");
    }
    description_.tensors.push_back(std::move(one));
  }

  Description description_;
  std::optional<std::string> fault_;
};

/// An engine with what its views are of.
struct DescribedEngine {
  Description description;
  std::vector<EngineOption> options;
  std::vector<std::string_view> families;
  Engine engine;
};

}  // namespace

Result<Description> parse_description(std::string_view text, const std::string& path) {
  try {
    const toml::table file = toml::parse(text);
    return Reader(path).all(file);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::ranges::replace_if(
        what, [](char c) { return c < ' ' || c > '~'; }, '?');
    return failure(
        ErrorCode::invalid,
        path + ", line " + std::to_string(error.source().begin.line) + ": is no TOML: " + what);
  } catch (const std::logic_error&) {
    return failure(ErrorCode::invalid, path + ": is no TOML: a key is malformed");
  }
}

Result<std::shared_ptr<const Engine>> described_engine(const std::string& path) {
  const auto text = read_text_file(path, description_bytes_max);
  if (!text) return failure(text);
  auto description = parse_description(*text, path);
  if (!description) return failure(description);
  const auto own = std::make_shared<DescribedEngine>();
  own->description = *std::move(description);
  for (const auto& [name, value] : own->description.options) {
    own->options.push_back({.name = name, .fallback = value});
  }
  own->families.assign(own->description.families.begin(), own->description.families.end());
  own->engine = {.name = own->description.path,
                 .options = own->options,
                 .families = own->families,
                 .size = nullptr,
                 .lay_out = nullptr,
                 .description = &own->description};
  return std::shared_ptr<const Engine>(own, &own->engine);
}

}  // namespace weir
