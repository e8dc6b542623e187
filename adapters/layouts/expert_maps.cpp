#include "adapters/layouts/internal/expert_maps.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "adapters/files/strict_json.hpp"
#include "adapters/layouts/internal/engines.hpp"

namespace weir {
namespace {

using Map = std::vector<std::int64_t>;
using Json = nlohmann::json;

constexpr const char* key = "physical_to_logical_map";

Result<Map> parse_map(const Json& json, const std::string& where) {
  if (!json.is_array() || json.empty()) {
    return failure(ErrorCode::invalid,
                   where + " is no list: give the expert in each physical slot");
  }
  Map map;
  for (const Json& slot : json) {
    if (!slot.is_number_unsigned() ||
        slot.get<std::uint64_t>() > static_cast<std::uint64_t>(option_max)) {
      return failure(ErrorCode::invalid, where + ", slot " + std::to_string(map.size()) +
                                             ", is no number of an expert from 0 to " +
                                             std::to_string(option_max));
    }
    map.push_back(slot.get<std::int64_t>());
  }
  return map;
}

/// `what` is "physical=" and, where maps differ, of which layer.
Result<void> check_map(const ModelConfig& config, const Map& map, std::int64_t slots,
                       const std::string& what) {
  const std::int64_t experts = config.experts.count;
  if (std::ssize(map) != slots) {
    return failure(ErrorCode::invalid,
                   what + " has " + std::to_string(map.size()) +
                       " slots: give experts + redundant = " + std::to_string(slots));
  }
  std::vector<bool> seen(static_cast<std::size_t>(experts));
  for (const std::int64_t expert : map) {
    if (expert < 0 || expert >= experts) {
      return failure(ErrorCode::invalid, what + " names expert " + std::to_string(expert) +
                                             ": the model has experts 0 to " +
                                             std::to_string(experts - 1));
    }
    seen[static_cast<std::size_t>(expert)] = true;
  }
  const auto missing = std::ranges::find(seen, false);
  if (missing == seen.end()) return {};
  return failure(ErrorCode::invalid, what + " leaves out expert " +
                                         std::to_string(missing - seen.begin()) +
                                         ": give each expert a slot");
}

}  // namespace

Result<std::vector<Map>> read_expert_maps(const std::string& path) {
  const auto json = read_strict_json(path);
  if (!json) return failure(json);
  const Json* maps = &*json;
  if (json->is_object()) {
    const auto found = json->find(key);
    if (found == json->end()) {
      return failure(ErrorCode::invalid, path + " has no \"" + key +
                                             "\": give it, a list for each " +
                                             "layer with the expert in each physical slot");
    }
    maps = &*found;
  }
  if (!maps->is_array() || maps->empty()) {
    return failure(ErrorCode::invalid, path + ": \"" + key + "\" is no list of layers");
  }
  std::vector<Map> parsed;
  if (!maps->front().is_array()) {
    auto map = parse_map(*maps, path);
    if (!map) return failure(map);
    parsed.push_back(*std::move(map));
    return parsed;
  }
  for (const Json& layer : *maps) {
    auto map = parse_map(layer, path + ": list " + std::to_string(parsed.size()));
    if (!map) return failure(map);
    parsed.push_back(*std::move(map));
  }
  return parsed;
}

Result<std::vector<Map>> physical_maps(const ModelConfig& config, const LayoutSpec& spec,
                                       std::int64_t mtp_layers) {
  const std::int64_t experts = config.experts.count;
  if (experts == 0) return std::vector<Map>();
  const std::int64_t first_layer = config.experts.first_layer;
  const std::int64_t all = config.num_hidden_layers + mtp_layers;
  const std::int64_t slots = experts + option(spec, "redundant");
  const std::int64_t given = std::ssize(spec.physical);
  if (given == 0) {
    Map map;
    for (std::int64_t slot = 0; slot < slots; ++slot) map.push_back(slot % experts);
    return std::vector<Map>(static_cast<std::size_t>(all - first_layer), map);
  }
  if (given == 1) {
    if (auto good = check_map(config, spec.physical.front(), slots, "physical="); !good) {
      return failure(good);
    }
    return std::vector<Map>(static_cast<std::size_t>(all - first_layer), spec.physical.front());
  }
  // SGLang counts dense layers, too, whose maps mean nothing.
  const std::int64_t dense = given == all ? first_layer : 0;
  if (given - dense != all - first_layer) {
    return failure(ErrorCode::invalid,
                   "physical= has maps for " + std::to_string(given) +
                       " layers: give one for all, " + std::to_string(all - first_layer) +
                       " for the layers of experts, or " + std::to_string(all) + " for all layers");
  }
  std::vector<Map> maps(spec.physical.begin() + dense, spec.physical.end());
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const std::int64_t layer = first_layer + static_cast<std::int64_t>(i);
    const std::string what = "physical= of layer " + std::to_string(layer);
    if (auto good = check_map(config, maps[i], slots, what); !good) return failure(good);
  }
  return maps;
}

}  // namespace weir
