#include <charconv>

#include "adapters/layouts/internal/engines.hpp"
#include "adapters/layouts/internal/expert_maps.hpp"
#include "adapters/layouts/layout.hpp"

namespace weir {
namespace {

/// One `key=value` of the text, which stays alive meanwhile.
struct Setting {
  std::string_view key;
  std::string_view value;
};

tl::unexpected<Error> bad_value(const Setting& setting, const std::string& advice) {
  return failure(ErrorCode::invalid,
                 std::string(setting.key) + "=" + std::string(setting.value) + ": " + advice);
}

/// A decimal number and nothing else. Nothing for what does not fit 64 bits either.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, trouble] = std::from_chars(text.data(), end, number);
  if (trouble != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// "2-1-1-2", of which `list` is all or a part. Zero is a number of layers too: a stage may hold
/// the embedding alone.
Result<std::vector<std::int64_t>> parse_list(const Setting& setting, std::string_view list,
                                             const std::string& advice) {
  std::vector<std::int64_t> numbers;
  std::string_view rest = list;
  while (true) {
    const std::size_t dash = rest.find('-');
    const auto number = whole_number(rest.substr(0, dash));
    if (!number) return bad_value(setting, advice);
    numbers.push_back(*number);
    if (dash == std::string_view::npos) return numbers;
    rest.remove_prefix(dash + 1);
  }
}

/// "0-1-2/2-1-0", or "@maps.json".
Result<std::vector<std::vector<std::int64_t>>> parse_maps(const Setting& setting) {
  if (setting.value.starts_with('@')) return read_expert_maps(std::string(setting.value.substr(1)));
  std::vector<std::vector<std::int64_t>> maps;
  std::string_view rest = setting.value;
  while (true) {
    const std::size_t slash = rest.find('/');
    auto map = parse_list(setting, rest.substr(0, slash), physical_advice());
    if (!map) return failure(map);
    maps.push_back(*std::move(map));
    if (slash == std::string_view::npos) return maps;
    rest.remove_prefix(slash + 1);
  }
}

/// `whole` is the text that `item` is a part of, for messages.
Result<Setting> parse_setting(std::string_view item, std::string_view whole) {
  if (item.empty()) {
    return failure(ErrorCode::invalid, "'" + std::string(whole) +
                                           "' has an empty option: write name:key=value,key=value "
                                           "without a spare ':' or ','");
  }
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos) {
    return failure(ErrorCode::invalid, "option '" + std::string(item) + "' has no value: write " +
                                           std::string(item) + "=VALUE");
  }
  return Setting{.key = item.substr(0, equals), .value = item.substr(equals + 1)};
}

Result<void> apply(const Engine& engine, const Setting& setting, LayoutSpec& spec) {
  if (auto known = check_option_name(engine, setting.key); !known) return known;
  const std::string key(setting.key);
  const bool twice = (key == "dtype" && spec.dtype) || (key == "quant" && spec.quant) ||
                     (key == "layers" && !spec.layers.empty()) ||
                     (key == "physical" && !spec.physical.empty()) || spec.options.contains(key) ||
                     spec.choices.contains(key);
  if (twice) return failure(ErrorCode::invalid, "option " + key + " is given twice: leave one out");
  if (key == "dtype") {
    spec.dtype = element_type_named(setting.value);
    if (!spec.dtype) return bad_value(setting, dtype_advice());
  } else if (key == "quant") {
    spec.quant = weight_quant_named(setting.value);
    if (!spec.quant) return bad_value(setting, quant_advice());
  } else if (key == "layers") {
    auto layers = parse_list(setting, setting.value, layers_advice());
    if (!layers) return failure(layers);
    spec.layers = *std::move(layers);
  } else if (key == "physical") {
    auto physical = parse_maps(setting);
    if (!physical) return failure(physical);
    spec.physical = *std::move(physical);
  } else if (choice_named(engine, key) != nullptr) {
    spec.choices.emplace(key, setting.value);
  } else {
    const auto number = whole_number(setting.value);
    if (!number) return bad_value(setting, number_advice(option_named(engine, key)->least));
    spec.options.emplace(key, *number);
  }
  return {};
}

}  // namespace

Result<LayoutSpec> parse_layout(std::string_view text) {
  if (text.empty()) {
    return failure(ErrorCode::invalid,
                   "empty layout: write a name and its options, as in megatron:tp=2,pp=2");
  }
  const std::size_t colon = text.find(':');
  LayoutSpec spec;
  spec.name = std::string(text.substr(0, colon));
  const auto engine = engine_named(spec.name);
  if (!engine) return failure(engine);
  for (std::size_t end = colon; end != std::string_view::npos;) {
    const std::size_t start = end + 1;
    end = text.find(',', start);
    auto setting = parse_setting(text.substr(start, end - start), text);
    if (!setting) return failure(setting);
    if (auto applied = apply(**engine, *setting, spec); !applied) return failure(applied);
  }
  if (auto all = settled(**engine, spec); !all) return failure(all);
  return spec;
}

std::string text_of(const LayoutSpec& spec) {
  std::string text = spec.name;
  char separator = ':';
  const auto add = [&](std::string_view key, std::string_view value) {
    text += separator;
    text.append(key).append("=").append(value);
    separator = ',';
  };
  const auto joined = [](const std::vector<std::int64_t>& numbers) {
    std::string list;
    for (const std::int64_t number : numbers) {
      if (!list.empty()) list += '-';
      list += std::to_string(number);
    }
    return list;
  };
  for (const auto& [key, value] : spec.options) add(key, std::to_string(value));
  for (const auto& [key, value] : spec.choices) add(key, value);
  if (!spec.layers.empty()) add("layers", joined(spec.layers));
  std::string maps;
  for (const auto& map : spec.physical) maps += (maps.empty() ? "" : "/") + joined(map);
  if (!maps.empty()) add("physical", maps);
  if (spec.dtype) add("dtype", name_of(*spec.dtype));
  if (spec.quant) add("quant", name_of(*spec.quant));
  return text;
}

}  // namespace weir
