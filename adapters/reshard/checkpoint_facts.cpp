#include "adapters/reshard/checkpoint_facts.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "adapters/files/strict_json.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr const char* buffer_mark = "buffer";

tl::unexpected<Error> malformed(const std::string& what) {
  return failure(ErrorCode::invalid,
                 "has model facts that weir did not write: " + what + "; write the folder anew");
}

std::vector<std::int64_t> full_shape(const CheckpointFacts& facts, const Tensor& tensor) {
  const auto found = facts.full_shapes.find(tensor.name);
  if (found != facts.full_shapes.end()) return found->second;
  const auto values = tensor.shape.values();
  return {values.begin(), values.end()};
}

/// Nothing for what is no list of non-negative numbers, or would not fit memory.
std::optional<std::vector<std::int64_t>> parse_shape(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  // Eight bytes an element at most; the limit is that bytes fit 63 bits, as in the files.
  std::int64_t room = std::numeric_limits<std::int64_t>::max() / 8;
  std::vector<std::int64_t> shape;
  for (const Json& item : json) {
    if (!item.is_number_unsigned()) return std::nullopt;
    const auto extent = item.get<std::uint64_t>();
    if (extent > static_cast<std::uint64_t>(room)) return std::nullopt;
    if (extent > 0) room /= static_cast<std::int64_t>(extent);
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  return shape;
}

/// ["name", "bf16", [2, 3]], and a fourth entry "buffer" for a buffer.
Result<void> parse_tensor(const Json& json, CheckpointFacts& facts) {
  const bool formed = json.is_array() && (json.size() == 3 || json.size() == 4) &&
                      json[0].is_string() && json[1].is_string() &&
                      (json.size() == 3 || json[3] == buffer_mark);
  if (!formed) return malformed("a tensor that is not [name, type, shape]");
  Tensor tensor;
  tensor.name = json[0].get<std::string>();
  const auto type = element_type_named(json[1].get<std::string>());
  if (!type) return malformed("tensor " + tensor.name + " of an unknown type");
  tensor.type = *type;
  auto shape = parse_shape(json[2]);
  if (!shape) return malformed("tensor " + tensor.name + " with an impossible shape");
  tensor.shape = folded(*shape);
  if (json.size() == 4) tensor.kind = TensorKind::buffer;
  if (shape->size() > static_cast<std::size_t>(rank_max)) {
    facts.full_shapes.emplace(tensor.name, *std::move(shape));
  }
  facts.model.tensors.push_back(std::move(tensor));
  return {};
}

Result<void> sort_tensors(std::vector<Tensor>& tensors) {
  const auto by_name = [](const Tensor& a, const Tensor& b) { return a.name < b.name; };
  std::sort(tensors.begin(), tensors.end(), by_name);
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const Tensor& a, const Tensor& b) { return a.name == b.name; });
  if (twice != tensors.end()) return malformed("tensor " + twice->name + " twice");
  return {};
}

/// A member that is an array, or an error.
Result<const Json*> array_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) {
    return malformed(std::string("no list of ") + key);
  }
  return &*found;
}

}  // namespace

Dims folded(const std::vector<std::int64_t>& shape) {
  constexpr auto kept = static_cast<std::size_t>(rank_max);
  if (shape.size() <= kept) return Dims(std::span<const std::int64_t>(shape));
  std::vector<std::int64_t> short_shape(shape.begin(), shape.begin() + rank_max);
  for (std::size_t dim = kept; dim < shape.size(); ++dim) short_shape.back() *= shape[dim];
  return Dims(std::span<const std::int64_t>(short_shape));
}

std::string encode(const CheckpointFacts& facts) {
  Json tensors = Json::array();
  for (const Tensor& tensor : facts.model.tensors) {
    Json entry =
        Json::array({tensor.name, std::string(name_of(tensor.type)), full_shape(facts, tensor)});
    if (tensor.kind == TensorKind::buffer) entry.push_back(buffer_mark);
    tensors.push_back(std::move(entry));
  }
  Json aliases = Json::array();
  for (const Alias& alias : facts.model.aliases) {
    aliases.push_back(Json::array({alias.name, alias.of}));
  }
  const Json json = {{"tensors", std::move(tensors)},
                     {"aliases", std::move(aliases)},
                     {"metadata", facts.metadata}};
  return json.dump();
}

Result<CheckpointFacts> parse_checkpoint_facts(std::string_view text, const ModelConfig& config) {
  const Result<Json> json = parse_strict_json(text);
  if (!json) return malformed(json.error().text);
  if (!json->is_object()) return malformed("no object");
  CheckpointFacts facts;
  facts.model.config = config;

  const auto tensors = array_at(*json, "tensors");
  if (!tensors) return failure(tensors);
  for (const Json& entry : **tensors) {
    if (auto parsed = parse_tensor(entry, facts); !parsed) return failure(parsed);
  }
  if (auto sorted = sort_tensors(facts.model.tensors); !sorted) return failure(sorted);

  const auto aliases = array_at(*json, "aliases");
  if (!aliases) return failure(aliases);
  for (const Json& entry : **aliases) {
    const bool formed =
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string();
    if (!formed) return malformed("an alias that is not [name, name]");
    facts.model.aliases.push_back({entry[0].get<std::string>(), entry[1].get<std::string>()});
  }

  const auto metadata = json->find("metadata");
  if (metadata == json->end() || !metadata->is_object()) return malformed("no metadata");
  for (const auto& [key, value] : metadata->items()) {
    if (!value.is_string()) return malformed("metadata that is not text");
    facts.metadata.emplace(key, value.get<std::string>());
  }
  return facts;
}

}  // namespace weir
