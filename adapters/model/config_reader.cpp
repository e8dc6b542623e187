#include "adapters/model/internal/config_reader.hpp"

namespace weir {

bool ConfigReader::has(const char* key) const {
  const auto found = config_.find(key);
  return found != config_.end() && !found->is_null();
}

std::optional<std::int64_t> ConfigReader::number(const char* key) {
  if (!has(key)) return std::nullopt;
  const nlohmann::json& value = config_.at(key);
  // A number over 2^63 is of its own kind, and would be negative as the type asked for here.
  const bool fits = !value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX;
  if (value.is_number_integer() && fits) return value.get<std::int64_t>();
  fail(std::string(key) + " should be a whole number");
  return std::nullopt;
}

std::optional<std::int64_t> ConfigReader::number(const char* key, const char* otherwise) {
  return number(has(key) ? key : otherwise);
}

std::int64_t ConfigReader::required(const char* key) {
  if (!has(key)) fail(std::string(key) + " is missing");
  return number(key).value_or(0);
}

bool ConfigReader::flag(const char* key, bool otherwise) {
  if (!has(key)) return otherwise;
  const nlohmann::json& value = config_.at(key);
  if (!value.is_boolean()) fail(std::string(key) + " should be true or false");
  return value.is_boolean() && value.get<bool>();
}

std::string ConfigReader::text(const char* key) {
  if (!has(key)) return {};
  const nlohmann::json& value = config_.at(key);
  if (!value.is_string()) fail(std::string(key) + " should be a text");
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace weir
