#include "adapters/layouts/internal/tensor_parallel.hpp"

#include <numeric>
#include <vector>

#include "adapters/layouts/internal/engines.hpp"

namespace weir {

Result<void> check_tp(std::int64_t most, std::int64_t tp, const TpObjection& objection) {
  const auto found = objection(tp);
  if (!found) return {};
  std::vector<std::string> fitting;
  for (std::int64_t other = 1; other <= most; ++other) {
    if (!objection(other)) fitting.push_back(std::to_string(other));
  }
  // Where not even 1 fits, it is not for tp to mend.
  if (fitting.empty()) return failure(ErrorCode::invalid, *found);
  return failure(ErrorCode::invalid, *found + ": use tp=" + alternatives(fitting));
}

std::optional<std::string> indivisible(std::int64_t count, std::int64_t tp, const char* things,
                                       const char* what) {
  if (count % tp == 0) return std::nullopt;
  return what + ("=" + std::to_string(tp)) + " does not divide " + std::to_string(count) + " " +
         things;
}

std::optional<std::string> indivisible_mlp(const ModelConfig& config, std::int64_t tp) {
  if (!has_experts(config, 0)) {
    if (auto text = indivisible(config.intermediate_size, tp, "rows of the MLP")) return text;
  }
  if (config.experts.count == 0) return std::nullopt;
  return indivisible(config.experts.shared_intermediate_size, tp, "rows of the shared experts");
}

Result<void> check_divides(const char* option, std::int64_t value, std::int64_t count,
                           const char* things) {
  if (count % value == 0) return {};
  return failure(ErrorCode::invalid, std::string(option) + "=" + std::to_string(value) +
                                         " does not divide " + std::to_string(count) + " " +
                                         things + ": use a divisor of " + std::to_string(count));
}

Result<void> check_no_experts(const std::vector<ExpertOption>& options) {
  for (const ExpertOption& option : options) {
    if (!option.given) continue;
    return failure(
        ErrorCode::invalid,
        std::string(option.name) + "= is about experts, and the model has none: leave it out");
  }
  return {};
}

Result<void> check_layer_numbers(const LayoutSpec& spec, std::int64_t chunks, const char* what) {
  if (spec.layers.empty() || std::ssize(spec.layers) == chunks) return {};
  return failure(ErrorCode::invalid, "layers= has " + std::to_string(spec.layers.size()) +
                                         " numbers: give " + what + " = " + std::to_string(chunks));
}

Result<void> check_layers(const ModelConfig& config, const std::vector<std::int64_t>& layers,
                          std::int64_t chunks, const char* what) {
  const std::int64_t all = config.num_hidden_layers;
  if (layers.empty()) {
    if (all % chunks == 0) return {};
    return failure(ErrorCode::invalid, std::string(what) + " = " + std::to_string(chunks) +
                                           " does not divide " + std::to_string(all) +
                                           " layers: choose others, or give layers= with " +
                                           std::to_string(chunks) + " numbers that sum to " +
                                           std::to_string(all) + ", joined by '-'");
  }
  const std::int64_t sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  if (sum == all) return {};
  return failure(ErrorCode::invalid, "layers= sums to " + std::to_string(sum) +
                                         ": make it sum to the model's " + std::to_string(all) +
                                         " layers");
}

}  // namespace weir
