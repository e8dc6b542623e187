#include "adapters/layouts/internal/quantized_layout.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/assert.hpp"

namespace weir {
namespace {

const Encoding* encoding_of(const Model& model, const LocalPiece& piece) {
  const std::uint32_t encoding = model.tensors[piece.tensor].encoding;
  return encoding == 0 ? nullptr : &model.encodings[encoding - 1];
}

/// One local tensor of codes and how its scales lie.
class ScalesMaker {
 public:
  ScalesMaker(const Model& model, const LocalTensor& codes) : model_(model), codes_(codes) {
    const Encoding& encoding = *encoding_of(model, codes.pieces.front());
    const int rank = encoding.block.rank();
    rows_.of_block = encoding.block[rank - 2];
    columns_.of_block = encoding.block[rank - 1];
    const std::size_t dims = codes.shape.size();
    rows_.extent = codes.shape[dims - 2];
    columns_.extent = codes.shape[dims - 1];
    scales_.name = codes.name + encoding.scales_suffix;
    scales_.type = ElementType::f32;
    scales_.shape = codes.shape;
    scales_.shape[dims - 2] = rows_.blocks();
    scales_.shape[dims - 1] = columns_.blocks();
  }

  Result<LocalTensor> make() {
    for (const LocalPiece& piece : codes_.pieces) {
      if (auto good = add(piece); !good) return failure(good);
    }
    return std::move(scales_);
  }

 private:
  /// The local tensor along one dimension.
  struct Axis {
    std::int64_t extent = 0;
    std::int64_t of_block = 0;  ///< 0: the whole tensor's extent, however little of it is here.

    [[nodiscard]] std::int64_t blocks() const {
      return of_block == 0 ? 1 : (extent + of_block - 1) / of_block;
    }
    [[nodiscard]] std::int64_t block_at(std::int64_t place) const {
      return of_block == 0 ? 0 : place / of_block;
    }
    /// Whether whole blocks lie on whole local ones: from `start` of a canonical `extent`, at
    /// `place` here.
    [[nodiscard]] bool whole(std::int64_t start, std::int64_t count, std::int64_t whole_extent,
                             std::int64_t place) const {
      if (of_block == 0) return true;
      const bool ends = count % of_block == 0 || start + count == whole_extent;
      return start % of_block == 0 && place % of_block == 0 && ends;
    }
  };

  Result<void> add(const LocalPiece& piece) {
    const Tensor& tensor = model_.tensors[piece.tensor];
    const int rank = tensor.shape.rank();
    const std::int64_t matrix = rows_.extent * columns_.extent;
    const bool in_order =
        (piece.box.extent[rank - 1] == 1 || piece.stride[rank - 1] == 1) &&
        (piece.box.extent[rank - 2] == 1 || piece.stride[rank - 2] == columns_.extent) &&
        (rank < 3 || piece.box.extent[0] == 1 || piece.stride[0] == matrix);
    if (!in_order || rank > 3) {
      return invalid("the rows of " + tensor.name + " do not lie behind one another as rows of " +
                     codes_.name);
    }
    const std::int64_t row = piece.offset % matrix / columns_.extent;
    const std::int64_t column = piece.offset % columns_.extent;
    if (!rows_.whole(piece.box.start[rank - 2], piece.box.extent[rank - 2], tensor.shape[rank - 2],
                     row) ||
        !columns_.whole(piece.box.start[rank - 1], piece.box.extent[rank - 1],
                        tensor.shape[rank - 1], column)) {
      return invalid(codes_.name + " has " + text_of(piece.box) + " of " + tensor.name + " " +
                     text_of(tensor.shape) + " at row " + std::to_string(row) + ", column " +
                     std::to_string(column) + ", which cuts blocks of " +
                     text_of(encoding_of(model_, piece)->block));
    }
    const Encoding& encoding = *encoding_of(model_, piece);
    LocalPiece made;
    made.tensor = scales_number(tensor.name + encoding.scales_suffix);
    made.box = blocks_of(encoding, tensor.shape, piece.box);
    made.offset =
        (piece.offset / matrix * rows_.blocks() + rows_.block_at(row)) * columns_.blocks() +
        columns_.block_at(column);
    made.stride = Dims::filled(rank, 1);
    made.stride[rank - 2] = columns_.blocks();
    if (rank == 3) made.stride[0] = rows_.blocks() * columns_.blocks();
    // Parts of one row, which has one scale, say the same.
    if (std::ranges::find(scales_.pieces, made) == scales_.pieces.end()) {
      scales_.pieces.push_back(made);
    }
    return {};
  }

  [[nodiscard]] std::uint32_t scales_number(const std::string& name) const {
    const auto found = std::ranges::lower_bound(model_.tensors, name, {}, &Tensor::name);
    WEIR_ASSERT(found != model_.tensors.end() && found->name == name);
    return static_cast<std::uint32_t>(found - model_.tensors.begin());
  }

  static tl::unexpected<Error> invalid(const std::string& text) {
    return failure(ErrorCode::invalid,
                   text + ": use other parallel degrees, another quant, or none");
  }

  const Model& model_;
  const LocalTensor& codes_;
  Axis rows_;
  Axis columns_;
  LocalTensor scales_;
};

}  // namespace

std::vector<std::uint32_t> numbers_in(const Model& quantized, const Model& model) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(model.tensors.size());
  // Both are sorted by name.
  std::uint32_t number = 0;
  for (const Tensor& tensor : model.tensors) {
    while (quantized.tensors[number].name != tensor.name) ++number;
    numbers.push_back(number);
  }
  return numbers;
}

Result<RankLayout> quantized_layout(const Model& quantized,
                                    const std::vector<std::uint32_t>& numbers, RankLayout layout) {
  std::vector<LocalTensor> tensors;
  for (LocalTensor& local : layout.tensors) {
    std::size_t encoded = 0;
    for (LocalPiece& piece : local.pieces) {
      piece.tensor = numbers[piece.tensor];
      if (encoding_of(quantized, piece) != nullptr) ++encoded;
    }
    tensors.push_back(std::move(local));
    if (encoded == 0) continue;
    LocalTensor& codes = tensors.back();
    if (encoded < codes.pieces.size()) {
      return failure(ErrorCode::invalid,
                     codes.name + " holds weights that are quantized and others: leave quant out");
    }
    codes.type = quantized.tensors[codes.pieces.front().tensor].type;
    auto scales = ScalesMaker(quantized, codes).make();
    if (!scales) return failure(scales);
    tensors.push_back(*std::move(scales));
  }
  layout.tensors = std::move(tensors);
  return layout;
}

}  // namespace weir
