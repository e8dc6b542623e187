#pragma once
// A model on the command line: a folder, a file, or the name of a public model.

#include <cstdint>
#include <string>

#include "adapters/model/model.hpp"
#include "runtime/result.hpp"

namespace weir::cli {

/// The tensors of the checkpoint or of the rank files there; those that a `config.json` implies
/// where it is a folder without weights; otherwise a model known by name. Errors: `not_found` for
/// none of these (names the known models), and those of the files.
Result<Model> model_argument(const std::string& text);

/// Bytes of all canonical tensors.
std::uint64_t bytes_of(const Model& model) noexcept;

}  // namespace weir::cli
