#include "adapters/cli/model_argument.hpp"

#include <filesystem>
#include <optional>
#include <system_error>

#include "adapters/model/checkpoint_model.hpp"
#include "adapters/model/known_models.hpp"
#include "adapters/reshard/reshard_source.hpp"

namespace weir::cli {
namespace {

bool holds_weights(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") return true;
  }
  return false;
}

}  // namespace

Result<Model> model_argument(const std::string& text) {
  const std::filesystem::path path(text);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    auto named = named_model(text);
    if (named) return named;
    return failure(named.error().code,
                   "no file or folder '" + text + "', and " + named.error().text);
  }
  if (!std::filesystem::is_directory(path, error) || holds_weights(path)) {
    auto source = ReshardSource::open(path, std::nullopt);
    if (!source) return failure(source);
    return (*source)->facts().model;
  }
  // No weights: the shapes that the config implies will do.
  const auto config = read_model_config(path);
  if (!config) return failure(config);
  if (!*config) {
    return failure(ErrorCode::not_found,
                   text + " holds neither *.safetensors files nor a config.json");
  }
  auto model = model_of(**config);
  if (!model) return failure(model.error().code, text + ": " + model.error().text);
  return model;
}

std::uint64_t bytes_of(const Model& model) noexcept {
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : model.tensors) {
    bytes += static_cast<std::uint64_t>(element_count(tensor.shape)) * size_of(tensor.type);
  }
  return bytes;
}

}  // namespace weir::cli
