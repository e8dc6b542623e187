// Loads a model from a folder or file and prints, as one JSON object, what it is understood to be.
// With a third argument, makes the named model's seeded checkpoint there first. Driven by
// safetensors_interop_test.py and transformers_interop.py.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "adapters/model/checkpoint_model.hpp"
#include "adapters/model/known_models.hpp"
#include "adapters/model/seeded_checkpoint.hpp"

namespace weir {
namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.text.c_str());
  return 2;
}

nlohmann::json json_of(const Model& model) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const Tensor& tensor : model.tensors) {
    const auto extents = tensor.shape.values();
    tensors.push_back({{"name", tensor.name},
                       {"type", name_of(tensor.type)},
                       {"shape", std::vector<std::int64_t>(extents.begin(), extents.end())},
                       {"parameter", tensor.kind == TensorKind::parameter}});
  }
  nlohmann::json aliases = nlohmann::json::object();
  for (const Alias& alias : model.aliases) aliases[alias.name] = alias.of;
  return {{"family", model.config.family},
          {"type", name_of(model.config.type)},
          {"tensors", std::move(tensors)},
          {"aliases", std::move(aliases)}};
}

int run(const char* path, const char* make) {
  if (make != nullptr) {
    const Result<ModelConfig> config = named_config(make);
    if (!config) return fail(config.error());
    Workers workers(1);
    const Result<void> made = write_seeded_checkpoint(path, *config, 1, {}, workers);
    if (!made) return fail(made.error());
  }
  const Result<Model> model = load_model(path);
  if (!model) return fail(model.error());
  std::printf("%s\n", json_of(*model).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace weir

int main(int count, char** arguments) {
  if (count != 2 && count != 3) {
    std::fprintf(stderr, "usage: model_echo PATH [NAME]\n");
    return 2;
  }
  return weir::run(arguments[1], count == 3 ? arguments[2] : nullptr);
}
