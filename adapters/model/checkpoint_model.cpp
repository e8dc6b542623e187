#include "adapters/model/checkpoint_model.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <system_error>

#include "adapters/files/file_system.hpp"
#include "adapters/files/strict_json.hpp"
#include "adapters/model/decoder_names.hpp"

namespace weir {
namespace {

constexpr const char* config_name = "config.json";
constexpr const char* way_out = " (without config.json it is taken as it is, for hf and fsdp2)";

bool is_floating(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
    case ElementType::f16:
    case ElementType::bf16:
    case ElementType::f8_e4m3:
    case ElementType::f8_e5m2:
      return true;
    default:
      return false;
  }
}

Tensor canonical(const FileTensor& tensor) {
  std::vector<std::int64_t> extents = tensor.shape;
  while (extents.size() > rank_max) {
    const std::int64_t last = extents.back();
    extents.pop_back();
    extents.back() *= last;
  }
  return {tensor.name, tensor.type, Dims(extents),
          is_floating(tensor.type) ? TensorKind::parameter : TensorKind::buffer};
}

/// What an older Transformers saved and every engine computes by itself.
bool is_computed(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq");
}

/// That a tied tensor in the file is what it is tied to.
Result<void> check_tied(const Checkpoint& checkpoint, const Checkpoint::Entry& entry,
                        const std::string& of) {
  const Checkpoint::Entry* original = checkpoint.find(of);
  if (original == nullptr) return {};  // Which is the fault that will be reported.
  const auto bytes = checkpoint.data(entry);
  if (original->tensor.type == entry.tensor.type && original->tensor.shape == entry.tensor.shape &&
      std::memcmp(checkpoint.data(*original).data(), bytes.data(), bytes.size()) == 0) {
    return {};
  }
  return failure(ErrorCode::invalid,
                 "tensor " + quoted_name(entry.tensor.name) + " differs from " + quoted_name(of) +
                     ", though config.json says tie_word_embeddings: set it to false");
}

/// Transformers saves the configuration of a model with layers of MTP but none of their tensors.
bool lacks_mtp(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string first = layer_name(config.num_hidden_layers);
  return std::ranges::none_of(checkpoint.entries(), [&](const Checkpoint::Entry& entry) {
    return entry.tensor.name.starts_with(first);
  });
}

/// The first of several faults, and how many there are.
class Faults {
 public:
  void add(const std::string& text) {
    if (count_++ == 0) first_ = text;
  }
  [[nodiscard]] Result<void> result() const {
    if (count_ == 0) return {};
    std::string text = "the checkpoint does not fit its config.json: " + first_;
    if (count_ > 1) text += ", and " + std::to_string(count_ - 1) + " more such faults";
    return failure(ErrorCode::invalid, text + way_out);
  }

 private:
  std::string first_;
  std::size_t count_ = 0;
};

/// Holds `held` against `expected`, and takes over from there their canonical shapes and which of
/// them are buffers.
Result<void> check_against(const Model& expected, std::vector<Tensor>& held) {
  Faults faults;
  std::map<std::string_view, Tensor*> by_name;
  for (Tensor& tensor : held) by_name.emplace(tensor.name, &tensor);
  for (const Tensor& wanted : expected.tensors) {
    const auto found = by_name.find(wanted.name);
    if (found == by_name.end()) {
      faults.add("tensor " + quoted_name(wanted.name) + " is missing");
      continue;
    }
    Tensor& tensor = *found->second;
    const Dims stored(stored_shape(expected.config, wanted));
    if (tensor.shape != stored) {
      faults.add("tensor " + quoted_name(wanted.name) + " is " + text_of(tensor.shape) +
                 " and should be " + text_of(stored));
    } else if (tensor.kind != TensorKind::parameter) {
      faults.add("tensor " + quoted_name(wanted.name) + " is " + std::string(name_of(tensor.type)) +
                 " and should be floating-point");
    }
    tensor.shape = wanted.shape;
    tensor.kind = wanted.kind;  // A file does not tell a buffer of floats from a parameter.
    by_name.erase(found);
  }
  for (const auto& [name, tensor] : by_name) {
    faults.add("tensor " + quoted_name(name) + " is unknown");
  }
  return faults.result();
}

/// Says of all codes that they are, and by which scales. Others of the model's tensors are values.
Result<void> add_encoding(Model& model, const Encoding& encoding) {
  Faults faults;
  std::map<std::string_view, const Tensor*> by_name;
  for (const Tensor& tensor : model.tensors) by_name.emplace(tensor.name, &tensor);
  for (Tensor& tensor : model.tensors) {
    const bool codes = tensor.type == ElementType::f8_e4m3 || tensor.type == ElementType::i8;
    if (!codes || tensor.shape.rank() != encoding.block.rank()) continue;
    const std::string name = tensor.name + encoding.scales_suffix;
    const auto scales = by_name.find(name);
    const Dims shape = scales_shape(encoding, tensor.shape);
    if (scales == by_name.end()) {
      faults.add("tensor " + quoted_name(name) + ", the scales of codes, is missing");
    } else if (scales->second->type != ElementType::f32 || scales->second->shape != shape) {
      faults.add("tensor " + quoted_name(name) + ", the scales of codes, is " +
                 std::string(name_of(scales->second->type)) + " " + text_of(scales->second->shape) +
                 " and should be f32 " + text_of(shape));
    }
    tensor.encoding = 1;
    tensor.kind = TensorKind::parameter;
  }
  model.encodings = {encoding};
  return faults.result();
}

}  // namespace

Result<std::optional<ModelConfig>> read_model_config(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path file = path / config_name;
  if (!std::filesystem::exists(file, error)) return std::optional<ModelConfig>();
  const Result<std::string> text = read_text_file(file, json_file_bytes_max);
  if (!text) return failure(text);
  const Result<ModelConfig> config = parse_model_config(*text);
  if (!config) {
    return failure(config.error().code, folder_of(file).string() + "/" + config.error().text);
  }
  return std::optional(*config);
}

Result<Model> open_model(const Checkpoint& checkpoint, const std::optional<ModelConfig>& config) {
  const bool known = config && !config->family.empty();
  Model model;
  if (known) {
    ModelConfig held = *config;
    if (lacks_mtp(checkpoint, held)) held.mtp_layers = 0;
    Result<Model> expected = model_of(held);
    if (!expected) return expected;
    model = std::move(*expected);
  }
  std::vector<Tensor> held;
  for (const Checkpoint::Entry& entry : checkpoint.entries()) {
    const std::string& name = entry.tensor.name;
    if (known && is_computed(name)) continue;
    const auto alias = std::find_if(model.aliases.begin(), model.aliases.end(),
                                    [&](const Alias& tied) { return tied.name == name; });
    if (alias != model.aliases.end()) {
      if (auto tied = check_tied(checkpoint, entry, alias->of); !tied) return failure(tied);
      continue;
    }
    held.push_back(canonical(entry.tensor));
  }
  if (known) {
    if (auto fits = check_against(model, held); !fits) return failure(fits);
  }
  model.tensors = std::move(held);
  if (config && config->codes) {
    if (auto fits = add_encoding(model, *config->codes); !fits) return failure(fits);
  }
  return model;
}

Result<Model> load_model(const std::filesystem::path& path) {
  const auto config = read_model_config(path);
  if (!config) return failure(config);
  const auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return failure(checkpoint);
  Result<Model> model = open_model(**checkpoint, *config);
  if (!model) return failure(model.error().code, path.string() + ": " + model.error().text);
  return model;
}

}  // namespace weir
