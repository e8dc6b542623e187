// A rank of an engine that a user described: what the file says, evaluated for it.

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "adapters/layouts/internal/description.hpp"
#include "adapters/layouts/internal/expression.hpp"
#include "adapters/layouts/internal/rank_builder.hpp"

namespace weir {
namespace {

/// Local tensors and runs of one rank: more than ten times those of the largest models.
constexpr std::int64_t parts_max = std::int64_t{1} << 22;
/// Elements of one rank, so that their bytes fit 63 bits.
constexpr std::int64_t elements_max = std::int64_t{1} << 59;
/// Rows of zeros behind a tensor.
constexpr std::int64_t padding_max = std::int64_t{1} << 24;

Error at(const Description& description, std::uint32_t line, const std::string& text) {
  return {ErrorCode::invalid, description.path + ", line " + std::to_string(line) + ": " + text};
}

/// The numbers of config.json under their own names; those of experts only where there are any.
void add_config(const ModelConfig& config, Scope& scope) {
  if (config.family.empty()) return;
  const auto flag = [](bool set) { return std::int64_t{set ? 1 : 0}; };
  scope.values.insert({{"hidden_size", config.hidden_size},
                       {"num_hidden_layers", config.num_hidden_layers},
                       {"num_attention_heads", config.num_attention_heads},
                       {"num_key_value_heads", config.num_key_value_heads},
                       {"head_dim", config.head_dim},
                       {"intermediate_size", config.intermediate_size},
                       {"vocab_size", config.vocab_size},
                       {"tie_word_embeddings", flag(config.tie_word_embeddings)},
                       {"num_nextn_predict_layers", config.mtp_layers}});
  if (config.experts.count == 0) return;
  scope.values.insert({{"num_experts", config.experts.count},
                       {"moe_intermediate_size", config.experts.intermediate_size},
                       {"shared_expert_intermediate_size", config.experts.shared_intermediate_size},
                       {"first_k_dense_replace", config.experts.first_layer}});
}

class DescribedRank {
 public:
  DescribedRank(const Description& description, const TensorIndex& index, const LayoutSpec& spec)
      : description_(description), index_(index), builder_(index, spec.dtype) {
    scope_.model = &index;
    add_config(index.model().config, scope_);
    for (const auto& [name, value] : spec.options) scope_.values[name] = value;
  }

  Result<RankLayout> lay_out(std::int64_t rank) {
    scope_.values["rank"] = rank;
    bind(description_.values);
    for (const DescribedRequirement& requirement : description_.requirements) {
      if (holds(requirement.condition)) continue;
      fail(requirement.condition.line, requirement.otherwise);
    }
    for (const DescribedTensor& tensor : description_.tensors) {
      for_each(tensor.loops, tensor.values, tensor.condition, [&] { add(tensor); });
    }
    if (error_) return tl::unexpected<Error>(*std::move(error_));
    return std::move(builder_).finish();
  }

 private:
  void fail(std::uint32_t line, const std::string& text) {
    if (!error_) error_ = at(description_, line, text);
  }

  std::int64_t number(const DescribedText& text) {
    if (error_) return 0;
    const auto value = evaluate(text.text, scope_);
    if (!value) fail(text.line, value.error().text);
    return value.value_or(0);
  }
  std::string name(const DescribedText& text) {
    if (error_) return {};
    auto expanded = expand(text.text, scope_);
    if (!expanded) fail(text.line, expanded.error().text);
    return expanded.value_or("");
  }
  bool holds(const DescribedText& condition) {
    return condition.text.empty() ? !error_ : number(condition) != 0 && !error_;
  }
  void bind(const DescribedValues& values) {
    for (const auto& [name, text] : values) scope_.values[name] = number(text);
  }
  void count_part(std::uint32_t line) {
    if (++parts_ > parts_max) fail(line, "a rank has more than 2^22 tensors and runs together");
  }

  /// `body` for all turns of the loops, the last of which is the innermost. What they and `values`
  /// name means again afterwards what it meant before.
  template <class Body>
  void for_each(const std::vector<DescribedLoop>& loops, const DescribedValues& values,
                const DescribedText& condition, const Body& body) {
    const auto outer = scope_.values;
    turn(loops, 0, [&] {
      bind(values);
      if (holds(condition)) body();
    });
    scope_.values = outer;
  }
  template <class Body>
  void turn(const std::vector<DescribedLoop>& loops, std::size_t depth, const Body& body) {
    if (depth == loops.size()) return body();
    const DescribedLoop& loop = loops[depth];
    const std::int64_t first = number(loop.first);
    const std::int64_t count = number(loop.count);
    if (first < 0 || first > option_max || count < 0 || count > option_max) {
      fail(loop.count.line, loop.name + " would count from " + std::to_string(first) + " " +
                                std::to_string(count) + " on: use numbers from 0 to " +
                                std::to_string(option_max));
    }
    for (std::int64_t i = first; i < first + count && !error_; ++i) {
      scope_.values[loop.name] = i;
      turn(loops, depth + 1, body);
    }
  }

  /// The canonical tensor of that name; null, and an error, where there is none.
  const Tensor* canonical(const std::string& name, std::uint32_t line) {
    const auto found = error_ ? std::nullopt : index_.find(name);
    if (!error_ && !found) fail(line, "the model has no tensor " + name);
    return found ? &index_.model().tensors[*found] : nullptr;
  }

  struct Run {
    std::string of;
    const Tensor* tensor = nullptr;
    IndexRange range = {};
    std::uint32_t line = 0;
  };

  /// All runs of the tensor, each within its canonical tensor's dimension `dim`, which may count as
  /// lengthened.
  std::vector<Run> runs_of(const DescribedTensor& tensor, int dim, std::int64_t lengthened) {
    std::vector<Run> runs;
    collect(tensor.runs, dim, lengthened, runs);
    if (runs.empty()) fail(tensor.name.line, "the tensor is made of nothing: give it an if");
    return runs;
  }

  void collect(const std::vector<DescribedRun>& described, int dim, std::int64_t lengthened,
               std::vector<Run>& runs) {
    for (const DescribedRun& one : described) {
      for_each(one.loops, one.values, one.condition, [&] {
        if (!one.turns.empty()) return collect(one.turns, dim, lengthened, runs);
        runs.push_back(run_of(one, dim, lengthened));
      });
    }
  }

  Run run_of(const DescribedRun& described, int dim, std::int64_t lengthened) {
    count_part(described.of.line);
    Run run{.of = name(described.of), .line = described.of.line};
    run.range = {.first = number(described.first), .count = number(described.count)};
    run.tensor = canonical(run.of, run.line);
    if (error_) return run;
    const Dims& shape = run.tensor->shape;
    const std::int64_t extent = shape.rank() > dim ? shape[dim] + lengthened : 0;
    const auto [first, count] = run.range;
    if (first < 0 || count < 0 || count > extent || first > extent - count) {
      fail(run.line, run.of + " is " + text_of(shape) + ", where there is no [" +
                         std::to_string(first) + ", " + std::to_string(first) + " + " +
                         std::to_string(count) + ") of dimension " + std::to_string(dim));
    } else if (shape.rank() > dim && shape[dim] > 0) {
      count_elements(element_count(shape) / shape[dim], count, run.line);
    }
    return run;
  }

  void count_elements(std::int64_t each, std::int64_t count, std::uint32_t line) {
    std::int64_t more = 0;
    const bool fits = !__builtin_mul_overflow(each, count, &more) && more <= elements_max &&
                      (elements_ += more) <= elements_max;
    if (!fits) fail(line, "a rank has more than 2^59 elements");
  }

  void add(const DescribedTensor& tensor) {
    count_part(tensor.name.line);
    std::string local = name(tensor.name);
    if (!error_ && !names_.insert(local).second) {
      fail(tensor.name.line, "a rank has two tensors " + local);
    }
    switch (tensor.cut) {
      case DescribedCut::whole: {
        const DescribedText& of = tensor.runs.front().of;
        const std::string there = name(of);
        const Tensor* whole = canonical(there, of.line);
        if (whole != nullptr) count_elements(element_count(whole->shape), 1, of.line);
        if (!error_) builder_.whole(std::move(local), there);
        return;
      }
      case DescribedCut::rows:
        return add_rows(tensor, std::move(local));
      case DescribedCut::padded_rows: {
        const std::vector<Run> runs = runs_of(tensor, 0, padding_max);
        if (runs.size() > 1)
          fail(runs.front().line, "padded_rows is of one tensor: take its for away");
        if (!error_) builder_.padded_rows(std::move(local), runs.front().of, runs.front().range);
        return;
      }
      case DescribedCut::columns:
      case DescribedCut::stacked_columns:
        return add_columns(tensor, std::move(local));
    }
  }

  void add_rows(const DescribedTensor& tensor, std::string local) {
    const std::vector<Run> runs = runs_of(tensor, 0, 0);
    std::vector<RowRun> rows;
    std::int64_t total = 0;
    for (const Run& run : runs) {
      if (error_) return;
      const auto width = [](const Tensor& one) { return one.shape.values().subspan(1); };
      const Tensor& first = *runs.front().tensor;
      if (!std::ranges::equal(width(first), width(*run.tensor))) {
        return fail(run.line, run.of + " is " + text_of(run.tensor->shape) + " and " +
                                  runs.front().of + " " + text_of(first.shape) +
                                  ": rows of one tensor are equally wide");
      }
      rows.push_back({.tensor = index_.of(run.of), .rows = run.range});
      total += run.range.count;
    }
    if (tensor.parts.text.empty()) {
      if (!error_) builder_.stack(std::move(local), rows);
      return;
    }
    const std::int64_t parts = number(tensor.parts);
    if (parts < 1 || total % parts != 0) {
      fail(tensor.parts.line,
           std::to_string(total) + " rows are not " + std::to_string(parts) + " equal parts");
    }
    if (!error_) builder_.stack_parts(std::move(local), parts, rows);
  }

  void add_columns(const DescribedTensor& tensor, std::string local) {
    const std::vector<Run> runs = runs_of(tensor, 1, 0);
    std::vector<ColumnRun> columns;
    for (const Run& run : runs) {
      if (error_) return;
      const Dims& first = runs.front().tensor->shape;
      const Dims& shape = run.tensor->shape;
      if (shape.rank() != 2 || shape[0] != first[0] || shape[0] == 0 || run.range.count < 1 ||
          run.range.count != runs.front().range.count) {
        return fail(run.line, std::to_string(run.range.count) + " columns of " + run.of + ", " +
                                  text_of(shape) +
                                  ": columns are of matrices, at least one and equally many, and "
                                  "of equally many rows");
      }
      columns.push_back({.tensor = index_.of(run.of), .columns = run.range});
    }
    if (tensor.cut == DescribedCut::columns && runs.size() > 1) {
      fail(runs.front().line, "columns of several tensors are a list: put it in [ ]");
    }
    if (error_) return;
    if (tensor.cut == DescribedCut::columns) {
      builder_.columns(std::move(local), columns.front().tensor, columns.front().columns);
    } else {
      builder_.stack_columns(std::move(local), columns);
    }
  }

  const Description& description_;
  const TensorIndex& index_;
  Scope scope_;
  RankBuilder builder_;
  std::set<std::string> names_;
  std::int64_t parts_ = 0;
  std::int64_t elements_ = 0;
  std::optional<Error> error_;  ///< The first.
};

}  // namespace

Result<LayoutSize> described_size(const Description& description, const LayoutSpec& spec) {
  Scope scope;
  for (const auto& [name, value] : spec.options) scope.values[name] = value;
  const auto ranks = evaluate(description.ranks.text, scope);
  if (!ranks) {
    return tl::unexpected<Error>(at(description, description.ranks.line, ranks.error().text));
  }
  if (*ranks >= 1) return layout_size(spec, *ranks, 1);
  return tl::unexpected<Error>(at(description, description.ranks.line,
                                  "ranks is " + std::to_string(*ranks) + ": make it 1 or more"));
}

Result<RankLayout> described_rank(const Description& description, const TensorIndex& index,
                                  const LayoutSpec& spec, std::uint32_t rank) {
  return DescribedRank(description, index, spec).lay_out(rank);
}

}  // namespace weir
