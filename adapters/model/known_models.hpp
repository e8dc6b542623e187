#pragma once
// Models that can be planned for by name, without a file: their shapes are public.

#include <string>
#include <string_view>
#include <vector>

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir {

/// "llama-3-70b", "qwen3-0.6b", …, sorted.
std::vector<std::string> known_model_names();

/// Sizes as in the model's published `config.json`. Errors: `not_found` with the known names.
Result<ModelConfig> named_config(std::string_view name);

/// `model_of` that. Errors: `not_found` with the known names.
Result<Model> named_model(std::string_view name);

}  // namespace weir
