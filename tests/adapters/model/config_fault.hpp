#pragma once
// What is said of a config.json that can't be read.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "adapters/model/model.hpp"

namespace weir {

inline std::string fault_of(const nlohmann::json& json) {
  const auto config = parse_model_config(json.dump());
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().code == ErrorCode::invalid);
  return config.error().text;
}

}  // namespace weir
