#include "adapters/safetensors/internal/header.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "adapters/files/file_system.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, element_type_count> type_names = {
    "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8", "U8", "I32", "I64", "BOOL"};

std::optional<ElementType> type_of(std::string_view name) noexcept {
  for (std::size_t index = 0; index < type_names.size(); ++index) {
    if (type_names[index] == name) return static_cast<ElementType>(index);
  }
  return std::nullopt;
}

std::string unknown_type_text(const std::string& tensor, std::string_view type) {
  std::string text =
      "tensor " + quoted_name(tensor) + " has the type " + quoted_name(type) + "; Weir moves only";
  for (const std::string_view name : type_names) text += " " + std::string(name);
  return text;
}

/// Takes the JSON as it is read, so that a hostile header costs no more memory than a good one of
/// its length, and a key that stands twice is seen. Each method says whether to go on.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<PlacedTensor> tensors;  ///< With offsets still counted from the data's start.
  FileMetadata metadata;
  std::string fault;

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("a truth value"); }
  bool number_float(number_float_t, const string_t& text) override {
    return misplaced("the number " + quoted_name(text));
  }
  bool number_integer(number_integer_t number) override {
    return misplaced("the number " + std::to_string(number));
  }
  bool binary(binary_t&) override { return misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (place_ == Place::shape) {
      if (current_.tensor.shape.size() == safetensors_dimensions_max) {
        return fail(tensor_text() + " has more than " + std::to_string(safetensors_dimensions_max) +
                    " dimensions");
      }
      if (number > INT64_MAX) return fail(tensor_text() + " has an extent over 2^63");
      current_.tensor.shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    if (place_ == Place::offsets && offsets_.size() < 2) {
      offsets_.push_back(number);
      return true;
    }
    return misplaced("the number " + std::to_string(number));
  }

  bool string(string_t& text) override {
    if (place_ == Place::metadata) {
      metadata.emplace(key_, text);
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return misplaced("a text");
    const std::optional<ElementType> type = type_of(text);
    if (!type) return fail(unknown_type_text(current_.tensor.name, text));
    current_.tensor.type = *type;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::root;
      return true;
    }
    if (place_ != Place::root) return misplaced("an object");
    if (key_ == safetensors_metadata_key) {
      if (std::exchange(metadata_seen_, true)) return fail("has \"__metadata__\" twice");
      place_ = Place::metadata;
      return true;
    }
    if (key_.empty()) return fail("has a tensor without a name");
    place_ = Place::tensor;
    current_ = {};
    current_.tensor.name = key_;
    offsets_.clear();
    seen_.clear();
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::metadata && metadata.contains(name)) {
      return fail("has the key " + quoted_name(name) + " twice in \"__metadata__\"");
    }
    if (place_ == Place::tensor) {
      if (name != "dtype" && name != "shape" && name != "data_offsets") {
        return fail(tensor_text() + " has the unknown key " + quoted_name(name));
      }
      if (std::find(seen_.begin(), seen_.end(), name) != seen_.end()) {
        return fail(tensor_text() + " has the key " + quoted_name(name) + " twice");
      }
      seen_.push_back(name);
    }
    key_ = std::move(name);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::metadata) {
      place_ = Place::root;
    } else if (place_ == Place::tensor) {
      for (const char* needed : {"dtype", "shape", "data_offsets"}) {
        if (std::find(seen_.begin(), seen_.end(), needed) == seen_.end()) {
          return fail(tensor_text() + " lacks \"" + needed + "\"");
        }
      }
      tensors.push_back(std::move(current_));
      place_ = Place::root;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      return misplaced("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets) {
      if (offsets_.size() != 2) return fail(tensor_text() + " lacks one of its two offsets");
      current_.begin = offsets_[0];
      current_.end = offsets_[1];
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("has a header that is not JSON in UTF-8, at its byte " + std::to_string(position));
  }

 private:
  enum class Place { start, root, metadata, tensor, shape, offsets };

  bool fail(std::string text) {
    fault = std::move(text);
    return false;
  }

  bool misplaced(const std::string& what) {
    if (place_ == Place::root) return fail("has " + what + " for the tensor " + quoted_name(key_));
    if (place_ == Place::metadata) {
      return fail("has " + what + " in \"__metadata__\", where only texts may stand");
    }
    return fail(tensor_text() + " has " + what + " in " + quoted_name(key_));
  }

  [[nodiscard]] std::string tensor_text() const {
    return "tensor " + quoted_name(current_.tensor.name);
  }

  Place place_ = Place::start;
  std::string key_;
  PlacedTensor current_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::string> seen_;  ///< Keys of the current tensor.
  bool metadata_seen_ = false;
};

std::uint64_t read_length(std::span<const std::byte> file) noexcept {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < safetensors_length_bytes; ++i) {
    length |= static_cast<std::uint64_t>(file[i]) << (8 * i);
  }
  return length;
}

Result<std::string_view> header_text(std::span<const std::byte> file) {
  if (file.size() < safetensors_length_bytes) {
    return failure(ErrorCode::invalid, "is too short for a safetensors file (" +
                                           std::to_string(file.size()) + " bytes)");
  }
  const std::uint64_t length = read_length(file);
  if (length > safetensors_header_bytes_max) {
    return failure(ErrorCode::invalid, "states a header of " + std::to_string(length) +
                                           " bytes, more than the format's limit of " +
                                           std::to_string(safetensors_header_bytes_max) +
                                           ": it is no safetensors file, or damaged");
  }
  if (length > file.size() - safetensors_length_bytes) {
    return failure(ErrorCode::invalid, "states a header of " + std::to_string(length) +
                                           " bytes, but has only " + std::to_string(file.size()) +
                                           ": it is cut short or damaged");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + safetensors_length_bytes,
                              length);
  if (!text.starts_with('{')) {
    return failure(ErrorCode::invalid, "has a header that does not begin with '{'");
  }
  // The JSON parser takes a zero byte for the end of its input, whatever follows.
  if (text.find('\0') != std::string_view::npos) {
    return failure(ErrorCode::invalid, "has a zero byte in its header");
  }
  return text;
}

Result<void> sort_by_name(std::vector<PlacedTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.tensor.name < b.tensor.name; });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const auto& a, const auto& b) { return a.tensor.name == b.tensor.name; });
  if (twice == tensors.end()) return {};
  return failure(ErrorCode::invalid,
                 "has the tensor " + quoted_name(twice->tensor.name) + " twice");
}

/// Begin and end of each tensor against its shape.
Result<void> check_sizes(const std::vector<PlacedTensor>& tensors) {
  for (const PlacedTensor& placed : tensors) {
    const Result<std::uint64_t> bytes = checked_bytes_of(placed.tensor);
    if (!bytes) return failure(bytes);
    if (placed.end < placed.begin || placed.end - placed.begin != *bytes) {
      return failure(ErrorCode::invalid,
                     "tensor " + quoted_name(placed.tensor.name) + " has data_offsets [" +
                         std::to_string(placed.begin) + ", " + std::to_string(placed.end) +
                         "), but type and shape make " + std::to_string(*bytes) + " bytes");
    }
  }
  return {};
}

/// That the tensors cover the data exactly.
Result<void> check_tiling(const std::vector<PlacedTensor>& tensors, std::uint64_t data_bytes) {
  std::vector<const PlacedTensor*> by_place;
  by_place.reserve(tensors.size());
  for (const PlacedTensor& placed : tensors) by_place.push_back(&placed);
  std::sort(by_place.begin(), by_place.end(), [](const PlacedTensor* a, const PlacedTensor* b) {
    return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
  });
  std::uint64_t covered = 0;
  for (const PlacedTensor* next : by_place) {
    const PlacedTensor& placed = *next;
    const std::string name = "tensor " + quoted_name(placed.tensor.name);
    if (placed.end > data_bytes) {
      return failure(ErrorCode::invalid, name + " ends at byte " + std::to_string(placed.end) +
                                             " of the data, which has only " +
                                             std::to_string(data_bytes) +
                                             ": the file is cut short or damaged");
    }
    if (placed.begin != covered) {
      return failure(ErrorCode::invalid,
                     name + " begins at byte " + std::to_string(placed.begin) + " of the data, " +
                         (placed.begin < covered ? "inside another tensor" : "after a gap") +
                         ": the one before it ends at " + std::to_string(covered));
    }
    covered = placed.end;
  }
  if (covered != data_bytes) {
    return failure(ErrorCode::invalid,
                   "has " + std::to_string(data_bytes - covered) + " bytes after its last tensor");
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file) {
  const Result<std::string_view> text = header_text(file);
  if (!text) return failure(text);
  HeaderReader reader;
  if (!Json::sax_parse(text->begin(), text->end(), &reader)) {
    return failure(ErrorCode::invalid, std::move(reader.fault));
  }
  SafetensorsHeader header{std::move(reader.tensors), std::move(reader.metadata)};
  if (auto names = sort_by_name(header.tensors); !names) return failure(names);
  if (auto sizes = check_sizes(header.tensors); !sizes) return failure(sizes);
  const std::uint64_t data_begin = safetensors_length_bytes + text->size();
  if (auto tiling = check_tiling(header.tensors, file.size() - data_begin); !tiling) {
    return failure(tiling);
  }
  for (PlacedTensor& placed : header.tensors) {
    placed.begin += data_begin;
    placed.end += data_begin;
  }
  return header;
}

Result<std::uint64_t> checked_bytes_of(const FileTensor& tensor) {
  auto bytes = static_cast<std::int64_t>(size_of(tensor.type));
  bool empty = false;
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0) {
      return failure(ErrorCode::invalid,
                     "tensor " + quoted_name(tensor.name) + " has a negative extent");
    }
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) {
      return failure(ErrorCode::invalid,
                     "tensor " + quoted_name(tensor.name) + " has a shape of more than 2^63 bytes");
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

std::string_view safetensors_name_of(ElementType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < type_names.size() ? type_names[index] : "unknown";
}

}  // namespace weir
