#pragma once
// A `config.json` key by key, with the first thing that is wrong with it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "adapters/model/model.hpp"

namespace weir {

/// Reads one JSON object, which must outlive it. The first fault is kept for later, so that a whole
/// configuration can be read without looking up.
class ConfigReader {
 public:
  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  /// Whether that key is there, be it null.
  [[nodiscard]] bool states(const char* key) const { return config_.contains(key); }
  /// Whether that key is there and not null.
  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] const nlohmann::json& at(const char* key) const { return config_.at(key); }

  /// Nothing where the key is absent or null.
  std::optional<std::int64_t> number(const char* key);
  /// Of those keys, which mean the same, the first that is there and not null.
  std::optional<std::int64_t> number(const char* key, const char* otherwise);
  std::int64_t required(const char* key);
  bool flag(const char* key, bool otherwise = false);
  std::string text(const char* key);

  void fail(const std::string& text) {
    if (fault_.empty()) fault_ = "config.json: " + text;
  }
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  const nlohmann::json& config_;
  std::string fault_;
};

/// What a family has besides a plain decoder: `family` and the plain sizes are in `config`.
void read_family(ConfigReader& reader, ModelConfig& config);

}  // namespace weir
