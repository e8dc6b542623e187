#include "adapters/files/strict_json.hpp"

#include <array>
#include <set>
#include <string>

#include "adapters/files/file_system.hpp"

namespace weir {

Result<nlohmann::json> parse_strict_json(std::string_view text) {
  using Json = nlohmann::json;
  // The parser takes a zero byte for the end of its input, whatever follows.
  if (text.find('\0') != std::string_view::npos) {
    return failure(ErrorCode::invalid, "is not JSON: it holds a zero byte");
  }
  std::string fault;
  std::array<std::set<std::string>, json_depth_max> names;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= json_depth_max) {
        if (fault.empty()) {
          fault = "nests deeper than " + std::to_string(json_depth_max) + " levels";
        }
        return false;
      }
      names[static_cast<std::size_t>(depth)].clear();
    }
    if (event == Json::parse_event_t::key && depth <= json_depth_max) {
      const auto& name = parsed.get_ref<const std::string&>();
      const bool fresh = names[static_cast<std::size_t>(depth) - 1].insert(name).second;
      if (!fresh && fault.empty())
        fault = "has the key " + quoted_name(name) + " twice in one object";
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, false);
  if (!fault.empty()) return failure(ErrorCode::invalid, fault);
  if (json.is_discarded()) return failure(ErrorCode::invalid, "is not JSON in UTF-8");
  return json;
}

Result<nlohmann::json> read_strict_json(const std::filesystem::path& path) {
  const Result<std::string> text = read_text_file(path, json_file_bytes_max);
  if (!text) return failure(text);
  Result<nlohmann::json> json = parse_strict_json(*text);
  if (!json) return failure(json.error().code, path.string() + " " + json.error().text);
  return json;
}

}  // namespace weir
