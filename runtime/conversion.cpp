#include "runtime/conversion.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/internal/box_cut.hpp"
#include "runtime/internal/byte_overlap.hpp"
#include "runtime/internal/copy_form.hpp"
#include "runtime/internal/quoted.hpp"
#include "runtime/planner.hpp"

namespace weir {
namespace {

using internal::cut;
using internal::quoted;
using internal::uncovered;

/// Byte offset of the element of the piece at the start of `part`, which lies within it.
std::uint64_t offset_of(const Piece& piece, const Box& part) {
  std::uint64_t offset = piece.offset;
  for (int dim = 0; dim < part.start.rank(); ++dim) {
    offset +=
        static_cast<std::uint64_t>((part.start[dim] - piece.box.start[dim]) * piece.stride[dim]);
  }
  return offset;
}

/// A manifest's pieces by tensor, and its tensors by name.
class Holdings {
 public:
  explicit Holdings(const Manifest& manifest)
      : manifest_(manifest), pieces_(manifest.tensors.size()) {
    for (const Piece& piece : manifest.pieces) pieces_[piece.tensor].push_back(piece);
    for (const Tensor& tensor : manifest.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  [[nodiscard]] const Tensor* tensor(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  [[nodiscard]] const std::vector<Piece>& pieces(const Tensor& tensor) const {
    return pieces_[static_cast<std::size_t>(&tensor - manifest_.tensors.data())];
  }
  /// None where it has no such tensor.
  [[nodiscard]] std::vector<Piece> pieces(std::string_view name) const {
    const Tensor* found = tensor(name);
    return found == nullptr ? std::vector<Piece>() : pieces(*found);
  }
  [[nodiscard]] const Encoding* encoding(const Tensor& tensor) const {
    return encoding_of(manifest_, tensor);
  }

 private:
  const Manifest& manifest_;
  std::vector<std::vector<Piece>> pieces_;
  std::unordered_map<std::string_view, const Tensor*> by_name_;
};

class Maker {
 public:
  Maker(const Manifest& from, const Manifest& to) : manifest_(to), from_(from), to_(to) {}

  Result<Conversion> make() {
    for (const Tensor& tensor : manifest_.tensors) {
      const Encoding* encoding = to_.encoding(tensor);
      if (encoding == nullptr || encoding->kind != Encoding::Kind::scaled) continue;
      const Tensor* source = from_.tensor(tensor.name);
      const bool encodes = source != nullptr && from_.encoding(*source) == nullptr;
      if (encodes) made_scales_.push_back(tensor.name + encoding->scales_suffix);
    }
    std::sort(made_scales_.begin(), made_scales_.end());
    for (const Tensor& tensor : manifest_.tensors) {
      if (std::binary_search(made_scales_.begin(), made_scales_.end(), tensor.name)) continue;
      if (auto good = make(tensor); !good) return failure(good);
    }
    return std::move(conversion_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> invalid(const std::string& text) const {
    return failure(ErrorCode::invalid, text_of(manifest_.shard) + ": " + text);
  }
  [[nodiscard]] tl::unexpected<Error> hole(const Box& box, const std::string& name) const {
    return invalid(text_of(box) + " of " + quoted(name) +
                   " is to be made, but is not there to make it of: hold it on this shard, or "
                   "convert on the other side");
  }

  Result<void> make(const Tensor& tensor) {
    const Tensor* source = from_.tensor(tensor.name);
    if (source == nullptr) {
      if (to_.pieces(tensor).empty()) return {};
      return hole(to_.pieces(tensor).front().box, tensor.name);
    }
    if (source->shape != tensor.shape) {
      return invalid(quoted(tensor.name) + " is " + text_of(source->shape) + " and is to be " +
                     text_of(tensor.shape) + ": state one shape");
    }
    const Encoding* old_form = from_.encoding(*source);
    const Encoding* new_form = to_.encoding(tensor);
    const bool same_form =
        old_form == nullptr || new_form == nullptr ? old_form == new_form : *old_form == *new_form;
    if (same_form) return copy(*source, tensor);
    if (old_form != nullptr && new_form != nullptr) {
      return invalid(quoted(tensor.name) + " is " + text_of(*old_form) + " and is to be " +
                     text_of(*new_form) + ": convert to plain values first");
    }
    return new_form != nullptr ? encode(*source, tensor, *new_form)
                               : decode(*source, tensor, *old_form);
  }

  Result<void> check_types(const Tensor& source, ElementType values, ElementType made) const {
    if (convertible(values, made)) return {};
    return invalid(quoted(source.name) + " can't be converted from " +
                   std::string(name_of(values)) + " to " + std::string(name_of(made)));
  }

  Result<void> copy(const Tensor& source, const Tensor& target) {
    if (auto good = check_types(source, source.type, target.type); !good) return good;
    for (const Piece& to : to_.pieces(target)) {
      const auto missing =
          cut(to.box, from_.pieces(source), [&](const Box& part, const Piece& from) {
            conversion_.copies.push_back({0, from.region, to.region, source.type, target.type,
                                          offset_of(from, part), offset_of(to, part), part.extent,
                                          from.stride, to.stride});
            internal::normalize(conversion_.copies.back());
          });
      if (missing) return hole(*missing, target.name);
    }
    return {};
  }

  Recoding recoding(const Tensor& source, const Tensor& target, const Encoding& encoding) {
    return {.encoding = encoding,
            .encodes = to_.encoding(target) != nullptr,
            .source_type = source.type,
            .target_type = target.type,
            .shape = target.shape,
            .blocks = {},
            .source = from_.pieces(source),
            .target = to_.pieces(target),
            .scales = {}};
  }

  Result<void> encode(const Tensor& source, const Tensor& target, const Encoding& encoding) {
    if (auto good = check_types(source, source.type, ElementType::f32); !good) return good;
    Recoding made = recoding(source, target, encoding);
    for (const Piece& piece : made.target)
      add_blocks(made, blocks_of(encoding, made.shape, piece.box));
    if (encoding.kind == Encoding::Kind::scaled) {
      made.scales = to_.pieces(target.name + encoding.scales_suffix);
      for (const Piece& piece : made.scales) add_blocks(made, piece.box);
    }
    keep_each_once(made.blocks);
    if (encoding.kind == Encoding::Kind::scaled) {
      if (auto good = check_whole_blocks(made, target); !good) return good;
    }
    return check_held(made, target);
  }

  Result<void> check_whole_blocks(const Recoding& made, const Tensor& target) const {
    for (const std::int64_t block : made.blocks) {
      const Box box = box_of(made, block);
      const auto missing = uncovered(box, made.source);
      if (!missing) continue;
      return invalid("block " + text_of(box) + " of " + quoted(target.name) + " " +
                     text_of(target.shape) + " is cut: " + text_of(*missing) +
                     " is not on this shard, so that its scale can't be known here: cut the "
                     "tensor between blocks, or convert on the other side");
    }
    return {};
  }

  Result<void> decode(const Tensor& source, const Tensor& target, const Encoding& encoding) {
    if (auto good = check_types(target, ElementType::f32, target.type); !good) return good;
    Recoding made = recoding(source, target, encoding);
    if (encoding.kind == Encoding::Kind::scaled) {
      const std::string name = target.name + encoding.scales_suffix;
      made.scales = from_.pieces(name);
      for (const Piece& piece : made.target) {
        const auto missing = uncovered(blocks_of(encoding, made.shape, piece.box), made.scales);
        if (missing) return hole(*missing, name);
      }
    }
    for (const Piece& piece : made.target)
      add_blocks(made, blocks_of(encoding, made.shape, piece.box));
    keep_each_once(made.blocks);
    return check_held(made, target);
  }

  /// Whether each element of the target is there in the source. Keeps the recoding.
  Result<void> check_held(Recoding& made, const Tensor& target) {
    for (const Piece& piece : made.target) {
      const auto missing = uncovered(piece.box, made.source);
      if (missing) return hole(*missing, target.name);
    }
    if (!made.blocks.empty()) conversion_.recodings.push_back(std::move(made));
    return {};
  }

  static void add_blocks(Recoding& made, const Box& box) {
    const Dims step = dense_strides(scales_shape(made.encoding, made.shape), 1);
    const std::int64_t count = element_count(box.extent);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i;
      std::int64_t number = 0;
      for (int dim = box.start.rank() - 1; dim >= 0; --dim) {
        number += (box.start[dim] + rest % box.extent[dim]) * step[dim];
        rest /= box.extent[dim];
      }
      made.blocks.push_back(number);
    }
  }

  static void keep_each_once(std::vector<std::int64_t>& numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  }

  const Manifest& manifest_;
  Holdings from_;
  Holdings to_;
  std::vector<std::string> made_scales_;  ///< Sorted names of what encoding makes besides codes.
  Conversion conversion_;
};

}  // namespace

Result<Conversion> conversion_between(const Manifest& from, const Manifest& to) {
  for (const Manifest* manifest : {&from, &to}) {
    if (auto good = check(*manifest); !good) return failure(good);
  }
  if (auto order = internal::disjoint_order(to); !order) return failure(order);
  return Maker(from, to).make();
}

std::uint64_t target_bytes(const Conversion& conversion) noexcept {
  std::uint64_t bytes = 0;
  for (const Copy& copy : conversion.copies) bytes += target_bytes(copy);
  for (const Recoding& recoding : conversion.recodings) bytes += target_bytes(recoding);
  return bytes;
}

}  // namespace weir
