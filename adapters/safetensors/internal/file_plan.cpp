#include "adapters/safetensors/internal/file_plan.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "adapters/files/file_system.hpp"
#include "adapters/safetensors/internal/header.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

/// A cache line, and enough for the widest loads of a reader that maps the file.
constexpr std::size_t data_alignment = 64;

std::vector<std::size_t> order_of(const std::vector<FileTensor>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].type) > size_of(tensors[b].type);
  });
  return order;
}

Result<void> check_names(const std::vector<FileTensor>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const FileTensor& tensor : tensors) {
    if (tensor.name.empty()) {
      return failure(ErrorCode::invalid, "cannot hold a tensor without a name");
    }
    if (tensor.name == safetensors_metadata_key) {
      return failure(ErrorCode::invalid, "cannot hold a tensor named \"__metadata__\"");
    }
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return failure(ErrorCode::invalid, "cannot hold the tensor " + quoted_name(*twice) + " twice");
}

/// The JSON of a name or of metadata.
Result<std::string> json_text(const Json& value) {
  // The serializer reports text that is not UTF-8 only by an exception.
  try {
    return value.dump();
  } catch (const Json::type_error&) {
    return failure(ErrorCode::invalid, "cannot hold a name or metadata that is not UTF-8");
  }
}

Result<void> add_member(std::string& header, std::string_view name, const std::string& value) {
  // The closing brace and the padding come on top.
  constexpr std::size_t room = safetensors_header_bytes_max - data_alignment;
  const auto too_long =
      failure(ErrorCode::invalid, "cannot hold so many tensors: their header would exceed " +
                                      std::to_string(safetensors_header_bytes_max) + " bytes");
  // Asked first of the bare name, so that a huge one is not copied around.
  if (header.size() + name.size() + value.size() > room) return too_long;
  const Result<std::string> key = json_text(name);
  if (!key) return failure(key);
  header += (header.size() > 1 ? "," : "") + *key + ":" + value;
  if (header.size() > room) return too_long;
  return {};
}

std::string entry_of(const FileTensor& tensor, std::uint64_t begin, std::uint64_t end) {
  return R"({"dtype":")" + std::string(safetensors_name_of(tensor.type)) + R"(","shape":)" +
         Json(tensor.shape).dump() + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

std::string head_of(std::string header) {
  const std::size_t unpadded = safetensors_length_bytes + header.size();
  header.append((data_alignment - unpadded % data_alignment) % data_alignment, ' ');
  std::string head;
  for (std::size_t i = 0; i < safetensors_length_bytes; ++i) {
    head.push_back(static_cast<char>(header.size() >> (8 * i)));
  }
  return head + header;
}

}  // namespace

Result<SafetensorsPlan> plan_safetensors_file(const std::vector<FileTensor>& tensors,
                                              const FileMetadata& metadata) {
  if (auto names = check_names(tensors); !names) return failure(names);
  std::string header = "{";
  if (!metadata.empty()) {
    const Result<std::string> texts = json_text(metadata);
    if (!texts) return failure(texts);
    if (auto added = add_member(header, safetensors_metadata_key, *texts); !added) {
      return failure(added);
    }
  }
  SafetensorsPlan plan;
  plan.begins.resize(tensors.size());
  std::int64_t end = 0;
  for (const std::size_t index : order_of(tensors)) {
    const Result<std::uint64_t> bytes = checked_bytes_of(tensors[index]);
    if (!bytes) return failure(bytes);
    const auto begin = static_cast<std::uint64_t>(end);
    if (__builtin_add_overflow(end, *bytes, &end)) {
      return failure(ErrorCode::invalid, "cannot hold more than 2^63 bytes");
    }
    plan.begins[index] = begin;
    auto added = add_member(header, tensors[index].name,
                            entry_of(tensors[index], begin, static_cast<std::uint64_t>(end)));
    if (!added) return failure(added);
  }
  plan.head = head_of(header + "}");
  for (std::uint64_t& begin : plan.begins) begin += plan.head.size();
  plan.file_bytes = plan.head.size() + static_cast<std::uint64_t>(end);
  return plan;
}

}  // namespace weir
