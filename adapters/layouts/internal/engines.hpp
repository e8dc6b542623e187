#pragma once
// What an engine is to this directory: a name, options, a size and a rule. One table lists all.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/layouts/internal/tensor_index.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// No option, and no number of ranks or replicas, is larger. The largest training runs have about
/// this many processes; and products of two options stay far from overflowing.
inline constexpr std::int64_t option_max = 65536;

/// An option that is a whole number from `least` to `option_max`.
struct EngineOption {
  std::string_view name;
  std::int64_t fallback = 1;  ///< Its value where a spec leaves it out.
  std::int64_t least = 1;
  /// Where it is not empty: the option before this one whose value it then has instead.
  std::string_view like = {};
};

/// An option that is one of some words. The first is the one that a spec may leave out.
struct EngineChoice {
  std::string_view name;
  std::span<const std::string_view> words;
};

struct Description;

/// One engine. Its functions are given specs in which every option of the engine has a value
/// (`settled`), and they are pure.
struct Engine {
  std::string_view name;
  std::span<const EngineOption> options;  ///< Besides dtype and quant, which every layout has.
  std::span<const EngineChoice> choices = {};
  bool takes_layers = false;    ///< Whether `layers=` is an option too.
  bool takes_physical = false;  ///< Whether `physical=` is an option too.
  /// The model families whose names and shapes the engine's rule knows; empty: any model at all.
  std::span<const std::string_view> families;
  Result<LayoutSize> (*size)(const LayoutSpec& spec);
  /// `rank` is in range, and the model is of a known family and complete, with nothing besides.
  Result<RankLayout> (*lay_out)(const TensorIndex& index, const LayoutSpec& spec,
                                std::uint32_t rank);
  /// Where it is not null, a user described the engine in a file, and there are no functions.
  const Description* description = nullptr;
};

/// Whichever way an engine says it: its function, or its description.
Result<LayoutSize> size_in(const Engine& engine, const LayoutSpec& spec);
Result<RankLayout> rank_in(const Engine& engine, const TensorIndex& index, const LayoutSpec& spec,
                           std::uint32_t rank);

extern const Engine hf_engine;
extern const Engine fsdp2_engine;
extern const Engine megatron_engine;
extern const Engine vllm_engine;
extern const Engine sglang_engine;

/// Every engine that there is.
std::span<const Engine* const> engines() noexcept;

/// The engine of that name; a name that ends in ".toml" is a file's that describes one, and is
/// read. Errors (`invalid`): unknown layout (names the known ones), a file that describes none.
Result<std::shared_ptr<const Engine>> engine_named(std::string_view name);

/// Error (`invalid`): the layout has no option of that name (names those that it has).
Result<void> check_option_name(const Engine& engine, std::string_view name);

/// What a text says of a value that is out of bounds, after a colon: "use …".
std::string number_advice(std::int64_t least = 1);
std::string layers_advice();
std::string physical_advice();
std::string dtype_advice();
std::string quant_advice();

/// The choice of that name; null where the engine has none.
const EngineChoice* choice_named(const Engine& engine, std::string_view name) noexcept;
/// The option of that name; null where the engine has none.
const EngineOption* option_named(const Engine& engine, std::string_view name) noexcept;

/// The spec with every option of its engine given a value. Errors (`invalid`): an option that the
/// engine does not have, or whose value is out of bounds.
Result<LayoutSpec> settled(const Engine& engine, const LayoutSpec& spec);

/// The value of an option of a settled spec.
std::int64_t option(const LayoutSpec& spec, const std::string& name);
/// Whether a choice of a settled spec is that word.
bool chosen(const LayoutSpec& spec, const std::string& name, std::string_view word);

/// Error (`invalid`): more than `option_max` ranks.
Result<LayoutSize> layout_size(const LayoutSpec& spec, std::int64_t ranks, std::int64_t replicas);

/// "a", "a or b", "a, b or c".
std::string alternatives(const std::vector<std::string>& words);

}  // namespace weir
