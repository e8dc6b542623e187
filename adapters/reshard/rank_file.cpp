#include "adapters/reshard/rank_file.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <utility>

namespace weir {
namespace {

constexpr const char* layout_key = "weir.layout";
constexpr const char* rank_key = "weir.rank";
constexpr const char* ranks_key = "weir.ranks";
constexpr const char* model_key = "weir.model";

constexpr std::string_view name_start = "rank-";
constexpr std::string_view name_middle = "-of-";
constexpr std::string_view name_end = ".safetensors";

/// Decimal digits and nothing else.
std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, trouble] = std::from_chars(text.data(), end, number);
  if (trouble != std::errc() || stop != end) return std::nullopt;
  return number;
}

tl::unexpected<Error> malformed(const SafetensorsFile& file, const std::string& what) {
  return failure(ErrorCode::invalid, file.path().string() + ": its metadata " + what +
                                         "; was it changed after weir wrote it?");
}

}  // namespace

std::string rank_file_name(const RankNumber& number) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "rank-%05u-of-%05u.safetensors", number.rank,
                number.ranks);
  return buffer.data();
}

std::optional<RankNumber> parse_rank_file_name(std::string_view name) {
  if (!name.starts_with(name_start) || !name.ends_with(name_end)) return std::nullopt;
  const std::size_t middle = name.find(name_middle);
  if (middle == std::string_view::npos) return std::nullopt;
  const std::size_t ranks_at = middle + name_middle.size();
  const std::size_t end = name.size() - name_end.size();
  if (ranks_at > end) return std::nullopt;
  const auto rank = parse_number(name.substr(name_start.size(), middle - name_start.size()));
  const auto ranks = parse_number(name.substr(ranks_at, end - ranks_at));
  if (!rank || !ranks || *rank >= *ranks) return std::nullopt;
  const RankNumber number{.rank = *rank, .ranks = *ranks};
  if (rank_file_name(number) != name) return std::nullopt;
  return number;
}

FileMetadata metadata_of(const RankStatement& statement) {
  return {{layout_key, text_of(statement.layout)},
          {rank_key, std::to_string(statement.number.rank)},
          {ranks_key, std::to_string(statement.number.ranks)},
          {model_key, statement.facts}};
}

Result<std::optional<RankStatement>> statement_in(const SafetensorsFile& file) {
  const FileMetadata& metadata = file.metadata();
  if (!metadata.contains(layout_key)) return std::optional<RankStatement>();
  for (const char* key : {rank_key, ranks_key, model_key}) {
    if (!metadata.contains(key)) return malformed(file, std::string("lacks ") + key);
  }
  auto layout = parse_layout(metadata.at(layout_key));
  if (!layout) return malformed(file, "has a bad weir.layout: " + layout.error().text);
  const auto rank = parse_number(metadata.at(rank_key));
  const auto ranks = parse_number(metadata.at(ranks_key));
  if (!rank || !ranks || *rank >= *ranks) {
    return malformed(file, "has a weir.rank that is not one of weir.ranks");
  }
  return RankStatement{.layout = *std::move(layout),
                       .number = {.rank = *rank, .ranks = *ranks},
                       .facts = metadata.at(model_key)};
}

std::vector<FileTensor> file_tensors(const RankLayout& layout, const CheckpointFacts& facts) {
  std::vector<FileTensor> tensors;
  tensors.reserve(layout.tensors.size());
  for (const LocalTensor& local : layout.tensors) {
    FileTensor tensor{.name = local.name, .type = local.type, .shape = local.shape};
    const auto full = facts.full_shapes.find(local.name);
    if (full != facts.full_shapes.end()) {
      tensor.shape = full->second;
      tensor.shape.front() = local.shape.front();
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace weir
