#include "adapters/layouts/internal/tensor_parallel.hpp"

#include <vector>

#include "adapters/layouts/internal/engines.hpp"

namespace weir {

Result<void> check_tp(const ModelConfig& config, std::int64_t tp, TpObjection objection) {
  const auto found = objection(config, tp);
  if (!found) return {};
  std::vector<std::string> fitting;
  for (std::int64_t other = 1; other <= config.num_attention_heads; ++other) {
    if (!objection(config, other)) fitting.push_back(std::to_string(other));
  }
  return failure(ErrorCode::invalid, *found + ": use tp=" + alternatives(fitting));
}

std::optional<std::string> indivisible(std::int64_t count, std::int64_t tp, const char* things) {
  if (count % tp == 0) return std::nullopt;
  return "tp=" + std::to_string(tp) + " does not divide " + std::to_string(count) + " " + things;
}

}  // namespace weir
